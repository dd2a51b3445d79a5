// Which GPU kernels serve a call: launches and explain ask here. Pure.
#pragma once
#include "traincore/cuda/row_shape.h"
#include "traincore/ops/cross_entropy/cross_entropy.h"

namespace tc::ops::cross_entropy {

inline cuda::RowsPlan plan_forward(const tcx_cross_entropy_forward_args& a, const cuda::DeviceInfo& device) {
  const cuda::RowShape shape = cuda::row_shape("cross_entropy_forward", "logits", {&a.logits, &a.dlogits}, {});
  // Measured: with an SM for each of their blocks wide rows are slower, and rows of one block as fast.
  return cuda::plan_rows_anywhere(shape, cuda::kSoftmaxTwoAhead, cuda::kSoftmaxTwoAhead, 1, 4, device);
}

inline cuda::RowShape backward_shape(const tcx_cross_entropy_backward_args& a) {
  return cuda::row_shape("cross_entropy_backward", "logits", {&a.logits, &a.dlogits}, {});
}

// Whether backward reads and writes 16 bytes at a time.
inline bool takes_vectors(const tcx_cross_entropy_backward_args& a, const cuda::RowShape& shape) {
  return shape.aligned || cuda::share_phase(a.logits, a.dlogits);
}

}  // namespace tc::ops::cross_entropy
