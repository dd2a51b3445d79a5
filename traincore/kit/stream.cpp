#include "traincore/kit/stream.h"

namespace tc::kit {

Stream::~Stream() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  worker_.join();
}

void Stream::post(std::function<void()> call) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(call));
    ++posted_;
  }
  changed_.notify_all();
}

void Stream::sync() {
  std::unique_lock lock(mutex_);
  const uint64_t last = posted_;
  changed_.wait(lock, [&] { return finished_ >= last; });
  if (const auto failure = std::move(failure_)) throw Error(*failure);
}

void Stream::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return closing_ || !queue_.empty(); });
    if (queue_.empty()) return;
    std::function<void()> call = std::move(queue_.front());
    queue_.pop_front();
    if (!failure_) {
      lock.unlock();
      run(std::move(call));
      lock.lock();
    }
    ++finished_;
    changed_.notify_all();
  }
}

void Stream::run(std::function<void()> call) {
  const tc_status_t status = guard(call);
  call = nullptr;  // the buffers it holds are let go before it counts as finished
  if (status == TC_OK) return;
  const std::lock_guard lock(mutex_);
  failure_ = std::make_unique<Error>(status, tc_last_error());
}

}  // namespace tc::kit
