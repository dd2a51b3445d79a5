// The definition of fill. Real is double (the truth) or float; every float tensor of a call has that type.
#include "traincore/core/view.h"
#include "traincore/ops/fill/fill.h"

namespace tc::ops::fill {

template <class Real>
void oracle(const tcx_fill_args& a) {
  const auto y = values_of<Real>(a.y);
  for (int64_t i = 0; i < y.count; ++i) *y[i] = Real(a.value);
}

template void oracle<double>(const tcx_fill_args&);
template void oracle<float>(const tcx_fill_args&);

}  // namespace tc::ops::fill
