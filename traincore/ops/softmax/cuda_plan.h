// Which GPU kernels serve a call: launches and explain ask here. Pure.
#pragma once
#include "traincore/cuda/row_shape.h"
#include "traincore/ops/softmax/softmax.h"

namespace tc::ops::softmax {

inline cuda::RowsPlan plan_forward(const tc_tensor& x, const tc_tensor& y, const cuda::DeviceInfo& device) {
  return cuda::plan_rows_anywhere(cuda::row_shape("softmax", "x", {&x, &y}, {}), cuda::kSoftmaxAhead,
                                  cuda::kSoftmaxAhead, 1, 4, device, 8);
}

template <class A>
cuda::RowsPlan plan_backward(const A& a, const cuda::DeviceInfo& device) {
  return cuda::plan_rows_anywhere(cuda::row_shape("softmax", "y", {&a.y, &a.dy, &a.dx}, {}),
                                  cuda::kSoftmaxBackwardAhead, cuda::kSoftmaxBackwardAnywhere, 2, 2, device);
}

}  // namespace tc::ops::softmax
