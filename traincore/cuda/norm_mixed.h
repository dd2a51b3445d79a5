// RMSNorm and LayerNorm of full-size tensors that differ in dtype: one generic kernel a pass, which looks at each dtype
// while it runs, makes everything in f32, and reads a row again for every pass over it.
#pragma once
#include "traincore/cuda/slab_plan.h"

namespace tc::cuda {

// The arguments of either op; what an op does not have is absent.
struct MixedNormForward {
  const char* name;   // of the kernel
  bool is_centred;    // LayerNorm
  int32_t row_dtype;  // v and the normalised row are rounded to it; f32: not at all
  const tc_tensor &x, &residual, &weight, &bias, &y, &residual_out, &mean, &rstd;
  double weight_offset, eps;
};
struct MixedNormBackward {
  const char* name;
  bool is_centred;
  int32_t row_dtype;
  const tc_tensor &dy, &x, &residual, &weight, &mean, &rstd, &dresidual_out, &dx;
  double weight_offset;
  float *dweight, *dbias;  // [plan.count(), cols]: partial sums; NULL where they are not wanted
};

void mixed_norm_forward(const MixedNormForward& a, const RowPlan& plan, const tc_exec& exec);
void mixed_norm_backward(const MixedNormBackward& a, const SlabbedPlan& plan, const tc_exec& exec);

}  // namespace tc::cuda
