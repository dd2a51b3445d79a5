// The scratch of RMSNorm's passes, and how dweight's sum over rows is cut: from the shape alone.
#pragma once
#include "traincore/core/arena.h"
#include "traincore/core/view.h"
#include "traincore/ops/rmsnorm/rmsnorm.h"

namespace tc::ops::rmsnorm {

struct ForwardScratch {
  float* weight;  // [cols] in f32
};
inline ForwardScratch carve_forward(const tcx_rmsnorm_forward_args& a, Arena& arena) {
  return {arena.take<float>(given(a.weight) ? element_count(a.weight) : 0)};
}

inline constexpr int64_t kSlabs = 16;  // partial sums of dweight: enough for the threads of a socket

struct BackwardScratch {
  float* weight;  // [cols] in f32
  float* slabs;   // [kSlabs, cols]
};
inline BackwardScratch carve_backward(const tcx_rmsnorm_backward_args& a, Arena& arena) {
  const int64_t cols = a.dy.shape[a.dy.rank - 1];
  return {arena.take<float>(given(a.weight) ? cols : 0), arena.take<float>(given(a.dweight) ? kSlabs * cols : 0)};
}

}  // namespace tc::ops::rmsnorm
