// Device code: a norm's gain or bias, kept for as many rows as a block works on.
#pragma once
#include "traincore/cuda/rows.cuh"

namespace tc::cuda {

// This thread's part of it; past the end of the row it is 0. kIsShared: as T, which it is exactly, in shared memory, which
// leaves more registers; else in f32 and in registers.
template <class Tile, class T, bool kIsShared>
class NormVector {
 public:
  static constexpr int kVec = Tile::template kVec<T>;
  // whole.load<kVec>(c): its vector at column c.
  template <class Whole>
  __device__ __forceinline__ NormVector(const Columns<Tile, T>& columns, const Whole& whole, void* shared)
      : shared_(static_cast<uint4*>(shared)) {
    columns.all([&](int c, int v) {
      const auto part = c < columns.cols ? whole.template load<kVec>(c) : floats<kVec>([](int) { return 0.0f; });
      if constexpr (kIsShared)
        *at(v) = Pack<T, kVec>::from(part).raw;
      else
        held_[v] = part;
    });
  }
  __device__ __forceinline__ Floats<kVec> operator()(int v) const {
    if constexpr (kIsShared)
      return Pack<T, kVec>{*at(v)}.f32();
    else
      return held_[v];
  }
  // Where its shared memory ends.
  __device__ __forceinline__ void* end() const { return shared_ + (kIsShared ? Tile::kVectors * int(blockDim.x) : 0); }

 private:
  __device__ __forceinline__ uint4* at(int v) const {
    return shared_ + (int(threadIdx.x) / 32 * Tile::kVectors + v) * 32 + int(threadIdx.x) % 32;
  }
  uint4* shared_;
  Floats<kVec> held_[kIsShared ? 1 : Tile::kVectors];
};

}  // namespace tc::cuda
