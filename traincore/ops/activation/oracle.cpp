// The definition of the activations: plain loops, shares nothing with the kernels. Real is double (the truth) or float
// (the honest formula that the error budget is measured with); every float tensor of a call has that type.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "traincore/core/view.h"
#include "traincore/ops/activation/activation.h"

namespace tc::ops::activation {
namespace {

template <class Real>
struct Point {
  Real value, slope;
};

template <class Real>
Real sigmoid(Real z) {
  return 1 / (1 + std::exp(-z));
}

// x s(z): the product rule, with s' = s (1 - s), and 1 - s(z) = s(-z).
template <class Real>
Point<Real> gated_by_sigmoid(Real x, Real z, Real dz) {
  const Real s = sigmoid(z);
  return {x * s, s + x * s * sigmoid(-z) * dz};
}

// Far out every kind is 0 or its asymptote to more than double precision, while x^3 and 0 x inf are not numbers.
template <class Real>
Point<Real> beyond_range(int32_t kind, Real x) {
  switch (kind) {
    case TC_ACTIVATION_SIGMOID:
      return {Real(x > 0), 0};
    case TC_ACTIVATION_TANH:
      return {x > 0 ? Real(1) : Real(-1), 0};
    case TC_ACTIVATION_RELU2:
      if (std::isinf(x) || x < 0) return {x > 0 ? x : 0, x > 0 ? x : 0};
      return {x * x, std::min(2 * x, Real(0x1.fep127))};  // the slope stays finite in f32 and bf16
    default:
      return {x > 0 ? x : 0, Real(x > 0)};
  }
}

template <class Real>
Point<Real> activate(int32_t kind, Real x) {
  if (std::abs(x) > 1000) return beyond_range(kind, x);
  const Real root = std::sqrt(2 / std::numbers::pi_v<Real>);
  switch (kind) {
    case TC_ACTIVATION_SILU:
      return gated_by_sigmoid(x, x, Real(1));
    case TC_ACTIVATION_QUICK_GELU:
      return gated_by_sigmoid(x, Real(1.702) * x, Real(1.702));
    case TC_ACTIVATION_SIGMOID:
      return {sigmoid(x), sigmoid(x) * sigmoid(-x)};
    case TC_ACTIVATION_GELU_TANH: {
      const Real t = std::tanh(root * (x + Real(0.044715) * x * x * x));
      const Real slope = root * (1 + 3 * Real(0.044715) * x * x);
      return {x / 2 * (1 + t), (1 + t) / 2 + x / 2 * (1 - t * t) * slope};
    }
    case TC_ACTIVATION_GELU_ERF: {
      const Real cdf = (1 + std::erf(x / std::numbers::sqrt2_v<Real>)) / 2;
      return {x * cdf, cdf + x * std::exp(-x * x / 2) * root / 2};
    }
    case TC_ACTIVATION_RELU:
      return {x <= 0 ? 0 : x, Real(!(x <= 0))};
    case TC_ACTIVATION_RELU2:
      return {x <= 0 ? 0 : x * x, x <= 0 ? 0 : 2 * x};
    default:
      return {std::tanh(x), 1 - std::tanh(x) * std::tanh(x)};
  }
}

}  // namespace

template <class Real>
void forward_oracle(const tcx_activation_forward_args& a) {
  const auto gate = rows_of<const Real>(a.gate), up = rows_of<const Real>(a.up);
  const auto y = rows_of<Real>(a.y);
  for (int64_t r = 0; r < y.count; ++r)
    for (int64_t c = 0; c < y.cols; ++c) y[r][c] = activate(a.kind, gate[r][c]).value * (up.data ? up[r][c] : Real(1));
}

template <class Real>
void backward_oracle(const tcx_activation_backward_args& a) {
  const auto dy = rows_of<const Real>(a.dy), gate = rows_of<const Real>(a.gate), up = rows_of<const Real>(a.up);
  const auto dgate = rows_of<Real>(a.dgate), dup = rows_of<Real>(a.dup), y = rows_of<Real>(a.y);
  for (int64_t r = 0; r < dy.count; ++r)
    for (int64_t c = 0; c < dy.cols; ++c) {
      const Point<Real> act = activate(a.kind, gate[r][c]);
      const Real factor = up.data ? up[r][c] : Real(1), g = dy[r][c];
      if (dgate.data) dgate[r][c] = g * factor * act.slope;
      if (dup.data) dup[r][c] = g * act.value;
      if (y.data) y[r][c] = act.value * factor;
    }
}

template void forward_oracle<double>(const tcx_activation_forward_args&);
template void forward_oracle<float>(const tcx_activation_forward_args&);
template void backward_oracle<double>(const tcx_activation_backward_args&);
template void backward_oracle<float>(const tcx_activation_backward_args&);

}  // namespace tc::ops::activation
