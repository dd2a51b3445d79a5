// The definition of cast. Real is double (the truth) or float; every float tensor of a call has that type.
#include "traincore/core/view.h"
#include "traincore/ops/cast/cast.h"

namespace tc::ops::cast {

template <class Real>
void oracle(const tcx_cast_args& a) {
  const auto x = values_of<const Real>(a.x);
  const auto y = values_of<Real>(a.y);
  for (int64_t i = 0; i < x.count; ++i) *y[i] = *x[i];
}

template void oracle<double>(const tcx_cast_args&);
template void oracle<float>(const tcx_cast_args&);

}  // namespace tc::ops::cast
