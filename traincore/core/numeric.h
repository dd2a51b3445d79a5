// Storage types and their conversions, on host and device: to nearest even, subnormals kept, overflow to Inf, NaN kept.
#pragma once
#include <cstddef>
#include <cstdint>

#include "traincore/core/types.h"

#ifdef __CUDACC__
#define TC_HD __host__ __device__
#else
#define TC_HD
#endif
#ifdef __CUDA_ARCH__
#define TC_NO_UNROLL _Pragma("unroll 1")
#else
#define TC_NO_UNROLL
#endif
#define TC_ALWAYS_INLINE inline __attribute__((always_inline))

namespace tc {

struct bf16 {
  uint16_t bits;
  bf16() = default;
  TC_ALWAYS_INLINE TC_HD explicit bf16(float f) {
    const uint32_t u = __builtin_bit_cast(uint32_t, f);
    const bool nan = (u & 0x7fffffffu) > 0x7f800000u;
    bits = nan ? uint16_t(u >> 16 | 0x40) : uint16_t((u + 0x7fff + (u >> 16 & 1)) >> 16);
  }
  TC_ALWAYS_INLINE TC_HD explicit operator float() const { return __builtin_bit_cast(float, uint32_t(bits) << 16); }
};

struct f16 {
  uint16_t bits;
  f16() = default;
  TC_ALWAYS_INLINE TC_HD explicit f16(float f) {
    const uint32_t u = __builtin_bit_cast(uint32_t, f);
    const uint32_t sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu;
    if (a > 0x7f800000u) {
      bits = uint16_t(sign | 0x7e00u | (a >> 13 & 0x1ffu));
    } else if (a >= 0x477ff000u) {  // 65520 and above round to Inf
      bits = uint16_t(sign | 0x7c00u);
    } else if (a < 0x38800000u) {  // below 2^-14: the last bit of 0.5f is that of a subnormal, so the sum rounds right
      const float sum = __builtin_bit_cast(float, a) + 0.5f;
      bits = uint16_t(sign | (__builtin_bit_cast(uint32_t, sum) - 0x3f000000u));
    } else {
      bits = uint16_t(sign | ((a + 0xfffu + (a >> 13 & 1u) - 0x38000000u) >> 13));
    }
  }
  TC_ALWAYS_INLINE TC_HD explicit operator float() const {
    const uint32_t sign = uint32_t(bits & 0x8000u) << 16, exponent = bits >> 10 & 0x1fu, mantissa = bits & 0x3ffu;
    if (exponent == 0x1f) {
      const uint32_t quiet = mantissa ? 0x00400000u : 0;
      return __builtin_bit_cast(float, sign | 0x7f800000u | quiet | mantissa << 13);
    }
    if (exponent == 0) {
      const float value = float(mantissa) * 0x1p-24f;
      return sign ? -value : value;
    }
    return __builtin_bit_cast(float, sign | (exponent + 112) << 23 | mantissa << 13);
  }
};

// The dtype that two float tensors meet in: equal ones stay, any two others need f32.
constexpr int32_t promoted_dtype(int32_t a, int32_t b) { return a == b ? a : int32_t{TC_DTYPE_F32}; }

template <class T>
inline constexpr int32_t dtype_of = -1;
template <>
inline constexpr int32_t dtype_of<f16> = TC_DTYPE_F16;
template <>
inline constexpr int32_t dtype_of<bf16> = TC_DTYPE_BF16;
template <>
inline constexpr int32_t dtype_of<float> = TC_DTYPE_F32;
template <>
inline constexpr int32_t dtype_of<double> = TC_DTYPE_F64;
template <>
inline constexpr int32_t dtype_of<int8_t> = TC_DTYPE_I8;
template <>
inline constexpr int32_t dtype_of<int16_t> = TC_DTYPE_I16;
template <>
inline constexpr int32_t dtype_of<int32_t> = TC_DTYPE_I32;
template <>
inline constexpr int32_t dtype_of<int64_t> = TC_DTYPE_I64;
template <>
inline constexpr int32_t dtype_of<uint8_t> = TC_DTYPE_U8;
template <>
inline constexpr int32_t dtype_of<bool> = TC_DTYPE_BOOL;

}  // namespace tc
