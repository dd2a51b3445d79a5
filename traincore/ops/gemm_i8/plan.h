// How a product is cut, and what it needs besides its arguments.
#pragma once
#include <algorithm>

#include "traincore/core/arena.h"
#include "traincore/ops/gemm_i8/gemm_i8.h"

namespace tc::ops::gemm_i8 {

// A product of two i8 is at most 2^14, so 1024 of them sum to at most 2^24, up to which f32 holds every integer: inside a
// panel of K, f32 arithmetic is exact in any order.
inline constexpr int64_t kPanel = 1024;
inline constexpr int64_t kRows = 512;  // of C at a time

inline int64_t rows_in(const tc_tensor& t) { return t.shape[t.rank - 2]; }
inline int64_t cols_in(const tc_tensor& t) { return t.shape[t.rank - 1]; }

struct Scratch {
  float *a, *b, *product;  // a panel of each operand in f32, and their product
  double* sum;             // of the products of all panels
};
inline Scratch carve(const tcx_gemm_i8_args& a, Arena& arena) {
  const int64_t k = a.transpose_a ? rows_in(a.a) : cols_in(a.a), n = cols_in(a.c);
  const int64_t panel = std::min(k, kPanel), rows = std::min(rows_in(a.c), kRows);
  return {arena.take<float>(rows * panel), arena.take<float>(panel * n), arena.take<float>(rows * n),
          arena.take<double>(rows * n)};
}

}  // namespace tc::ops::gemm_i8
