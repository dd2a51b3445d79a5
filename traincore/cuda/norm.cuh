// Device code of RMSNorm and LayerNorm: what forward and backward share.
#pragma once
#include "traincore/cuda/vec.cuh"

namespace tc::cuda {

// kCentred: the mean is subtracted, and there may be a bias. kRounds: v and the normalised row are rounded to T.
template <bool kCentred_, bool kHasResidual_, bool kRounds_>
struct NormKind {
  static constexpr bool kCentred = kCentred_, kHasResidual = kHasResidual_, kRounds = kRounds_;
};

template <class T, int N>
__device__ __forceinline__ Floats<N> rounded(const Floats<N>& x) {
  return Pack<T, N>::from(x).f32();
}

}  // namespace tc::cuda
