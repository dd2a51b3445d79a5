// The definition of norm_gemv: plain loops, shares nothing with the kernels. Real is double (the truth) or float (the
// honest formula that the error budget is measured with); every float tensor of a call has that type.
#include <cmath>
#include <vector>

#include "traincore/core/view.h"
#include "traincore/ops/norm_gemv/norm_gemv.h"

namespace tc::ops::norm_gemv {
namespace {

template <class Real>
void normalise(const tcx_norm_gemv_args& a, const Real* x, std::vector<Real>& v) {
  const auto* weight = static_cast<const Real*>(a.weight.data);
  const auto* bias = static_cast<const Real*>(a.bias.data);
  const Real k = Real(v.size());
  Real mean = 0, squares = 0;
  if (a.norm == TC_NORM_LAYER) {
    for (size_t i = 0; i < v.size(); ++i) mean += x[i];
    mean /= k;
  }
  for (size_t i = 0; i < v.size(); ++i) squares += (x[i] - mean) * (x[i] - mean);
  const Real rstd = Real(1) / std::sqrt(squares / k + Real(a.eps));
  for (size_t i = 0; i < v.size(); ++i) {
    const Real gain = weight ? Real(a.weight_offset) + weight[i] : Real(1);
    v[i] = (x[i] - mean) * rstd * gain + (bias ? bias[i] : Real(0));
  }
}

}  // namespace

template <class Real>
void oracle(const tcx_norm_gemv_args& a) {
  const auto x = rows_of<const Real>(a.x);
  std::vector<Real> v(static_cast<size_t>(x.cols));
  for (int64_t r = 0; r < x.count; ++r) {
    normalise(a, x[r], v);
    for (const auto& [matrix, output] : {std::pair{&a.w, &a.y}, {&a.w2, &a.y2}, {&a.w3, &a.y3}}) {
      if (!given(*matrix)) continue;
      const auto w = rows_of<const Real>(*matrix);
      const auto y = rows_of<Real>(*output);
      for (int64_t n = 0; n < y.cols; ++n) {
        Real sum = 0;
        for (int64_t k = 0; k < x.cols; ++k) sum += v[static_cast<size_t>(k)] * (a.transpose_w ? w[n][k] : w[k][n]);
        y[r][n] = sum;
      }
    }
  }
}

template void oracle<double>(const tcx_norm_gemv_args&);
template void oracle<float>(const tcx_norm_gemv_args&);

}  // namespace tc::ops::norm_gemv
