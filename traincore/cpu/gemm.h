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

// Element (i, j) is at data + i * row_stride + j * col_stride. Any strides.
struct GemmInput {
  const void* data;
  int32_t dtype;
  int64_t row_stride, col_stride;
  GemmInput transposed() const { return {data, dtype, col_stride, row_stride}; }
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

struct Gemm {
  int64_t m, n, k;  // >= 0; k = 0 gives beta C
  GemmInput a, b;
  GemmOutput c;
  float alpha = 1;  // 0 does not read A and B
  float beta = 0;   // 0 does not read C
  const GemmEpilogue* epilogue = nullptr;
};

// On up to `threads` threads, as parallel_for. Throws TC_ERR_PIPELINE if oneDNN fails.
void run_gemm(const Gemm& gemm, int threads);

// How the work is cut: tiles of C, and K into panels that are summed in order. Where C has too few tiles to share out,
// K is first cut into parts, each summed apart.
struct GemmPlan {
  int64_t tile_m, tile_n, tiles_n, tiles;
  int64_t panel_k, parts, part_k;
};
GemmPlan plan_gemm(int64_t m, int64_t n, int64_t k);

}  // namespace tc
