// Device code of RMSNorm and LayerNorm: what forward and backward share.
#pragma once
#include "traincore/cuda/vec.cuh"

namespace tc::cuda {

// kCentred: the mean is subtracted, and there may be a bias. kRounds: v and the normalised row are rounded to T.
template <bool kCentred_, bool kHasResidual_, bool kRounds_>
struct NormKind {
  static constexpr bool kCentred = kCentred_, kHasResidual = kHasResidual_, kRounds = kRounds_;
};

// Of 16 bits v may be used as it is, and what follows from the mean be taken off once for the row, in one rounding: unless the
// mean is so large a multiple of the row's width that this rounding would be seen.
template <class Norm, class T>
inline constexpr bool kMayTakeOneStep = Norm::kCentred && sizeof(T) < sizeof(float);
__device__ __forceinline__ bool is_far_from_0(float mean, float rstd) { return !(fabsf(mean) * rstd < 256.0f); }
// f.operator()<whether v is used as it is>().
template <class F>
__device__ __forceinline__ void in_steps(bool one, F&& f) {
  if (one)
    f.template operator()<true>();
  else
    f.template operator()<false>();
}

template <class T, int N>
__device__ __forceinline__ Floats<N> rounded(const Floats<N>& x) {
  return Pack<T, N>::from(x).f32();
}

}  // namespace tc::cuda
