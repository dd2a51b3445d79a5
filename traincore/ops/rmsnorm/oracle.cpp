// The definition of RMSNorm: plain loops, shares nothing with the kernels. Real is double (the truth) or float (the
// honest formula that the error budget is measured with); every float tensor of a call has that type.
#include <cmath>

#include "traincore/core/view.h"
#include "traincore/ops/rmsnorm/rmsnorm.h"

namespace tc::ops::rmsnorm {
namespace {

// Rounding to a 16-bit dtype; to f32 or wider it is left to the comparison.
template <class Real>
Real rounded(int32_t dtype, Real value) {
  if (dtype == TC_DTYPE_BF16) return static_cast<Real>(static_cast<float>(bf16(static_cast<float>(value))));
  if (dtype == TC_DTYPE_F16) return static_cast<Real>(static_cast<float>(f16(static_cast<float>(value))));
  return value;
}

// Where rounding is before_weight, the dtype of the row v and of the normalised row.
template <class A>
int32_t row_dtype(const A& stored) {
  if (stored.rounding != TC_ROUND_BEFORE_WEIGHT) return TC_DTYPE_F64;
  return given(stored.residual) ? promoted_dtype(stored.x.dtype, stored.residual.dtype) : stored.x.dtype;
}

}  // namespace

template <class Real>
void forward_oracle(const tcx_rmsnorm_forward_args& a, const tcx_rmsnorm_forward_args& stored) {
  const int32_t row = row_dtype(stored);
  const auto x = rows_of<const Real>(a.x), residual = rows_of<const Real>(a.residual);
  const auto y = rows_of<Real>(a.y), residual_out = rows_of<Real>(a.residual_out);
  const auto rstd = values_of<Real>(a.rstd);
  const auto* weight = static_cast<const Real*>(a.weight.data);
  for (int64_t r = 0; r < x.count; ++r) {
    const auto v = [&](int64_t c) { return rounded(row, x[r][c] + (residual.data ? residual[r][c] : Real(0))); };
    Real sum = 0;
    for (int64_t c = 0; c < x.cols; ++c) sum += v(c) * v(c);
    const Real s = Real(1) / std::sqrt(sum / Real(x.cols) + Real(a.eps));
    for (int64_t c = 0; c < x.cols; ++c) {
      const Real value = v(c);
      y[r][c] = rounded(row, value * s) * (weight ? Real(a.weight_offset) + weight[c] : Real(1));
      if (residual_out.data) residual_out[r][c] = value;
    }
    if (rstd.data) *rstd[r] = s;
  }
}

template <class Real>
void backward_oracle(const tcx_rmsnorm_backward_args& a, const tcx_rmsnorm_backward_args& stored) {
  const int32_t row = row_dtype(stored);
  const auto dy = rows_of<const Real>(a.dy), x = rows_of<const Real>(a.x), residual = rows_of<const Real>(a.residual);
  const auto dresidual_out = rows_of<const Real>(a.dresidual_out);
  const auto rstd = values_of<const Real>(a.rstd);
  const auto dx = rows_of<Real>(a.dx);
  const auto* weight = static_cast<const Real*>(a.weight.data);
  auto* dweight = static_cast<Real*>(a.dweight.data);
  if (dweight && !a.accumulate)
    for (int64_t c = 0; c < dy.cols; ++c) dweight[c] = 0;
  for (int64_t r = 0; r < dy.count; ++r) {
    const Real s = *rstd[r];
    const auto v = [&](int64_t c) { return rounded(row, x[r][c] + (residual.data ? residual[r][c] : Real(0))); };
    const auto gw = [&](int64_t c) { return dy[r][c] * (weight ? Real(a.weight_offset) + weight[c] : Real(1)); };
    Real dot = 0;
    for (int64_t c = 0; c < dy.cols; ++c) dot += gw(c) * v(c);
    const Real mean = dot / Real(dy.cols);
    for (int64_t c = 0; c < dy.cols; ++c) {
      if (dweight) dweight[c] += dy[r][c] * rounded(row, v(c) * s);
      if (!dx.data) continue;
      const Real arriving = dresidual_out.data ? dresidual_out[r][c] : Real(0);
      dx[r][c] = s * (gw(c) - v(c) * s * s * mean) + arriving;
    }
  }
}

template void forward_oracle<double>(const tcx_rmsnorm_forward_args&, const tcx_rmsnorm_forward_args&);
template void forward_oracle<float>(const tcx_rmsnorm_forward_args&, const tcx_rmsnorm_forward_args&);
template void backward_oracle<double>(const tcx_rmsnorm_backward_args&, const tcx_rmsnorm_backward_args&);
template void backward_oracle<float>(const tcx_rmsnorm_backward_args&, const tcx_rmsnorm_backward_args&);

}  // namespace tc::ops::rmsnorm
