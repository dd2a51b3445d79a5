// A stream: calls run one after another on a thread of their own.
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "traincore/core/error.h"

namespace tc::kit {

class Stream {
 public:
  Stream() : worker_([this] { work(); }) {}
  ~Stream();  // finishes what is queued
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void post(std::function<void()> call);
  // Waits for everything posted before. Throws the first failure since the last sync, if there was one.
  void sync();

 private:
  void work();
  void run(std::function<void()> call);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  uint64_t posted_ = 0, finished_ = 0;
  std::unique_ptr<Error> failure_;
  bool closing_ = false;
  std::thread worker_;  // last: it starts when everything above is there
};

}  // namespace tc::kit
