// Which GPU kernels serve a call: launches and explain ask here. Pure.
#pragma once
#include "traincore/cuda/row_shape.h"
#include "traincore/cuda/slab_plan.h"
#include "traincore/ops/layernorm/layernorm.h"

namespace tc::ops::layernorm {

inline cuda::RowsPlan plan_forward(const tcx_layernorm_forward_args& a, const cuda::DeviceInfo& device) {
  const cuda::RowShape shape =
      cuda::row_shape("layernorm_forward", "x", {&a.x, &a.residual, &a.y, &a.residual_out}, {&a.weight, &a.bias});
  const bool is_pair = given(a.residual), bias_is_exact = !given(a.bias) || a.bias.dtype == a.x.dtype;
  if (!is_pair && bias_is_exact) {  // measured: faster than eight vectors a thread in registers
    const cuda::RowsPlan ahead = cuda::plan_rows(shape, cuda::kBiasedNormAhead, 1, 4, device);
    if (ahead.ahead) return ahead;
  }
  cuda::RowsPlan plan =
      cuda::plan_rows(shape, cuda::kFullNormAhead, 1 + is_pair, 4, device, cuda::most_vectors_forward(is_pair));
  // Measured: what blocks send for ahead makes large ones faster, and smaller ones slower.
  if (!is_pair && plan.rows.variant == cuda::RowVariant::block_x4 && plan.rows.threads >= 256)
    plan.rows.in_flight = int64_t{device.multiprocessors} * (1024 / plan.rows.threads);
  return plan;
}

inline cuda::SlabbedPlan plan_backward(const tcx_layernorm_backward_args& a, const cuda::DeviceInfo& device) {
  const cuda::RowShape shape =
      cuda::row_shape("layernorm_backward", "dy", {&a.dy, &a.x, &a.residual, &a.dresidual_out, &a.dx}, {&a.weight});
  return cuda::plan_slabbed(shape, {given(a.residual), given(a.dresidual_out), 2}, device);
}

}  // namespace tc::ops::layernorm
