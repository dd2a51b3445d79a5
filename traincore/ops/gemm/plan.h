// Tensors seen as a batch of matrices, and what gemm needs on the CPU besides its arguments.
#pragma once
#include "traincore/core/arena.h"
#include "traincore/core/view.h"
#include "traincore/cpu/gemm.h"
#include "traincore/ops/gemm/gemm.h"

namespace tc::ops::gemm {

inline int64_t rows_in(const tc_tensor& t) { return t.shape[t.rank - 2]; }
inline int64_t cols_in(const tc_tensor& t) { return t.shape[t.rank - 1]; }
inline int64_t batch_in(const tc_tensor& t) {
  int64_t count = 1;
  for (int i = 0; i < t.rank - 2; ++i) count *= t.shape[i];
  return count;
}

// Memory from element (row, 0) of matrix `batch` on.
inline void* row_at(const tc_tensor& t, int64_t batch, int64_t row) {
  int64_t offset = row * t.stride[t.rank - 2];
  for (int i = t.rank - 3; i >= 0; --i) {
    offset += batch % t.shape[i] * t.stride[i];
    batch /= t.shape[i];
  }
  return static_cast<std::byte*>(t.data) + offset * static_cast<int64_t>(tc_dtype_size(t.dtype));
}
inline GemmInput input_of(const tc_tensor& t, int64_t batch, bool transposed) {
  const GemmInput x{row_at(t, batch, 0), t.dtype, t.stride[t.rank - 2], 1};
  return transposed ? x.transposed() : x;
}
inline GemmOutput output_of(const tc_tensor& t, int64_t batch) {
  return {row_at(t, batch, 0), t.dtype, t.stride[t.rank - 2]};
}

struct ForwardScratch {
  float* bias;  // [n] in f32
};
inline ForwardScratch carve_forward(const tcx_gemm_forward_args& a, Arena& arena) {
  return {arena.take<float>(given(a.bias) ? element_count(a.bias) : 0)};
}

inline constexpr int64_t kSlabs = 16;  // partial sums of dbias: enough for the threads of a socket

struct BackwardScratch {
  float* dz;     // [batch, m, n], where there is an activation
  float* slabs;  // [kSlabs, n] partial sums of dbias
};
inline BackwardScratch carve_backward(const tcx_gemm_backward_args& a, Arena& arena) {
  return {arena.take<float>(a.activation != TC_ACTIVATION_NONE ? element_count(a.dc) : 0),
          arena.take<float>(given(a.dbias) ? kSlabs * cols_in(a.dc) : 0)};
}

}  // namespace tc::ops::gemm
