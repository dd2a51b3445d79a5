// Device code: the rows of dweight that no id names.
#pragma once
#include "traincore/core/view.h"
#include "traincore/cuda/vec.cuh"

namespace tc::ops::embedding {

// They are zeroed beside the last pass of the sort, which leaves the memory idle: writing alone is faster than writing
// between reads. Which rows are named is known by then: the first pass says so.
struct Unnamed {
  static constexpr int kWarp = 32;
  static constexpr int kIds = 8;      // of a warp at a time
  static constexpr int kVectors = 4;  // of a thread, a warp apart

  Rows<std::byte> dweight;
  uint8_t* named;  // [marks()]: 1 for an id that is named; NULL where the rows of others keep their values
  int64_t vocab, units, pieces;  // units of a row, and how often a warp's kVectors units a thread go into them
  int32_t unit;                  // bytes of a store

  static int64_t marks(int64_t vocab) { return (vocab + 15) / 16 * 16; }
  TC_HD int64_t items() const { return named ? (vocab + kIds - 1) / kIds * pieces : 0; }

  __device__ __forceinline__ void clear_marks(int64_t thread, int64_t threads) const {
    if (!named) return;
    for (int64_t i = thread; i < (vocab + 15) / 16; i += threads) reinterpret_cast<uint4*>(named)[i] = {};
  }
  __device__ __forceinline__ void mark(int64_t id) const {
    if (named && id >= 0 && id < vocab) named[id] = 1;
  }
  __device__ __forceinline__ void zero(int64_t item) const {
    const int64_t group = item / pieces, first = group * kIds;
    const int lane = int(threadIdx.x) % kWarp;
    const int64_t at = (item - group * pieces) * kWarp * kVectors + lane;
    const bool is_zero = lane < kIds && first + lane < vocab && !named[first + lane];
#pragma unroll 1
    for (uint32_t rest = __ballot_sync(0xffffffffu, is_zero); rest != 0; rest &= rest - 1)
      zero_piece(dweight[first + __ffs(int(rest)) - 1], at);
  }

 private:
  __device__ __forceinline__ void zero_piece(std::byte* row, int64_t at) const {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const int64_t i = at + v * kWarp;
      if (i >= units) continue;
      if (unit == 16)
        __stcs(reinterpret_cast<uint4*>(row) + i, uint4{});
      else if (unit == 4)
        reinterpret_cast<uint32_t*>(row)[i] = 0;
      else
        reinterpret_cast<uint16_t*>(row)[i] = 0;
    }
  }
};

}  // namespace tc::ops::embedding
