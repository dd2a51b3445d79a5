// The definition of @op@: plain loops, shares nothing with the kernels. Real is double (the truth) or float (the honest
// formula that the error budget is measured with); every float tensor of a call has that type.
#include "traincore/core/view.h"
#include "traincore/ops/@op@/@op@.h"

namespace tc::ops::@op@ {

template <class Real>
void forward_oracle(const tcx_@op@_forward_args& a) {
  const auto x = rows_of<const Real>(a.x);
  const auto y = rows_of<Real>(a.y);
  for (int64_t r = 0; r < x.count; ++r)
    for (int64_t c = 0; c < x.cols; ++c) y[r][c] = x[r][c] * x[r][c];
}

template <class Real>
void backward_oracle(const tcx_@op@_backward_args& a) {
  const auto dy = rows_of<const Real>(a.dy), x = rows_of<const Real>(a.x);
  const auto dx = rows_of<Real>(a.dx);
  for (int64_t r = 0; r < dy.count; ++r)
    for (int64_t c = 0; c < dy.cols; ++c) dx[r][c] = 2 * x[r][c] * dy[r][c];
}

template void forward_oracle<double>(const tcx_@op@_forward_args&);
template void forward_oracle<float>(const tcx_@op@_forward_args&);
template void backward_oracle<double>(const tcx_@op@_backward_args&);
template void backward_oracle<float>(const tcx_@op@_backward_args&);

}  // namespace tc::ops::@op@
