// The scratch of cross entropy's passes.
#pragma once
#include "traincore/core/arena.h"
#include "traincore/cpu/loss.h"
#include "traincore/ops/cross_entropy/cross_entropy.h"

namespace tc::ops::cross_entropy {

template <class A>
int64_t classes_of(const A& a) {
  return a.logits.shape[a.logits.rank - 1];
}

struct ForwardScratch {
  float* class_weight;  // [classes] in f32
  float* loss;          // [rows], where loss is reduced
  float* z_loss_part;   // [rows], where it is wanted and reduced
};
inline ForwardScratch carve_forward(const tcx_cross_entropy_forward_args& a, Arena& arena) {
  const int64_t rows = element_count(a.target);
  return {arena.take<float>(given(a.class_weight) ? element_count(a.class_weight) : 0),
          arena.take<float>(reduced_count(a.reduction, a.loss, rows)),
          arena.take<float>(reduced_count(a.reduction, a.z_loss_part, rows))};
}

struct BackwardScratch {
  float* class_weight;  // [classes] in f32
};
inline BackwardScratch carve_backward(const tcx_cross_entropy_backward_args& a, Arena& arena) {
  return {arena.take<float>(given(a.class_weight) ? element_count(a.class_weight) : 0)};
}

}  // namespace tc::ops::cross_entropy
