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

// What a block adds up over the rows that it keeps in registers, one f32 per column of this thread.
template <class Tile, class T>
class RowSums {
 public:
  static constexpr int kVec = Tile::template kVec<T>;
  __device__ __forceinline__ void add(int v, const Floats<kVec>& a) {
    if constexpr (Tile::kVectors > 0) add_to(sums_[v], a);
  }
  // Adds a * b.
  __device__ __forceinline__ void add(int v, const Floats<kVec>& a, float b) {
    if constexpr (Tile::kVectors > 0)
#pragma unroll
      for (int j = 0; j < kVec; ++j) sums_[v][j] = fmaf(a[j], b, sums_[v][j]);
  }
  __device__ __forceinline__ void add(int v, const Floats<kVec>& a, const Floats<kVec>& b) {
    if constexpr (Tile::kVectors > 0)
#pragma unroll
      for (int j = 0; j < kVec; ++j) sums_[v][j] = fmaf(a[j], b[j], sums_[v][j]);
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

 private:
  __device__ __forceinline__ void write(const Columns<Tile, T>& columns, float* to) {
    columns.each([&](int c, int v) {
#pragma unroll
      for (int part = 0; part < kVec / 4; ++part)
        *reinterpret_cast<float4*>(to + c + part * 4) = {sums_[v][part * 4], sums_[v][part * 4 + 1],
                                                         sums_[v][part * 4 + 2], sums_[v][part * 4 + 3]};
    });
  }
  Floats<kVec> sums_[Tile::kVectors > 0 ? Tile::kVectors : 1] = {};
};

}  // namespace tc::cuda
