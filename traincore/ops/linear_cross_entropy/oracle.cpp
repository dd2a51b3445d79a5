// The definition of linear cross entropy: plain loops, shares nothing with the kernels. Real is double (the truth) or
// float (the honest formula that the error budget is measured with); every float tensor of a call has that type.
#include <cmath>
#include <limits>
#include <vector>

#include "traincore/core/view.h"
#include "traincore/ops/linear_cross_entropy/linear_cross_entropy.h"

namespace tc::ops::linear_cross_entropy {
namespace {

template <class Real, class A>
Real class_weight_of(const A& a, int64_t target) {
  return given(a.class_weight) ? static_cast<const Real*>(a.class_weight.data)[target] : Real(1);
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
    if (const int64_t t = Indices(a.target)[r]; t != a.ignore_index) normalizer += class_weight_of<Real>(a, t);
  if (given(a.normalizer)) normalizer = *static_cast<const Real*>(a.normalizer.data);
  return normalizer == 0 ? Real(0) : 1 / normalizer;
}

// u of one row, and what becomes of it.
template <class Real>
struct Logits {
  std::vector<Real> u;
  Real max = -std::numeric_limits<Real>::infinity(), log_sum = 0, mean_shifted = 0;  // mean of u - max

  template <class A>
  Logits(const A& a, int64_t row) : u(static_cast<size_t>(a.weight.shape[0])) {
    const Real* const h = rows_of<const Real>(a.hidden)[row];
    const auto weight = rows_of<const Real>(a.weight);
    for (size_t c = 0; c < u.size(); ++c) {
      Real x = 0;
      for (int64_t k = 0; k < weight.cols; ++k) x += h[k] * weight[static_cast<int64_t>(c)][k];
      if (given(a.bias)) x += static_cast<const Real*>(a.bias.data)[c];
      const Real scaled = Real(a.logit_scale) * x;
      u[c] = a.softcap > 0 ? Real(a.softcap) * std::tanh(scaled / Real(a.softcap)) : scaled;
      if (std::isnan(u[c]) || u[c] > max) max = u[c];
    }
    Real sum = 0, shifted = 0;
    for (const Real v : u) sum += std::exp(v - max), shifted += v - max;
    log_sum = std::log(sum);
    mean_shifted = shifted / Real(u.size());
  }
};

// dx of a valid row; `scale` is dloss / normalizer.
template <class Real, class A>
std::vector<Real> dlogits_of(const A& a, const std::vector<Real>& u, int64_t target, Real max, Real log_sum,
                             Real scale) {
  const Real s = Real(a.label_smoothing), kept = class_weight_of<Real>(a, target) * (1 - s);
  const Real of_p = kept + s + 2 * Real(a.z_loss) * (max + log_sum);
  std::vector<Real> dx(u.size());
  for (size_t c = 0; c < u.size(); ++c) {
    const Real ratio = a.softcap > 0 ? u[c] / Real(a.softcap) : Real(0);
    const Real du = of_p * std::exp((u[c] - max) - log_sum) - s / Real(u.size()) -
                    (static_cast<int64_t>(c) == target ? kept : Real(0));
    dx[c] = scale * du * Real(a.logit_scale) * (1 - ratio * ratio);
  }
  return dx;
}

// What one row adds to every gradient; dhidden may be hidden, so it comes last.
template <class Real, class A>
void add_row(const A& a, int64_t row, const std::vector<Real>& dx) {
  const Real* const h = rows_of<const Real>(a.hidden)[row];
  const auto weight = rows_of<const Real>(a.weight);
  const auto dweight = rows_of<Real>(a.dweight);
  std::vector<Real> dhidden(static_cast<size_t>(weight.cols));
  for (size_t c = 0; c < dx.size(); ++c) {
    const auto line = static_cast<int64_t>(c);
    for (int64_t k = 0; k < weight.cols; ++k) {
      dhidden[static_cast<size_t>(k)] += dx[c] * weight[line][k];
      if (given(a.dweight)) dweight[line][k] += dx[c] * h[k];
    }
    if (given(a.dbias)) static_cast<Real*>(a.dbias.data)[c] += dx[c];
  }
  if (given(a.dhidden)) std::copy(dhidden.begin(), dhidden.end(), rows_of<Real>(a.dhidden)[row]);
}

template <class Real, class A>
void begin_gradients(const A& a) {
  const auto clear = [](const tc_tensor& t) {
    const auto all = values_of<Real>(t);
    for (int64_t i = 0; given(t) && i < all.count; ++i) *all[i] = 0;
  };
  if (!a.accumulate) clear(a.dweight), clear(a.dbias);
  const auto dhidden = rows_of<Real>(a.dhidden);
  for (int64_t r = 0; given(a.dhidden) && r < dhidden.count; ++r)
    if (Indices(a.target)[r] == a.ignore_index) std::fill_n(dhidden[r], dhidden.cols, Real(0));
}

}  // namespace

template <class Real>
void forward_oracle(const tcx_linear_cross_entropy_forward_args& a) {
  const auto dloss = values_of<const Real>(a.dloss);
  const auto row_max = values_of<Real>(a.row_max), row_log_sum = values_of<Real>(a.row_log_sum);
  const auto loss = values_of<Real>(a.loss), z_loss_part = values_of<Real>(a.z_loss_part);
  const Real s = Real(a.label_smoothing), scale = inverse_normalizer<Real>(a);
  const bool reduced = a.reduction != TC_REDUCTION_NONE;
  Real total = 0, total_z = 0;
  begin_gradients<Real>(a);
  for (int64_t r = 0; r < element_count(a.target); ++r) {
    const int64_t t = Indices(a.target)[r];
    Real value = 0, z = 0, max = 0, log_sum = 0;
    if (t != a.ignore_index) {
      const Logits<Real> row(a, r);
      max = row.max, log_sum = row.log_sum;
      z = Real(a.z_loss) * (max + log_sum) * (max + log_sum);
      value = class_weight_of<Real>(a, t) * (1 - s) * ((max - row.u[static_cast<size_t>(t)]) + log_sum) + z;
      if (s > 0) value += s * (log_sum - row.mean_shifted);
      add_row(a, r, dlogits_of(a, row.u, t, max, log_sum, scale * (dloss.data ? *dloss[r] : Real(1))));
    }
    total += value;
    total_z += z;
    if (!reduced) *loss[r] = value;
    if (!reduced && z_loss_part.data) *z_loss_part[r] = z;
    if (row_max.data) *row_max[r] = max;
    if (row_log_sum.data) *row_log_sum[r] = log_sum;
  }
  if (reduced) *loss[0] = total * scale;
  if (reduced && z_loss_part.data) *z_loss_part[0] = total_z * scale;
  if (given(a.valid_count)) *static_cast<int64_t*>(a.valid_count.data) = count_valid(a);
}

template <class Real>
void backward_oracle(const tcx_linear_cross_entropy_backward_args& a) {
  const auto dloss = values_of<const Real>(a.dloss);
  const auto row_max = values_of<const Real>(a.row_max), row_log_sum = values_of<const Real>(a.row_log_sum);
  const Real scale = inverse_normalizer<Real>(a);
  begin_gradients<Real>(a);
  for (int64_t r = 0; r < element_count(a.target); ++r)
    if (const int64_t t = Indices(a.target)[r]; t != a.ignore_index)
      add_row(a, r, dlogits_of(a, Logits<Real>(a, r).u, t, *row_max[r], *row_log_sum[r], scale * *dloss[r]));
}

template void forward_oracle<double>(const tcx_linear_cross_entropy_forward_args&);
template void forward_oracle<float>(const tcx_linear_cross_entropy_forward_args&);
template void backward_oracle<double>(const tcx_linear_cross_entropy_backward_args&);
template void backward_oracle<float>(const tcx_linear_cross_entropy_backward_args&);

}  // namespace tc::ops::linear_cross_entropy
