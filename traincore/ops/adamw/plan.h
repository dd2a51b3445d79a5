// The scratch of AdamW, its coefficients, and how a bf16 parameter is stored: shared by the kernels of every device.
#pragma once
#include <cmath>

#include "traincore/core/arena.h"
#include "traincore/core/numeric.h"
#include "traincore/ops/adamw/adamw.h"

namespace tc::ops::adamw {

struct Parts {
  int64_t* starts;  // [params_count + 1], for TensorRun
};
inline Parts carve(const tcx_adamw_args& a, Arena& arena) { return {arena.take<int64_t>(a.params_count + 1)}; }

// What the numbers of a call come to, each rounded once.
struct Coefficients {
  float clip, beta1, rest1, beta2, rest2, scale_v, eps, rate, decay;
};

// base^exponent by squaring: the same bits on every device, which the libraries' pow do not promise.
TC_ALWAYS_INLINE TC_HD double power(double base, int64_t exponent) {
  double result = 1;
  for (; exponent > 0; exponent /= 2, base *= base)
    if (exponent % 2) result *= base;
  return result;
}
TC_ALWAYS_INLINE TC_HD Coefficients coefficients_of(const tcx_adamw_args& a, double lr, double clip, int64_t step) {
  const double bias1 = 1 - power(a.beta1, step), bias2 = 1 - power(a.beta2, step);
  return {float(clip),    float(a.beta1),     float(1 - a.beta1),
          float(a.beta2), float(1 - a.beta2), float(1 / std::sqrt(bias2)),
          float(a.eps),   float(lr / bias1),  float(lr * a.weight_decay)};
}

// The bits of an f32 master as those of a bf16 and the 16 that are missing; any finite number survives the round trip.
// Rounding up carries into the exponent, and `low` is then negative. NaN becomes the quiet NaN, whose high half is one.
struct Split {
  uint16_t high;
  int16_t low;
};
TC_ALWAYS_INLINE TC_HD uint32_t bits_of(float value) {
  return value == value ? __builtin_bit_cast(uint32_t, value) : 0x7fc00000u;
}
TC_ALWAYS_INLINE TC_HD Split split(float value) {
  const uint32_t bits = bits_of(value);
  return {uint16_t((bits + 0x8000u) >> 16), int16_t(bits)};
}
TC_ALWAYS_INLINE TC_HD float join(Split s) {
  return __builtin_bit_cast(float, (uint32_t(s.high) << 16) + uint32_t(int32_t(s.low)));
}

// The bits of a bf16: away from zero with the probability of the 16 bits that are dropped; Inf and NaN stay.
TC_ALWAYS_INLINE TC_HD uint16_t round_stochastically(float value, uint32_t word) {
  return uint16_t((bits_of(value) + (word >> 16)) >> 16);
}

}  // namespace tc::ops::adamw
