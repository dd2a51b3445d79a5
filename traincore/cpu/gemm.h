// Matrix products on the CPU; the engine is oneDNN, which gemm.cpp alone knows.
//
//   C[m, n] = alpha A[m, k] B[k, n] + beta C[m, n]
//
// Storage is f32, bf16 or f16, each matrix its own; products and sums are f32, and C is rounded once, when it is
// stored. The work is cut by (m, n, k) alone, so results have the same bits whatever the number of threads.
#pragma once
#include <cstdint>

#include "traincore/core/function_ref.h"

namespace tc {

// Element (i, j) is at data + i * row_stride + j * col_stride. Any strides; a transposed matrix has them swapped.
struct GemmInput {
  const void* data;
  int32_t dtype;
  int64_t row_stride, col_stride;
};

// Element (i, j) is at data + i * row_stride + j. Must not overlap the inputs.
struct GemmOutput {
  void* data;
  int32_t dtype;
  int64_t row_stride;
};

// Part of C: element (row + i, col + j) is values[i * stride + j], for i < rows and j < cols.
struct GemmTile {
  int64_t row, col, rows, cols;
  float* values;
  int64_t stride;
};

// What to do to each part of C once, in f32, after the sum and before it is stored (bias, activation); called from
// several threads.
using GemmEpilogue = FunctionRef<void(const GemmTile&)>;

// m, n, k >= 0. beta = 0 never reads C; k = 0 gives beta C; alpha = 0 does not read A and B. `threads` as in
// parallel_for. Throws TC_ERR_PIPELINE if oneDNN fails.
void gemm(int64_t m, int64_t n, int64_t k, float alpha, const GemmInput& a, const GemmInput& b, float beta,
          const GemmOutput& c, int threads, const GemmEpilogue* epilogue = nullptr);

}  // namespace tc
