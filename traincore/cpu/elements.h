// The two ways in which pointwise ops see tensors of one shape, whatever their strides:
//   - one dtype, last dimension contiguous: rows as long as the strides allow, in their own dtype, cut into pieces
//     (leading_rows, rows_of, parallel_pieces);
//   - anything else: one sequence of f32 in row-major order, a chunk at a time (Elements, parallel_chunks).
// Pieces and chunks depend on the shape alone, and memory sees each element once.
#pragma once
#include <algorithm>
#include <initializer_list>

#include "traincore/core/view.h"
#include "traincore/cpu/parallel.h"

namespace tc {

// How many leading dimensions are rows when the trailing ones that are dense in every tensor become one run: 0 if all
// are dense. The tensors have one shape with a contiguous last dimension; absent ones do not count. For rows_of.
inline int leading_rows(std::initializer_list<const tc_tensor*> tensors) {
  const tc_tensor& shape = **tensors.begin();
  int leading = shape.rank ? shape.rank - 1 : 0;
  int64_t run = shape.rank ? shape.shape[leading] : 1;
  for (; leading > 0; run *= shape.shape[--leading])
    if (shape.shape[leading - 1] != 1 && !std::all_of(tensors.begin(), tensors.end(), [&](const tc_tensor* t) {
          return !given(*t) || t->stride[leading - 1] == run;
        }))
      break;
  return leading;
}

// body(row, begin, end) for pieces that cover [rows, cols], in tasks of about as many elements as rows_per_block gives.
template <class F>
void parallel_pieces(int64_t rows, int64_t cols, int threads, F&& body) {
  const int64_t block = rows_per_block(rows * cols, 1);
  if (cols <= block)
    return parallel_blocks(rows, rows_per_block(rows, cols), threads, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) body(row, int64_t{0}, cols);
    });
  const int64_t pieces = (cols + block - 1) / block;
  parallel_for(rows * pieces, threads, [&](int64_t i) {
    const int64_t begin = i % pieces * block;
    body(i / pieces, begin, std::min(begin + block, cols));
  });
}

// A float tensor of any strides and dtype as one sequence of f32 in row-major order. A chunk passes through the
// first-level cache.
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
