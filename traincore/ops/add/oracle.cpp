// The definition of add. Real is double (the truth) or float; every float tensor of a call has that type.
#include "traincore/core/view.h"
#include "traincore/ops/add/add.h"

namespace tc::ops::add {

template <class Real>
void oracle(const tcx_add_args& args) {
  const auto a = values_of<const Real>(args.a), b = values_of<const Real>(args.b);
  const auto y = values_of<Real>(args.y);
  for (int64_t i = 0; i < y.count; ++i) *y[i] = Real(args.alpha) * *a[i] + Real(args.beta) * *b[i];
}

template void oracle<double>(const tcx_add_args&);
template void oracle<float>(const tcx_add_args&);

}  // namespace tc::ops::add
