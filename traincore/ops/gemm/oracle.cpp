// The definition of gemm: plain loops, shares nothing with the kernels. Real is double (the truth) or float (the honest
// formula that the error budget is measured with); every float tensor of a call has that type.
#include <cmath>
#include <numbers>
#include <vector>

#include "traincore/core/view.h"
#include "traincore/ops/gemm/gemm.h"

namespace tc::ops::gemm {
namespace {

template <class Real>
Real sigmoid(Real x) {
  return Real(1) / (Real(1) + std::exp(-x));
}

template <class Real>
struct ValueAndSlope {
  Real value, slope;
};

template <class Real>
ValueAndSlope<Real> activate(int32_t kind, Real x) {
  switch (kind) {
    case TC_ACTIVATION_SILU:
    case TC_ACTIVATION_QUICK_GELU: {
      const Real k = kind == TC_ACTIVATION_SILU ? Real(1) : Real(1.702), s = sigmoid(k * x);
      return {x * s, s + k * x * s * (1 - s)};
    }
    case TC_ACTIVATION_SIGMOID: {
      const Real s = sigmoid(x);
      return {s, s * (1 - s)};
    }
    case TC_ACTIVATION_GELU_TANH: {
      const Real scale = std::sqrt(2 / std::numbers::pi_v<Real>), cubic = Real(0.044715);
      const Real t = std::tanh(scale * (x + cubic * x * x * x));
      return {x / 2 * (1 + t), (1 + t) / 2 + x / 2 * (1 - t * t) * scale * (1 + 3 * cubic * x * x)};
    }
    case TC_ACTIVATION_GELU_ERF: {
      const Real cdf = (1 + std::erf(x / std::numbers::sqrt2_v<Real>)) / 2;
      const Real density = std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi_v<Real>);
      return {x * cdf, cdf + x * density};
    }
    case TC_ACTIVATION_RELU:
      return {x < 0 ? 0 : x, Real(x > 0)};
    case TC_ACTIVATION_RELU2:
      return {x < 0 ? 0 : x * x, x > 0 ? 2 * x : 0};
    case TC_ACTIVATION_TANH:
      return {std::tanh(x), 1 - std::tanh(x) * std::tanh(x)};
    default:
      return {x, Real(1)};
  }
}

// The matrices of a [batch..., rows, cols] tensor; all zero for an absent one.
template <class Real>
struct Matrices {
  explicit Matrices(const tc_tensor& t) : data(rows_of<Real>(t)) {
    for (int i = 0; i < t.rank - 2; ++i) batch *= t.shape[i];
    if (t.rank >= 2) rows = t.shape[t.rank - 2], cols = t.shape[t.rank - 1];
  }
  Real& operator()(int64_t b, int64_t i, int64_t j, bool transposed = false) const {
    return transposed ? data[b * rows + j][i] : data[b * rows + i][j];
  }
  Rows<Real> data;
  int64_t batch = 1, rows = 0, cols = 0;
};

}  // namespace

// dC activation'(z), [batch, m, n].
template <class Real>
std::vector<Real> gradient_of_z(const tcx_gemm_backward_args& args) {
  const Matrices<const Real> dc(args.dc), z(args.preactivation);
  std::vector<Real> dz;
  for (int64_t b = 0; b < dc.batch; ++b)
    for (int64_t i = 0; i < dc.rows; ++i)
      for (int64_t j = 0; j < dc.cols; ++j)
        dz.push_back(args.activation ? dc(b, i, j) * activate(args.activation, z(b, i, j)).slope : dc(b, i, j));
  return dz;
}

template <class Real>
void forward_oracle(const tcx_gemm_forward_args& args) {
  const Matrices<const Real> a(args.a), b(args.b);
  const Matrices<Real> c(args.c), preactivation(args.preactivation);
  const auto* bias = static_cast<const Real*>(args.bias.data);
  const int64_t k = args.transpose_a ? a.rows : a.cols;
  for (int64_t batch = 0; batch < c.batch; ++batch)
    for (int64_t i = 0; i < c.rows; ++i)
      for (int64_t j = 0; j < c.cols; ++j) {
        Real sum = 0;
        for (int64_t l = 0; l < k; ++l) sum += a(batch, i, l, args.transpose_a) * b(batch, l, j, args.transpose_b);
        Real z = Real(args.alpha) * sum;
        if (args.beta != 0) z += Real(args.beta) * c(batch, i, j);
        if (bias) z += bias[j];
        c(batch, i, j) = activate(args.activation, z).value;
        if (preactivation.rows) preactivation(batch, i, j) = z;
      }
}

template <class Real>
void backward_oracle(const tcx_gemm_backward_args& args) {
  const Matrices<const Real> a(args.a), b(args.b), dc(args.dc);
  const Matrices<Real> da(args.da), db(args.db);
  auto* dbias = static_cast<Real*>(args.dbias.data);
  const int64_t m = dc.rows, n = dc.cols;
  const Real alpha = Real(args.alpha);
  const std::vector<Real> all = gradient_of_z<Real>(args);
  const auto dz = [&](int64_t batch, int64_t i, int64_t j) {
    return all[static_cast<size_t>((batch * m + i) * n + j)];
  };
  for (int64_t batch = 0; batch < da.batch; ++batch)
    for (int64_t i = 0; i < m; ++i)
      for (int64_t l = 0; l < (args.transpose_a ? da.rows : da.cols); ++l) {
        Real sum = 0;
        for (int64_t j = 0; j < n; ++j) sum += dz(batch, i, j) * b(batch, l, j, args.transpose_b);
        da(batch, i, l, args.transpose_a) = alpha * sum;
      }
  for (int64_t batch = 0; batch < db.batch; ++batch)
    for (int64_t l = 0; l < (args.transpose_b ? db.cols : db.rows); ++l)
      for (int64_t j = 0; j < n; ++j) {
        Real sum = 0;
        for (int64_t i = 0; i < m; ++i) sum += a(batch, i, l, args.transpose_a) * dz(batch, i, j);
        Real& out = db(batch, l, j, args.transpose_b);
        out = (args.accumulate ? out : Real(0)) + alpha * sum;
      }
  for (int64_t j = 0; dbias && j < n; ++j) {
    Real sum = 0;
    for (int64_t row = 0; row < dc.batch * m; ++row) sum += dz(0, row, j);
    dbias[j] = (args.accumulate ? dbias[j] : Real(0)) + sum;
  }
}

template std::vector<double> gradient_of_z<double>(const tcx_gemm_backward_args&);
template void forward_oracle<double>(const tcx_gemm_forward_args&);
template void forward_oracle<float>(const tcx_gemm_forward_args&);
template void backward_oracle<double>(const tcx_gemm_backward_args&);
template void backward_oracle<float>(const tcx_gemm_backward_args&);

}  // namespace tc::ops::gemm
