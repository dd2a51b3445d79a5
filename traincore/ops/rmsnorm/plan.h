// What RMSNorm's passes choose from shapes and dtypes: the dtypes they compute through, and their scratch.
#pragma once
#include "traincore/core/arena.h"
#include "traincore/core/view.h"
#include "traincore/cpu/slabs.h"
#include "traincore/cpu/staged_rows.h"
#include "traincore/ops/rmsnorm/rmsnorm.h"

namespace tc::ops::rmsnorm {

// The dtype of the row v where rounding is before_weight.
template <class A>
int32_t row_dtype(const A& a) {
  return given(a.residual) ? promoted_dtype(a.x.dtype, a.residual.dtype) : a.x.dtype;
}
// What the row and the normalised row are rounded to: f32 stands for not at all.
template <class A>
int32_t rounded_to(const A& a) {
  return a.rounding == TC_ROUND_BEFORE_WEIGHT ? row_dtype(a) : int32_t{TC_DTYPE_F32};
}

inline KernelDtype kernel_dtype(const tcx_rmsnorm_forward_args& a) {
  return tc::kernel_dtype({&a.x, &a.residual, &a.y, &a.residual_out});
}
inline KernelDtype kernel_dtype(const tcx_rmsnorm_backward_args& a) {
  return tc::kernel_dtype({&a.dy, &a.x, &a.residual, &a.dresidual_out, &a.dx});
}

struct ForwardScratch {
  float* gain;  // [cols]: weight_offset + weight, or 1
};
inline ForwardScratch carve_forward(const tcx_rmsnorm_forward_args& a, Arena& arena) {
  return {arena.take<float>(AnyRows(a.x).cols())};
}

struct BackwardScratch {
  float* gain;   // [cols]: weight_offset + weight, or 1
  float* slabs;  // [slab_count(rows), cols]: partial sums of dweight
};
inline BackwardScratch carve_backward(const tcx_rmsnorm_backward_args& a, Arena& arena) {
  const AnyRows dy(a.dy);
  return {arena.take<float>(dy.cols()), arena.take<float>(given(a.dweight) ? slab_count(dy.count()) * dy.cols() : 0)};
}

}  // namespace tc::ops::rmsnorm
