// Carving scratch memory. One function per pass says what it needs; run on a counting arena it is the size query, run
// on memory it hands the memory out, so that query and use cannot disagree.
#pragma once
#include <cstddef>
#include <cstdint>

#include "traincore/core/fail.h"

namespace tc {

class Arena {
 public:
  static constexpr size_t kAlignment = 64;
  Arena() = default;  // counts only
  explicit Arena(void* memory) : base_(static_cast<std::byte*>(memory)) {}

  // `count` elements of T, aligned to 64 bytes; NULL for none, or when only counting.
  template <class T>
  T* take(int64_t count) {
    size_t bytes;
    if (count < 0 || __builtin_mul_overflow(static_cast<size_t>(count), sizeof(T), &bytes) || bytes > SIZE_MAX / 4 ||
        used_ > SIZE_MAX / 4)
      fail(TC_ERR_INVALID_SHAPE, "the workspace for this shape is larger than the address space");
    T* p = base_ && count ? reinterpret_cast<T*>(base_ + used_) : nullptr;
    used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return p;
  }
  size_t used() const { return used_; }

 private:
  std::byte* base_ = nullptr;
  size_t used_ = 0;
};

// This thread's grow-only scratch of at least `bytes`, aligned to 64. A nested use (an op called inside an op) gets
// memory of its own, so `depth` frames never share.
class ThreadScratch {
 public:
  explicit ThreadScratch(size_t bytes);
  ~ThreadScratch();
  ThreadScratch(const ThreadScratch&) = delete;
  ThreadScratch& operator=(const ThreadScratch&) = delete;
  void* data() const { return data_; }

 private:
  void* data_;
};

// The scratch of one CPU call: the caller's workspace if there is one, else this thread's arena.
template <class A, class S>
class Scratch {
 public:
  Scratch(S (*carve)(const A&, Arena&), const A& args, const tc_exec& exec)
      : own_(exec.workspace ? 0 : size_of(carve, args)), arena_(exec.workspace ? exec.workspace : own_.data()) {
    parts_ = carve(args, arena_);
  }
  const S* operator->() const { return &parts_; }
  const S& operator*() const { return parts_; }
  static size_t size_of(S (*carve)(const A&, Arena&), const A& args) {
    Arena counting;
    carve(args, counting);
    return counting.used();
  }

 private:
  ThreadScratch own_;
  Arena arena_;
  S parts_;
};

}  // namespace tc
