// Device code: sums and maxima over the threads that share a row. Every thread gets the same bits, and the order of the
// additions depends on the group's size alone.
#pragma once
#include <cooperative_groups.h>

#include "traincore/core/numeric.h"

namespace tc::cuda {

struct Add {
  static constexpr bool kIsMax = false;
  static constexpr float kNeutral = 0;
  __device__ __forceinline__ float operator()(float a, float b) const { return a + b; }
};
// A NaN wins, as in max() of the definition.
struct Max {
  static constexpr bool kIsMax = true;
  static constexpr float kNeutral = -__builtin_huge_valf();
  __device__ __forceinline__ float operator()(float a, float b) const {
    float y;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
    return y;
  }
};

// The largest of a whole warp by one instruction, on integers that are in order as what they stand for is.
__device__ __forceinline__ float largest_in_warp(float x) {
  const auto in_order = [](int bits) { return bits ^ (bits >> 31 & 0x7fffffff); };  // its own inverse
  const int key = in_order(__float_as_int(Max{}(x, x)));                            // a NaN is now positive, and wins
  return __int_as_float(in_order(__reduce_max_sync(0xffffffffu, key)));
}

template <class Op, int kLanes, int K>
__device__ __forceinline__ void reduce_lanes(float (&x)[K], uint32_t mask) {
  if constexpr (kLanes == 32 && Op::kIsMax) {
#pragma unroll
    for (float& value : x) value = largest_in_warp(value);
  } else {
#pragma unroll
    for (int o = kLanes / 2; o > 0; o /= 2)
#pragma unroll
      for (int k = 0; k < K; ++k) x[k] = Op{}(x[k], __shfl_xor_sync(mask, x[k], o));
  }
}

// Another lane's x, of `mask`'s lanes; kLanes of them count their lanes from 0. In words of 32 bits.
template <int kLanes, class T>
__device__ __forceinline__ T from_lane(uint32_t mask, const T& x, int lane) {
  uint32_t words[sizeof(T) / 4];
  memcpy(words, &x, sizeof(T));
#pragma unroll
  for (uint32_t& word : words) word = __shfl_sync(mask, word, lane, kLanes);
  T y;
  memcpy(&y, words, sizeof(T));
  return y;
}

template <class Op, int kLanes>
__device__ __forceinline__ float over_lanes(float x, uint32_t mask) {
  float value[1] = {x};
  reduce_lanes<Op, kLanes>(value, mask);
  return value[0];
}

// kLanes neighbouring threads of a warp share a row; a block serves blockDim.x / kLanes rows.
template <int kLanes_>
class Lanes {
 public:
  static constexpr int kLanes = kLanes_, kLanesInWarp = kLanes;
  static constexpr bool kIsBlock = false;
  __device__ __forceinline__ Lanes()
      : mask_(kLanes == 32 ? 0xffffffffu : ((1u << (kLanes & 31)) - 1) << (threadIdx.x % 32 / kLanes * kLanes)) {}
  __device__ __forceinline__ int lane() const { return int(threadIdx.x) % kLanes; }
  __device__ __forceinline__ int size() const { return kLanes; }
  __device__ __forceinline__ int64_t first_row() const {
    return int64_t(blockIdx.x) * (blockDim.x / kLanes) + threadIdx.x / kLanes;
  }
  __device__ __forceinline__ int64_t row_stride() const { return int64_t(gridDim.x) * (blockDim.x / kLanes); }
  template <class Op, int K>
  __device__ __forceinline__ void reduce(float (&x)[K]) {
    reduce_lanes<Op, kLanes>(x, mask_);
  }
  // Over those of the row's threads that are in this warp.
  template <class Op, int K>
  __device__ __forceinline__ void reduce_in_warp(float (&x)[K]) const {
    reduce_lanes<Op, kLanes>(x, mask_);
  }
  // The x of the row's lane `lane`.
  template <class T>
  __device__ __forceinline__ T from_lane(const T& x, int lane) const {
    return cuda::from_lane<kLanes>(mask_, x, lane);
  }

