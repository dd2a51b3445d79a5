// Device code: sums over rows of per-column values, first stage: a partial sum per slab of rows.
#pragma once
#include "traincore/cuda/rows.cuh"

namespace tc::cuda {

// A [rows, cols] tensor cut into tiles of columns and slabs of rows, a block each; plan_columns() makes the numbers.
struct ColumnTiles {
  int64_t tiles, slabs;
  __device__ __forceinline__ int64_t column(int per_thread) const {
    return (int64_t(blockIdx.x % tiles) * blockDim.x + threadIdx.x) * per_thread;
  }
  __device__ __forceinline__ int64_t slab() const { return blockIdx.x / tiles; }
  __device__ __forceinline__ int64_t first_row(int64_t rows) const { return rows * slab() / slabs; }
  __device__ __forceinline__ int64_t end_row(int64_t rows) const { return rows * (slab() + 1) / slabs; }
};

// What a block adds up over the rows that it takes, one f32 per column of this thread: in registers, or in shared memory,
// which leaves more of them.
template <class Tile, class T, bool kIsShared = false>
class RowSums {
 public:
  static constexpr int kVec = Tile::template kVec<T>;
  __device__ __forceinline__ explicit RowSums(void* shared)
      : shared_(static_cast<float4*>(shared) + int(threadIdx.x) / 32 * (32 * kOfThread) + int(threadIdx.x) % 32),
        end_(static_cast<float4*>(shared) + (kIsShared ? kOfThread * int(blockDim.x) : 0)) {
    if constexpr (kIsShared)
#pragma unroll
      for (int i = 0; i < kOfThread; ++i) shared_[i * 32] = {};
  }
  __device__ __forceinline__ void add(int v, const Floats<kVec>& a) {
    if constexpr (Tile::kVectors > 0) {
      auto sums = at(v);
      add_to(sums, a);
      put(v, sums);
    }
  }
  // Adds a * b.
  __device__ __forceinline__ void add(int v, const Floats<kVec>& a, float b) {
    add(v, a, floats<kVec>([b](int) { return b; }));
  }
  __device__ __forceinline__ void add(int v, const Floats<kVec>& a, const Floats<kVec>& b) {
    if constexpr (Tile::kVectors > 0) {
      auto sums = at(v);
#pragma unroll
      for (int j = 0; j < kVec; ++j) sums[j] = fmaf(a[j], b[j], sums[j]);
      put(v, sums);
    }
  }
  // Once, by every thread of the block, into the slab of its own. Groups of one block are added in order.
  __device__ void store(const typename Tile::Group& group, const Columns<Tile, T>& columns, float* slabs) {
    if constexpr (Tile::kVectors > 0) {
      if constexpr (Tile::Group::kIsBlock) {
        write(columns, slabs + group.first_row() * columns.cols);
      } else {
        extern __shared__ uint4 ahead[];
        float* const groups = reinterpret_cast<float*>(ahead);
        __syncthreads();
        const int cols = int(columns.cols), count = int(blockDim.x) / Tile::Group::kLanes;
        write(columns, groups + int(threadIdx.x) / Tile::Group::kLanes * cols);
        __syncthreads();
        for (int c = int(threadIdx.x); c < cols; c += int(blockDim.x)) {
          float x = groups[c];
          for (int g = 1; g < count; ++g) x += groups[g * cols + c];
          slabs[int64_t(blockIdx.x) * cols + c] = x;
        }
      }
    }
  }

  // Where its shared memory ends.
  __device__ __forceinline__ void* end() const { return end_; }

 private:
  static constexpr int kParts = (kVec + 3) / 4, kOfThread = Tile::kVectors * kParts;
  __device__ __forceinline__ Floats<kVec> at(int v) const {
    if constexpr (!kIsShared) {
      return sums_[v];
    } else {
      Floats<kVec> sums;
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        const float4 four = shared_[(v * kParts + part) * 32];
        memcpy(&sums[part * 4], &four, sizeof four);
      }
      return sums;
    }
  }
  __device__ __forceinline__ void put(int v, const Floats<kVec>& sums) {
    if constexpr (!kIsShared)
      sums_[v] = sums;
    else
#pragma unroll
      for (int part = 0; part < kParts; ++part) shared_[(v * kParts + part) * 32] = part_of(sums, part);
  }
  static __device__ __forceinline__ float4 part_of(const Floats<kVec>& sums, int part) {
    return {sums[part * 4], sums[part * 4 + 1], sums[part * 4 + 2], sums[part * 4 + 3]};
  }
  __device__ __forceinline__ void write(const Columns<Tile, T>& columns, float* to) {
    columns.each([&](int c, int v) {
      const auto sums = at(v);
#pragma unroll
      for (int part = 0; part < kParts; ++part) *reinterpret_cast<float4*>(to + c + part * 4) = part_of(sums, part);
    });
  }
  float4 *shared_, *end_;
  Floats<kVec> sums_[Tile::kVectors > 0 && !kIsShared ? Tile::kVectors : 1] = {};
};

}  // namespace tc::cuda
