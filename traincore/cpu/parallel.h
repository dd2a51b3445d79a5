// Splitting work over threads. How work is split depends on its size alone, so results never depend on the thread
// count.
#pragma once
#include <algorithm>
#include <cstdint>

#include "traincore/core/function_ref.h"

namespace tc {

// body(i) exactly once for every i in [0, count), on up to `threads` threads (0 = all cores). Inside another
// parallel_for it runs on the calling thread. What body stored, past the caches too, is there for every thread on
// return. Once body has thrown, indices not yet begun may be left out, and the
// first exception leaves parallel_for.
void parallel_for(int64_t count, int threads, FunctionRef<void(int64_t)> body);

// While it lives, a library that uses OpenMP works on the calling thread alone.
class SingleThread {
 public:
  SingleThread();
  ~SingleThread();
  SingleThread(const SingleThread&) = delete;
  SingleThread& operator=(const SingleThread&) = delete;

 private:
  int before_;
};

// [0, n) cut into blocks of `size` (the last may be shorter): body(begin, end).
template <class F>
void parallel_blocks(int64_t n, int64_t size, int threads, F&& body) {
  parallel_for((n + size - 1) / size, threads, [&](int64_t block) {
    const int64_t begin = block * size;
    body(begin, begin + size < n ? begin + size : n);
  });
}

// How many of `rows` rows of `cols` elements make one block of useful size; from the shape alone. Blocks of a large
// tensor are large, so that the processor's prefetching seldom starts anew.
constexpr int64_t rows_per_block(int64_t rows, int64_t cols) {
  constexpr int64_t kBlocks = 256, kSmallest = 1 << 14, kLargest = 1 << 18;  // elements
  const int64_t width = std::max<int64_t>(cols, 1);
  return std::max<int64_t>(std::clamp(rows * width / kBlocks, kSmallest, kLargest) / width, 1);
}

}  // namespace tc
