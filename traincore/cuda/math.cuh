// Device code: functions that are as exact as what they go into can hold.
#pragma once

namespace tc::cuda {

inline constexpr float kInfinity = __builtin_huge_valf();

// 2^x by the hardware's own instruction: 2 ulp; results below 2^-126 are 0.
__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// e^x for a result that is stored as T. f32: 2 ulp. 16 bits: ex2.approx of x log2(e), off by 2 + |x| ulps of f32 at most,
// far below the last bit of T; results below 2^-126 are 0.
template <class T>
__device__ __forceinline__ float exp_for(float x) {
  if constexpr (sizeof(T) == 4)
    return expf(x);
  else
    return exp2_approx(x * 1.4426950408889634f);
}

// tanh(x). f32: 2 ulp. 16 bits: off by 2^-22 at most.
template <class T>
__device__ __forceinline__ float tanh_for(float x) {
  if constexpr (sizeof(T) == 4)
    return tanhf(x);
  else
    return 1.0f - __fdividef(2.0f, 1.0f + exp_for<T>(2.0f * x));
}

}  // namespace tc::cuda
