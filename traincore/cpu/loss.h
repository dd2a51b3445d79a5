// What the losses over classes share besides their rows (loss-inl.h): their options, checked, and their reduction.
#pragma once
#include <cfloat>

#include "traincore/core/fail.h"
#include "traincore/core/view.h"

namespace tc {

// The options of one call that rows share. `normalizer` is what a mean divides by; 1 for a sum and for no reduction.
struct LossOptions {
  double label_smoothing, z_loss, logit_scale, softcap;
  int64_t ignore_index;
  const float* class_weight;  // NULL: every weight is 1
  int64_t valid_count;
  double normalizer;

  double weight(int64_t target) const { return class_weight ? static_cast<double>(class_weight[target]) : 1.0; }
  double inverse_normalizer() const { return normalizer == 0 ? 0 : 1 / normalizer; }
};

// Counts the valid rows and returns the sum of their weights, or refuses the call for a target that is no class.
double count_targets(const char* pass, const tc_tensor& target, int64_t classes, LossOptions& options);

// `class_weight` is a.class_weight in f32.
template <class A>
LossOptions loss_options(const char* pass, const A& a, int64_t classes, const float* class_weight) {
  LossOptions o{a.label_smoothing, a.z_loss, a.logit_scale, a.softcap, a.ignore_index, class_weight, 0, 1};
  const double total_weight = count_targets(pass, a.target, classes, o);
  if (a.reduction == TC_REDUCTION_MEAN)
    o.normalizer = given(a.normalizer) ? *static_cast<const float*>(a.normalizer.data) : total_weight;
  return o;
}

// What every pass asks of these options.
template <class A>
void check_loss_options(const char* pass, const A& a) {
  const auto is_positive_f32 = [](double v) { return v >= FLT_MIN && v <= FLT_MAX; };
  require(a.ignore_index >= INT32_MIN && a.ignore_index <= INT32_MAX, "{}: ignore_index is {}, but must fit an int32",
          pass, a.ignore_index);
  require(a.label_smoothing >= 0 && a.label_smoothing <= 1, "{}: label_smoothing is {}, but must be in [0, 1]", pass,
          a.label_smoothing);
  require(a.z_loss >= 0, "{}: z_loss is {}, but must be >= 0", pass, a.z_loss);
  require(is_positive_f32(a.logit_scale), "{}: logit_scale is {}, but must be > 0 and a normal f32", pass,
          a.logit_scale);
  require(a.softcap == 0 || is_positive_f32(a.softcap), "{}: softcap is {}, but must be 0 (none) or > 0, a normal f32",
          pass, a.softcap);
  require(!given(a.class_weight) || a.label_smoothing == 0,
          "{}: class_weight is given and label_smoothing is {}, but they do not combine; leave one out", pass,
          a.label_smoothing);
  require(!given(a.normalizer) || a.reduction == TC_REDUCTION_MEAN,
          "{}: normalizer is given, but only reduction mean divides by it", pass);
}

// How many of `rows` values an output needs in scratch: all, where they are then reduced.
inline int64_t reduced_count(int32_t reduction, const tc_tensor& output, int64_t rows) {
  return reduction == TC_REDUCTION_NONE || !given(output) ? 0 : rows;
}
// Where rows leave such a value: in `scratch`, or in the output itself where nothing is reduced.
tc_tensor row_values(int32_t reduction, const tc_tensor& output, float* scratch, int64_t rows);
// Sums the rows in order, whoever computed them.
void reduce_rows(int32_t reduction, const LossOptions& options, const float* row_values, int64_t rows,
                 const tc_tensor& output);

}  // namespace tc
