// The scratch of cross entropy's passes, and what a call's targets and options come to before any row is touched.
#pragma once
#include "traincore/core/arena.h"
#include "traincore/core/view.h"
#include "traincore/ops/cross_entropy/cross_entropy.h"

namespace tc::ops::cross_entropy {

struct ForwardScratch {
  float* class_weight;  // [classes] in f32
  float* loss;          // [rows], where loss is reduced
  float* z_loss_part;   // [rows], where it is wanted and reduced
};
inline ForwardScratch carve_forward(const tcx_cross_entropy_forward_args& a, Arena& arena) {
  const int64_t reduced = a.reduction == TC_REDUCTION_NONE ? 0 : element_count(a.target);
  return {arena.take<float>(given(a.class_weight) ? element_count(a.class_weight) : 0), arena.take<float>(reduced),
          arena.take<float>(given(a.z_loss_part) ? reduced : 0)};
}

struct BackwardScratch {
  float* class_weight;  // [classes] in f32
};
inline BackwardScratch carve_backward(const tcx_cross_entropy_backward_args& a, Arena& arena) {
  return {arena.take<float>(given(a.class_weight) ? element_count(a.class_weight) : 0)};
}

// The options of one call that rows share. `normalizer` is what a mean divides by; 1 for a sum and for no reduction.
struct Options {
  double label_smoothing, z_loss, logit_scale, softcap;
  int64_t ignore_index;
  const float* class_weight;  // NULL: every weight is 1
  int64_t valid_count;
  double normalizer;

  double weight(int64_t target) const { return class_weight ? static_cast<double>(class_weight[target]) : 1.0; }
  double inverse_normalizer() const { return normalizer == 0 ? 0 : 1 / normalizer; }
};

// Counts the valid rows, or refuses the call for a target that is no class. `class_weight` is a.class_weight in f32.
Options options_of(const tcx_cross_entropy_forward_args& a, const float* class_weight);
Options options_of(const tcx_cross_entropy_backward_args& a, const float* class_weight);

}  // namespace tc::ops::cross_entropy
