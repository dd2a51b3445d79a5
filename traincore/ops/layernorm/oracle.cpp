// The definition of LayerNorm: plain loops, shares nothing with the kernels. Real is double (the truth) or float (the
// honest formula that the error budget is measured with); every float tensor of a call has that type.
#include <cmath>

#include "traincore/core/view.h"
#include "traincore/ops/layernorm/layernorm.h"

namespace tc::ops::layernorm {

template <class Real>
void forward_oracle(const tcx_layernorm_forward_args& a) {
  const auto x = rows_of<const Real>(a.x), residual = rows_of<const Real>(a.residual);
  const auto y = rows_of<Real>(a.y), residual_out = rows_of<Real>(a.residual_out);
  const auto saved_mean = values_of<Real>(a.mean), saved_rstd = values_of<Real>(a.rstd);
  const auto* weight = static_cast<const Real*>(a.weight.data);
  const auto* bias = static_cast<const Real*>(a.bias.data);
  for (int64_t r = 0; r < x.count; ++r) {
    const auto v = [&](int64_t c) { return x[r][c] + (residual.data ? residual[r][c] : Real(0)); };
    Real sum = 0, squares = 0;
    for (int64_t c = 0; c < x.cols; ++c) sum += v(c);
    const Real mean = sum / Real(x.cols);
    for (int64_t c = 0; c < x.cols; ++c) squares += (v(c) - mean) * (v(c) - mean);
    const Real rstd = Real(1) / std::sqrt(squares / Real(x.cols) + Real(a.eps));
    for (int64_t c = 0; c < x.cols; ++c) {
      const Real value = v(c);
      y[r][c] = (value - mean) * rstd * (weight ? weight[c] : Real(1)) + (bias ? bias[c] : Real(0));
      if (residual_out.data) residual_out[r][c] = value;
    }
    if (saved_mean.data) *saved_mean[r] = mean;
    if (saved_rstd.data) *saved_rstd[r] = rstd;
  }
}

template <class Real>
void backward_oracle(const tcx_layernorm_backward_args& a) {
  const auto dy = rows_of<const Real>(a.dy), x = rows_of<const Real>(a.x), residual = rows_of<const Real>(a.residual);
  const auto dresidual_out = rows_of<const Real>(a.dresidual_out);
  const auto saved_mean = values_of<const Real>(a.mean), saved_rstd = values_of<const Real>(a.rstd);
  const auto dx = rows_of<Real>(a.dx);
  const auto* weight = static_cast<const Real*>(a.weight.data);
  auto* dweight = static_cast<Real*>(a.dweight.data);
  auto* dbias = static_cast<Real*>(a.dbias.data);
  for (int64_t c = 0; c < dy.cols && !a.accumulate; ++c) {
    if (dweight) dweight[c] = 0;
    if (dbias) dbias[c] = 0;
  }
  for (int64_t r = 0; r < dy.count; ++r) {
    const Real rstd = *saved_rstd[r];
    const auto centred = [&](int64_t c) {
      return x[r][c] + (residual.data ? residual[r][c] : Real(0)) - *saved_mean[r];
    };
    const auto gw = [&](int64_t c) { return dy[r][c] * (weight ? weight[c] : Real(1)); };
    Real sum = 0, dot = 0;
    for (int64_t c = 0; c < dy.cols; ++c) sum += gw(c), dot += gw(c) * centred(c);
    const Real mean_gw = sum / Real(dy.cols), mean_product = dot / Real(dy.cols);
    for (int64_t c = 0; c < dy.cols; ++c) {
      if (dweight) dweight[c] += dy[r][c] * centred(c) * rstd;
      if (dbias) dbias[c] += dy[r][c];
      if (!dx.data) continue;
      const Real arriving = dresidual_out.data ? dresidual_out[r][c] : Real(0);
      dx[r][c] = rstd * (gw(c) - mean_gw - centred(c) * rstd * rstd * mean_product) + arriving;
    }
  }
}

template void forward_oracle<double>(const tcx_layernorm_forward_args&);
template void forward_oracle<float>(const tcx_layernorm_forward_args&);
template void backward_oracle<double>(const tcx_layernorm_backward_args&);
template void backward_oracle<float>(const tcx_layernorm_backward_args&);

}  // namespace tc::ops::layernorm
