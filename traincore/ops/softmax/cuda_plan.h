// Which GPU kernels serve a call: launches and explain ask here. Pure.
#pragma once
#include "traincore/cuda/row_shape.h"
#include "traincore/ops/softmax/softmax.h"

namespace tc::ops::softmax {

inline cuda::RowsPlan plan_forward(const char* pass, const tc_tensor& x, const tc_tensor& y,
                                   const cuda::DeviceInfo& device) {
  return cuda::plan_rows_anywhere(cuda::row_shape(pass, "x", {&x, &y}, {}), cuda::kSoftmaxAhead, cuda::kSoftmaxAhead, 1,
                                  4, device, 8);
}

template <class A>
cuda::RowsPlan plan_backward(const char* pass, const A& a, const cuda::DeviceInfo& device) {
  return cuda::plan_rows_anywhere(cuda::row_shape(pass, "y", {&a.y, &a.dy, &a.dx}, {}), cuda::kSoftmaxBackwardAhead,
                                  cuda::kSoftmaxBackwardAnywhere, 2, 2, device);
}

}  // namespace tc::ops::softmax
