#include "traincore/ops/cross_entropy/plan.h"

#include "traincore/core/fail.h"

namespace tc::ops::cross_entropy {
namespace {

template <class A>
Options options_from(const char* pass, const A& a, const float* class_weight) {
  Options o{a.label_smoothing, a.z_loss, a.logit_scale, a.softcap, a.ignore_index, class_weight, 0, 1};
  const Indices targets(a.target);
  const int64_t classes = a.logits.shape[a.logits.rank - 1];
  double total_weight = 0;
  for (int64_t row = 0; row < targets.count(); ++row) {
    const int64_t target = targets[row];
    if (target == a.ignore_index) continue;
    require(target >= 0 && target < classes,
            "{}: target of row {} is {}, but must be a class in [0, {}) or ignore_index ({})", pass, row, target,
            classes, a.ignore_index);
    ++o.valid_count;
    total_weight += o.weight(target);
  }
  if (a.reduction == TC_REDUCTION_MEAN)
    o.normalizer = given(a.normalizer) ? *static_cast<const float*>(a.normalizer.data) : total_weight;
  return o;
}

}  // namespace

Options options_of(const tcx_cross_entropy_forward_args& a, const float* class_weight) {
  return options_from("cross_entropy_forward", a, class_weight);
}
Options options_of(const tcx_cross_entropy_backward_args& a, const float* class_weight) {
  return options_from("cross_entropy_backward", a, class_weight);
}

}  // namespace tc::ops::cross_entropy
