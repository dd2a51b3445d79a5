// The definition of softmax and log-softmax: plain loops, shares nothing with the kernels. Real is double (the truth)
// or float (the honest formula that the error budget is measured with); every float tensor of a call has that type.
#include <cmath>
#include <limits>

#include "traincore/core/view.h"
#include "traincore/ops/softmax/softmax.h"

namespace tc::ops::softmax {
namespace {

template <class Real>
constexpr Real kInfinity = std::numeric_limits<Real>::infinity();

template <class Real>
struct Stats {
  Real max, sum;  // of x; of exp(x - max)
  bool masked;    // every element is -inf
};
template <class Real>
Stats<Real> stats_of(const Real* x, int64_t cols) {
  Real max = -kInfinity<Real>, sum = 0;
  for (int64_t c = 0; c < cols; ++c)
    if (std::isnan(x[c]) || x[c] > max) max = x[c];
  for (int64_t c = 0; c < cols; ++c) sum += std::exp(x[c] - max);
  return {max, sum, max == -kInfinity<Real>};
}

}  // namespace

template <class Real>
void softmax_forward_oracle(const tcx_softmax_forward_args& a) {
  const auto x = rows_of<const Real>(a.x);
  const auto y = rows_of<Real>(a.y);
  for (int64_t r = 0; r < x.count; ++r) {
    const Stats<Real> s = stats_of(x[r], x.cols);
    for (int64_t c = 0; c < x.cols; ++c) y[r][c] = s.masked ? Real(0) : std::exp(x[r][c] - s.max) / s.sum;
  }
}

template <class Real>
void log_softmax_forward_oracle(const tcx_log_softmax_forward_args& a) {
  const auto x = rows_of<const Real>(a.x);
  const auto y = rows_of<Real>(a.y);
  for (int64_t r = 0; r < x.count; ++r) {
    const Stats<Real> s = stats_of(x[r], x.cols);
    for (int64_t c = 0; c < x.cols; ++c) y[r][c] = s.masked ? -kInfinity<Real> : (x[r][c] - s.max) - std::log(s.sum);
  }
}

template <class Real>
void softmax_backward_oracle(const tcx_softmax_backward_args& a) {
  const auto y = rows_of<const Real>(a.y), dy = rows_of<const Real>(a.dy);
  const auto dx = rows_of<Real>(a.dx);
  for (int64_t r = 0; r < y.count; ++r) {
    Real dot = 0;
    for (int64_t c = 0; c < y.cols; ++c) dot += y[r][c] * dy[r][c];
    for (int64_t c = 0; c < y.cols; ++c) dx[r][c] = y[r][c] * (dy[r][c] - dot);
  }
}

template <class Real>
void log_softmax_backward_oracle(const tcx_log_softmax_backward_args& a) {
  const auto y = rows_of<const Real>(a.y), dy = rows_of<const Real>(a.dy);
  const auto dx = rows_of<Real>(a.dx);
  for (int64_t r = 0; r < y.count; ++r) {
    Real total = 0;
    bool masked = true;
    for (int64_t c = 0; c < y.cols; ++c) total += dy[r][c];
    for (int64_t c = 0; c < y.cols; ++c) masked = masked && y[r][c] == -kInfinity<Real>;
    for (int64_t c = 0; c < y.cols; ++c) dx[r][c] = masked ? Real(0) : dy[r][c] - std::exp(y[r][c]) * total;
  }
}

template void softmax_forward_oracle<double>(const tcx_softmax_forward_args&);
template void softmax_forward_oracle<float>(const tcx_softmax_forward_args&);
template void softmax_backward_oracle<double>(const tcx_softmax_backward_args&);
template void softmax_backward_oracle<float>(const tcx_softmax_backward_args&);
template void log_softmax_forward_oracle<double>(const tcx_log_softmax_forward_args&);
template void log_softmax_forward_oracle<float>(const tcx_log_softmax_forward_args&);
template void log_softmax_backward_oracle<double>(const tcx_log_softmax_backward_args&);
template void log_softmax_backward_oracle<float>(const tcx_log_softmax_backward_args&);

}  // namespace tc::ops::softmax
