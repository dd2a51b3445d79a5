// Elementwise passes: tensors of one shape, whatever their strides, cut into contiguous runs and spread over threads.
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
  constexpr int64_t kPiece = rows_per_block(1);
  if (cols <= kPiece)
    return parallel_blocks(rows, rows_per_block(cols), threads, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) body(row, int64_t{0}, cols);
    });
  const int64_t pieces = (cols + kPiece - 1) / kPiece;
  parallel_for(rows * pieces, threads, [&](int64_t i) {
    const int64_t begin = i % pieces * kPiece;
    body(i / pieces, begin, std::min(begin + kPiece, cols));
  });
}

}  // namespace tc