 private:
  uint32_t mask_;
};

// A whole block shares a row.
class Block {
 public:
  static constexpr int kLanesInWarp = 32;
  static constexpr bool kIsBlock = true;
  __device__ __forceinline__ int lane() const { return int(threadIdx.x); }
  __device__ __forceinline__ int size() const { return int(blockDim.x); }
  __device__ __forceinline__ int64_t first_row() const { return blockIdx.x; }
  __device__ __forceinline__ int64_t row_stride() const { return gridDim.x; }
  template <class Op, int K>
  __device__ __forceinline__ void reduce(float (&x)[K]) {
    reduce_lanes<Op, 32>(x, 0xffffffffu);
    const auto warps = exchanged(x);
    const int count = (int(blockDim.x) + 31) / 32;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      x[k] = Op::kNeutral;
      int w = 0;
      for (; w + 4 <= count; w += 4) {
        const float4 four = *reinterpret_cast<const float4*>(&warps[k][w]);
        x[k] = Op{}(x[k], Op{}(Op{}(four.x, four.y), Op{}(four.z, four.w)));
      }
      for (; w < count; ++w) x[k] = Op{}(x[k], warps[k][w]);
    }
  }

 private:
  // [K][32]: what the block's warps have. Two sets of slots, used in turn: whoever writes a set again has passed a barrier
  // after everyone read it.
  template <int K>
  __device__ __forceinline__ const float (*exchanged(const float (&x)[K]))[32] {
    __shared__ alignas(16) float warps[2][K][32];
    turn_ ^= 1;
    if (threadIdx.x % 32 == 0)
#pragma unroll
      for (int k = 0; k < K; ++k) warps[turn_][k][threadIdx.x / 32] = x[k];
    __syncthreads();
    return warps[turn_];
  }

  int turn_ = 0;
};

// A cluster of blocks does (sm_90), or one block: for kernels that take rows ahead. Blocks tell each other by AllReduce.
class Cluster {
 public:
  static constexpr int kLanesInWarp = 32;
  static constexpr bool kIsBlock = true;
  __device__ __forceinline__ Cluster() {
#if __CUDA_ARCH__ >= 900
    const auto cluster = cooperative_groups::this_cluster();
    blocks_ = int(cluster.num_blocks()), rank_ = int(cluster.block_rank());
#endif
  }
  __device__ __forceinline__ int lane() const { return rank_ * int(blockDim.x) + int(threadIdx.x); }
  __device__ __forceinline__ int size() const { return blocks_ * int(blockDim.x); }
  __device__ __forceinline__ int64_t first_row() const { return blockIdx.x / unsigned(blocks_); }
  __device__ __forceinline__ int64_t row_stride() const { return gridDim.x / unsigned(blocks_); }
  __device__ __forceinline__ int blocks() const { return blocks_; }
  __device__ __forceinline__ int rank() const { return rank_; }
  template <class Op, int K>
  __device__ __forceinline__ void reduce_in_warp(float (&x)[K]) const {
    reduce_lanes<Op, 32>(x, 0xffffffffu);
  }
  // The x of the warp's lane `lane`.
  template <class T>
  __device__ __forceinline__ T from_lane(const T& x, int lane) const {
    return cuda::from_lane<32>(0xffffffffu, x, lane);
  }

 private:
  int blocks_ = 1, rank_ = 0;
};

template <class Group>
__device__ __forceinline__ float sum(Group& group, float x) {
  float value[1] = {x};
  group.template reduce<Add>(value);
  return value[0];
}
template <class Group>
__device__ __forceinline__ float max(Group& group, float x) {
  float value[1] = {x};
  group.template reduce<Max>(value);
  return value[0];
}

// The sum of x over a block of whole warps, for double and int64_t. Every thread gets the same bits.
template <class T>
__device__ __forceinline__ T block_sum(T x) {
  __shared__ T warps[32];
  const int in_warp = int(threadIdx.x) % 32;
#pragma unroll
  for (int o = 16; o > 0; o /= 2) x += __shfl_xor_sync(0xffffffffu, x, o);
  __syncthreads();  // everyone has read the sum before this one
  if (in_warp == 0) warps[threadIdx.x / 32] = x;
  __syncthreads();
  x = in_warp < int(blockDim.x) / 32 ? warps[in_warp] : T(0);
#pragma unroll
  for (int o = 16; o > 0; o /= 2) x += __shfl_xor_sync(0xffffffffu, x, o);
  return x;
}

}  // namespace tc::cuda
