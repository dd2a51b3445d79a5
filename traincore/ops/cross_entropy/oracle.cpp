// The definition of cross entropy: plain loops, shares nothing with the kernels. Real is double (the truth) or float
// (the honest formula that the error budget is measured with); every float tensor of a call has that type.
#include <cmath>
#include <limits>

#include "traincore/core/view.h"
#include "traincore/ops/cross_entropy/cross_entropy.h"

namespace tc::ops::cross_entropy {
namespace {

template <class Real, class A>
Real weight_of(const A& a, int64_t target) {
  return given(a.class_weight) ? static_cast<const Real*>(a.class_weight.data)[target] : Real(1);
}

template <class Real, class A>
Real logit_of(const A& a, Real x) {
  const Real scaled = Real(a.logit_scale) * x;
  return a.softcap > 0 ? Real(a.softcap) * std::tanh(scaled / Real(a.softcap)) : scaled;
}

template <class A>
int64_t count_valid(const A& a) {
  int64_t count = 0;
  for (int64_t r = 0; r < element_count(a.target); ++r) count += Indices(a.target)[r] != a.ignore_index;
  return count;
}

// 1 / normalizer; 0 if there is nothing to divide by; 1 where no mean is taken.
template <class Real, class A>
Real inverse_normalizer(const A& a) {
  if (a.reduction != TC_REDUCTION_MEAN) return 1;
  Real normalizer = 0;
  for (int64_t r = 0; r < element_count(a.target); ++r)
    if (const int64_t t = Indices(a.target)[r]; t != a.ignore_index) normalizer += weight_of<Real>(a, t);
  if (given(a.normalizer)) normalizer = *static_cast<const Real*>(a.normalizer.data);
  return normalizer == 0 ? Real(0) : 1 / normalizer;
}

template <class Real>
struct RowStats {
  Real max, log_sum, mean_shifted;  // of u, of exp(u - max), of u - max
};
template <class Real, class A>
RowStats<Real> stats_of(const A& a, const Real* x, int64_t classes) {
  Real max = -std::numeric_limits<Real>::infinity(), sum = 0, shifted = 0;
  for (int64_t c = 0; c < classes; ++c)
    if (const Real u = logit_of(a, x[c]); std::isnan(u) || u > max) max = u;
  for (int64_t c = 0; c < classes; ++c) {
    sum += std::exp(logit_of(a, x[c]) - max);
    shifted += logit_of(a, x[c]) - max;
  }
  return {max, std::log(sum), shifted / Real(classes)};
}

// `scale` is dloss / normalizer.
template <class Real, class A>
void gradient_row(const A& a, const Real* x, int64_t classes, int64_t target, Real max, Real log_sum, Real scale,
                  Real* dlogits) {
  if (target == a.ignore_index) {
    for (int64_t c = 0; c < classes; ++c) dlogits[c] = 0;
    return;
  }
  const Real s = Real(a.label_smoothing), kept = weight_of<Real>(a, target) * (1 - s);
  const Real of_p = kept + s + 2 * Real(a.z_loss) * (max + log_sum);
  for (int64_t c = 0; c < classes; ++c) {
    const Real u = logit_of(a, x[c]), ratio = a.softcap > 0 ? u / Real(a.softcap) : Real(0);
    const Real du = of_p * std::exp((u - max) - log_sum) - s / Real(classes) - (c == target ? kept : Real(0));
    dlogits[c] = scale * du * Real(a.logit_scale) * (1 - ratio * ratio);
  }
}

}  // namespace

template <class Real>
void forward_oracle(const tcx_cross_entropy_forward_args& a) {
  const auto x = rows_of<const Real>(a.logits);
  const auto dloss = values_of<const Real>(a.dloss);
  const auto row_max = values_of<Real>(a.row_max), row_log_sum = values_of<Real>(a.row_log_sum);
  const auto loss = values_of<Real>(a.loss), z_loss_part = values_of<Real>(a.z_loss_part);
  const auto dlogits = rows_of<Real>(a.dlogits);
  const Real s = Real(a.label_smoothing), scale = inverse_normalizer<Real>(a);
  const bool reduced = a.reduction != TC_REDUCTION_NONE;
  Real total = 0, total_z = 0;
  for (int64_t r = 0; r < x.count; ++r) {
    const int64_t t = Indices(a.target)[r];
    const bool valid = t != a.ignore_index;
    const RowStats<Real> row = valid ? stats_of(a, x[r], x.cols) : RowStats<Real>{};
    const Real lse = row.max + row.log_sum, z = Real(a.z_loss) * lse * lse;
    Real value = 0;
    if (valid) {
      value = weight_of<Real>(a, t) * (1 - s) * ((row.max - logit_of(a, x[r][t])) + row.log_sum) + z;
      if (s > 0) value += s * (row.log_sum - row.mean_shifted);
    }
    total += value;
    total_z += z;
    if (!reduced) *loss[r] = value;
    if (!reduced && z_loss_part.data) *z_loss_part[r] = z;
    if (row_max.data) *row_max[r] = row.max;
    if (row_log_sum.data) *row_log_sum[r] = row.log_sum;
    if (a.fuse_backward)
      gradient_row(a, x[r], x.cols, t, row.max, row.log_sum, scale * (dloss.data ? *dloss[r] : Real(1)), dlogits[r]);
  }
  if (reduced) *loss[0] = total * scale;
  if (reduced && z_loss_part.data) *z_loss_part[0] = total_z * scale;
  if (given(a.valid_count)) *static_cast<int64_t*>(a.valid_count.data) = count_valid(a);
}

template <class Real>
void backward_oracle(const tcx_cross_entropy_backward_args& a) {
  const auto x = rows_of<const Real>(a.logits);
  const auto dloss = values_of<const Real>(a.dloss);
  const auto row_max = values_of<const Real>(a.row_max), row_log_sum = values_of<const Real>(a.row_log_sum);
  const auto dlogits = rows_of<Real>(a.dlogits);
  const Real scale = inverse_normalizer<Real>(a);
  for (int64_t r = 0; r < x.count; ++r)
    gradient_row(a, x[r], x.cols, Indices(a.target)[r], *row_max[r], *row_log_sum[r], scale * *dloss[r], dlogits[r]);
}

template void forward_oracle<double>(const tcx_cross_entropy_forward_args&);
template void forward_oracle<float>(const tcx_cross_entropy_forward_args&);
template void backward_oracle<double>(const tcx_cross_entropy_backward_args&);
template void backward_oracle<float>(const tcx_cross_entropy_backward_args&);

}  // namespace tc::ops::cross_entropy
