// The scratch of grad_norm and clip.
#pragma once
#include "traincore/core/arena.h"
#include "traincore/cpu/tensor_run.h"
#include "traincore/ops/grad_norm/grad_norm.h"

namespace tc::ops::grad_norm {

struct NormParts {
  int64_t* starts;     // [grads_count + 1], for TensorRun
  double* squares;     // one sum a block
  int64_t* nonfinite;  // one count a block
};
inline NormParts carve_norm(const tcx_grad_norm_args& a, Arena& arena) {
  const int64_t blocks = TensorRun::blocks(TensorRun::total(a.grads, a.grads_count));
  return {arena.take<int64_t>(a.grads_count + 1), arena.take<double>(blocks), arena.take<int64_t>(blocks)};
}

struct ClipParts {
  int64_t* starts;  // [grads_count + 1], for TensorRun
};
inline ClipParts carve_clip(const tcx_clip_args& a, Arena& arena) { return {arena.take<int64_t>(a.grads_count + 1)}; }

}  // namespace tc::ops::grad_norm
