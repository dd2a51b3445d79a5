// The scratch of AdamW, and how a bf16 parameter is stored: shared by the kernels of every device.
#pragma once
#include "traincore/core/arena.h"
#include "traincore/core/numeric.h"
#include "traincore/ops/adamw/adamw.h"

namespace tc::ops::adamw {

struct Parts {
  int64_t* starts;  // [params_count + 1], for TensorRun
};
inline Parts carve(const tcx_adamw_args& a, Arena& arena) { return {arena.take<int64_t>(a.params_count + 1)}; }

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
