// Which GPU kernels serve a call: launches and explain ask here. Pure.
#pragma once
#include "traincore/cuda/row_shape.h"
#include "traincore/ops/softmax/softmax.h"

namespace tc::ops::softmax {

inline cuda::RowsPlan plan_forward(const char* pass, const tc_tensor& x, const tc_tensor& y,
                                   const cuda::DeviceInfo& device) {
  // Measured: rows of clusters are faster with an SM for each of their blocks, those that start anywhere are not.
  return cuda::plan_rows_anywhere(cuda::row_shape(pass, "x", {&x, &y}, {}), cuda::kSoftmaxAhead, cuda::kSoftmaxTwoAhead,
                                  1, 2, device, 8);
}

template <class A>
cuda::RowsPlan plan_backward(const char* pass, const A& a, const cuda::DeviceInfo& device) {
  const cuda::RowShape shape = cuda::row_shape(pass, "y", {&a.y, &a.dy, &a.dx}, {});
  const auto plan_with = [&](const cuda::AheadShape& kernel) {
    return cuda::plan_rows_anywhere(shape, kernel, cuda::kSoftmaxBackwardTwoAhead, 2, 2, device);
  };
  // Measured: rows of up to four blocks are faster with two of them on an SM.
  const cuda::RowsPlan plan = plan_with(cuda::kSoftmaxBackwardTwoAhead);
  return plan.ahead && plan.ahead->cluster <= 4 ? plan : plan_with(cuda::kSoftmaxBackwardAhead);
}

}  // namespace tc::ops::softmax
