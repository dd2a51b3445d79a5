// Float tensors of any strides and dtype as one sequence of f32 in row-major order: what pointwise ops work on. A chunk
// at a time passes through the first-level cache, so memory sees each element once.
#pragma once
#include <algorithm>

#include "traincore/core/types.h"
#include "traincore/cpu/parallel.h"

namespace tc {

class Elements {
 public:
  static constexpr int64_t kChunk = 2048;  // elements of a scratch buffer: 8 KB

  explicit Elements(const tc_tensor& t);
  int64_t count() const { return count_; }

  // The n <= kChunk elements from `first` on: the tensor's own memory if they lie there as f32, else `scratch`, filled.
  const float* read(int64_t first, int64_t n, float* scratch) const;
  // Where to compute those elements before write(): the tensor's own memory if it can take them as f32, else `scratch`.
  float* place(int64_t first, int64_t n, float* scratch) const;
  // Stores values, which may be what place() gave, rounding to nearest even.
  void write(int64_t first, int64_t n, const float* values) const;

 private:
  float* own_run(int64_t first, int64_t n) const;
  template <class F>
  void for_runs(int64_t first, int64_t n, F&& f) const;
  std::byte* row_start(int64_t row) const;

  std::byte* data_;
  int32_t dtype_, rank_;                               // rank of the leading dimensions
  int64_t count_, run_, step_;                         // run_ elements, step_ apart, make an innermost row
  int64_t extent_[TC_MAX_RANK], stride_[TC_MAX_RANK];  // leading dimensions, those dense together merged
};

// body(first, n) for chunks that cover [0, count), in parallel over blocks of chunks; for pointwise bodies only.
template <class F>
void parallel_chunks(int64_t count, int threads, F&& body) {
  constexpr int64_t kChunksPerBlock = 8;
  parallel_blocks(count, kChunksPerBlock * Elements::kChunk, threads, [&](int64_t begin, int64_t end) {
    for (int64_t first = begin; first < end; first += Elements::kChunk)
      body(first, std::min(Elements::kChunk, end - first));
  });
}

}  // namespace tc
