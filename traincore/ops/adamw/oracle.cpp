// The definition of AdamW. Real is double (the truth) or float; every float tensor of a call has that type, so what is
// stored in bf16 is given before its rounding; only a split parameter, whose halves are integers, is an f32 to the bit.
#include <cmath>
#include <cstring>

#include "traincore/core/view.h"
#include "traincore/ops/adamw/adamw.h"

namespace tc::ops::adamw {
namespace {

template <class Real>
Real scalar(const tc_tensor& t, double otherwise) {
  if (!given(t)) return static_cast<Real>(otherwise);
  return t.dtype == TC_DTYPE_I64 ? static_cast<Real>(*static_cast<const int64_t*>(t.data))
                                 : *static_cast<const Real*>(t.data);
}

template <class Real>
Real joined(Real high, int16_t low) {
  auto value = static_cast<float>(high);
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  bits += static_cast<uint32_t>(low);
  std::memcpy(&value, &bits, sizeof bits);
  return value;
}

template <class Real>
void store_split(Real exact, Real& high, int16_t& low) {
  auto value = static_cast<float>(exact);
  uint32_t bits, high_bits;
  std::memcpy(&bits, &value, sizeof bits);
  high_bits = (bits + 0x8000u) & 0xffff0000u;
  low = static_cast<int16_t>(bits - high_bits);
  std::memcpy(&value, &high_bits, sizeof bits);
  high = value;
}

}  // namespace

template <class Real>
void oracle(const tcx_adamw_args& a) {
  if (scalar<Real>(a.found_inf_tensor, a.found_inf) != 0) return;
  const Real lr = scalar<Real>(a.lr_tensor, a.lr), clip = scalar<Real>(a.clip_tensor, a.clip);
  const double step = scalar<double>(a.step_tensor, static_cast<double>(a.step));
  const auto bias1 = Real(1 - std::pow(a.beta1, step)), bias2 = Real(1 - std::pow(a.beta2, step));
  for (int64_t t = 0; t < a.params_count; ++t) {
    auto *params = static_cast<Real*>(a.params[t].data), *m = static_cast<Real*>(a.m[t].data),
         *v = static_cast<Real*>(a.v[t].data);
    const auto* grads = static_cast<const Real*>(a.grads[t].data);
    auto* low = a.params_low ? static_cast<int16_t*>(a.params_low[t].data) : nullptr;
    auto* copy = a.copy_out ? static_cast<Real*>(a.copy_out[t].data) : nullptr;
    for (int64_t i = 0; i < element_count(a.params[t]); ++i) {
      const Real old = low ? joined(params[i], low[i]) : params[i], g = clip * grads[i];
      m[i] = Real(a.beta1) * m[i] + Real(1 - a.beta1) * g;
      v[i] = Real(a.beta2) * v[i] + Real(1 - a.beta2) * g * g;
      const Real mhat = m[i] / bias1, vhat = v[i] / bias2;
      params[i] = old - lr * (mhat / (std::sqrt(vhat) + Real(a.eps)) + Real(a.weight_decay) * old);
      if (copy) copy[i] = params[i];
      if (low) store_split(params[i], params[i], low[i]);
    }
  }
}

template void oracle<double>(const tcx_adamw_args&);
template void oracle<float>(const tcx_adamw_args&);

}  // namespace tc::ops::adamw
