// What LayerNorm's passes choose from shapes and dtypes: the dtype they compute through, and their scratch.
#pragma once
#include "traincore/core/arena.h"
#include "traincore/core/view.h"
#include "traincore/cpu/slabs.h"
#include "traincore/cpu/staged_rows.h"
#include "traincore/ops/layernorm/layernorm.h"

namespace tc::ops::layernorm {

inline KernelDtype kernel_dtype(const tcx_layernorm_forward_args& a) {
  return tc::kernel_dtype({&a.x, &a.residual, &a.y, &a.residual_out});
}
inline KernelDtype kernel_dtype(const tcx_layernorm_backward_args& a) {
  return tc::kernel_dtype({&a.dy, &a.x, &a.residual, &a.dresidual_out, &a.dx});
}

struct ForwardScratch {
  float *gain, *bias;  // [cols]: weight, or 1; bias, or 0
};
inline ForwardScratch carve_forward(const tcx_layernorm_forward_args& a, Arena& arena) {
  const int64_t cols = AnyRows(a.x).cols();
  return {arena.take<float>(cols), arena.take<float>(cols)};
}

// The parameter gradients that a call asks for, side by side in each slab.
inline int64_t gradients_wanted(const tcx_layernorm_backward_args& a) {
  return int64_t{given(a.dweight)} + int64_t{given(a.dbias)};
}
struct BackwardScratch {
  float* gain;   // [cols]: weight, or 1
  float* slabs;  // [slab_count(rows), gradients_wanted, cols]: partial sums
};
inline BackwardScratch carve_backward(const tcx_layernorm_backward_args& a, Arena& arena) {
  const AnyRows dy(a.dy);
  return {arena.take<float>(dy.cols()), arena.take<float>(slab_count(dy.count()) * gradients_wanted(a) * dy.cols())};
}

}  // namespace tc::ops::layernorm
