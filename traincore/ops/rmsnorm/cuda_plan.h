// Which GPU kernels serve a call: launches and explain ask here. Pure.
#pragma once
#include "traincore/cuda/row_shape.h"
#include "traincore/cuda/slab_plan.h"
#include "traincore/ops/rmsnorm/rmsnorm.h"

namespace tc::ops::rmsnorm {

inline cuda::RowsPlan plan_forward(const tcx_rmsnorm_forward_args& a, const cuda::DeviceInfo& device) {
  const cuda::RowShape shape =
      cuda::row_shape("rmsnorm_forward", "x", {&a.x, &a.residual, &a.y, &a.residual_out}, {&a.weight});
  const bool is_pair = given(a.residual);
  return cuda::plan_rows(shape, is_pair ? cuda::kFullNormAhead : cuda::kNormAhead, 1 + is_pair, 1, device,
                         cuda::most_vectors_forward(is_pair));
}

inline cuda::SlabbedPlan plan_backward(const tcx_rmsnorm_backward_args& a, const cuda::DeviceInfo& device) {
  const cuda::RowShape shape =
      cuda::row_shape("rmsnorm_backward", "dy", {&a.dy, &a.x, &a.residual, &a.dresidual_out, &a.dx}, {&a.weight});
  return cuda::plan_slabbed(shape, {given(a.residual), given(a.dresidual_out), 1}, device);
}

}  // namespace tc::ops::rmsnorm
