// Which GPU kernels serve a call: launches and explain ask here. Pure.
#pragma once
#include "traincore/cuda/row_shape.h"
#include "traincore/cuda/slab_plan.h"
#include "traincore/ops/layernorm/layernorm.h"

namespace tc::ops::layernorm {

inline cuda::RowsPlan plan_forward(const tcx_layernorm_forward_args& a, const cuda::DeviceInfo& device) {
  const cuda::RowShape shape =
      cuda::row_shape("layernorm_forward", "x", {&a.x, &a.residual, &a.y, &a.residual_out}, {&a.weight, &a.bias});
  return cuda::plan_rows(shape, cuda::kFullNormAhead, 1 + given(a.residual), 4, device,
                         cuda::most_vectors_forward(given(a.residual)));
}

inline cuda::SlabbedPlan plan_backward(const tcx_layernorm_backward_args& a, const cuda::DeviceInfo& device) {
  const cuda::RowShape shape =
      cuda::row_shape("layernorm_backward", "dy", {&a.dy, &a.x, &a.residual, &a.dresidual_out, &a.dx}, {&a.weight});
  const bool gain_is_exact = !given(a.weight) || a.weight.dtype == a.dy.dtype;
  return cuda::plan_slabbed(shape, {given(a.residual), given(a.dresidual_out), 2, gain_is_exact}, device);
}

}  // namespace tc::ops::layernorm
