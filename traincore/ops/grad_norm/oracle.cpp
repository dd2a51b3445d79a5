// The definition of grad_norm and clip. Real is double (the truth) or float; every float tensor of a call has that
// type.
#include <cmath>

#include "traincore/core/view.h"
#include "traincore/ops/grad_norm/grad_norm.h"

namespace tc::ops::grad_norm {

template <class Real>
void norm_oracle(const tcx_grad_norm_args& a) {
  Real squares = 0;
  int64_t nonfinite = 0;
  for (int64_t t = 0; t < a.grads_count; ++t)
    for (int64_t i = 0; i < element_count(a.grads[t]); ++i) {
      const Real g = static_cast<const Real*>(a.grads[t].data)[i];
      squares += g * g;
      if (!std::isfinite(g)) ++nonfinite;
    }
  const Real norm = Real(a.scale) * std::sqrt(squares), ratio = Real(a.max_norm) / (norm + Real(1e-6));
  *static_cast<Real*>(a.norm.data) = norm;
  if (given(a.clip)) *static_cast<Real*>(a.clip.data) = Real(a.scale) * (ratio >= 1 ? Real(1) : ratio);
  if (!given(a.nonfinite)) return;
  if (a.nonfinite.dtype == TC_DTYPE_I64)
    *static_cast<int64_t*>(a.nonfinite.data) = nonfinite;
  else
    *static_cast<Real*>(a.nonfinite.data) = Real(nonfinite);
}

template <class Real>
void clip_oracle(const tcx_clip_args& a) {
  const Real factor = *static_cast<const Real*>(a.clip.data);
  for (int64_t t = 0; t < a.grads_count; ++t)
    for (int64_t i = 0; i < element_count(a.grads[t]); ++i) static_cast<Real*>(a.grads[t].data)[i] *= factor;
}

template void norm_oracle<double>(const tcx_grad_norm_args&);
template void norm_oracle<float>(const tcx_grad_norm_args&);
template void clip_oracle<double>(const tcx_clip_args&);
template void clip_oracle<float>(const tcx_clip_args&);

}  // namespace tc::ops::grad_norm
