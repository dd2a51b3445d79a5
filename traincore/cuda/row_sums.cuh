// Device code: sums over rows of per-column values, first stage: a partial sum per slab of rows.
#pragma once
#include <cuda_pipeline.h>

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

// The next rows of a slab on their way into shared memory while this one is worked on. Every thread loads and reads only
// its own vectors, so no barrier is needed. Used by kernels that keep rows, launched with grid_of(plan, slabs).
template <class Tile, class T>
class RowsAhead {
 public:
  static constexpr int kVec = Tile::template kVec<T>;
  static constexpr int kVectors = Tile::kVectors > 0 ? Tile::kVectors : 1;
  __device__ __forceinline__ RowsAhead(int tensors, int stages) : tensors_(tensors), stages_(stages) {
    extern __shared__ uint4 ahead[];
    mine_ = ahead + threadIdx.x;
  }
  // Starts loading row `row` of tensor `t` into stage `stage`.
  __device__ __forceinline__ void load(const Columns<Tile, T>& columns, int stage, int t, const T* row) {
    columns.each([&](int c, int v) { __pipeline_memcpy_async(at(stage, t, v), row + c, 16); });
  }
  __device__ __forceinline__ void commit() { __pipeline_commit(); }
  // Waits until the oldest stage has arrived; all later ones may still be on their way.
  __device__ __forceinline__ void wait() {
    switch (stages_) {
      case 1:
        return __pipeline_wait_prior(0);
      case 2:
        return __pipeline_wait_prior(1);
      case 3:
        return __pipeline_wait_prior(2);
      default:
        return __pipeline_wait_prior(3);
    }
  }
  __device__ __forceinline__ Floats<kVec> operator()(int stage, int t, int v) const { return pack(stage, t, v).f32(); }
  __device__ __forceinline__ Pack<T, kVec> pack(int stage, int t, int v) const { return {*at(stage, t, v)}; }
  // Where the shared memory of the stages ends, for what else a thread keeps of its own.
  __device__ __forceinline__ uint4* end() const { return at(stages_, 0, 0); }

 private:
  __device__ __forceinline__ uint4* at(int stage, int t, int v) const {
    return mine_ + ((stage * tensors_ + t) * kVectors + v) * int(blockDim.x);
  }
  uint4* mine_;
  int tensors_, stages_;
};

// This thread's part of a row, in registers.
template <class Tile, class T>
struct HeldRow {
  static constexpr int kVec = Tile::template kVec<T>;
  Pack<T, kVec> packs[Tile::kVectors];
  __device__ __forceinline__ Floats<kVec> operator()(int, int v) const { return packs[v].f32(); }
  __device__ __forceinline__ Pack<T, kVec> pack(int, int v) const { return packs[v]; }
};

// f(r, x) for the group's rows in turn, x(c, v) being the elements of row r; `stages` rows are on their way meanwhile. A
// row that is not wanted is not loaded, and has no x.
template <class Tile, class T, class Wanted, class F>
__device__ __forceinline__ void for_rows_ahead(const typename Tile::Group& group, const Columns<Tile, T>& columns,
                                               const Rows<const T>& rows, int stages, Wanted&& is_wanted, F&& f) {
  RowsAhead<Tile, T> ahead(1, stages);
  const int64_t first = group.first_row(), stride = group.row_stride();
  const auto load = [&](int64_t r, bool wanted, int stage) {
    if (wanted) ahead.load(columns, stage, 0, rows[r]);
    ahead.commit();
  };
  const auto wanted = [&](int64_t r) { return r < rows.count && is_wanted(r); };
  for (int s = 0; s < stages; ++s) load(first + s * stride, wanted(first + s * stride), s);
  int stage = 0;
  bool next = wanted(first + stages * stride);  // asked a row early, so that no load waits for the answer
  for (int64_t r = first; r < rows.count; r += stride) {
    ahead.wait();
    HeldRow<Tile, T> x;
    columns.each([&](int, int v) { x.packs[v] = ahead.pack(stage, 0, v); });
    load(r + stages * stride, next, stage);
    next = wanted(r + (stages + 1) * stride);
    f(r, x);
    stage = stage + 1 < stages ? stage + 1 : 0;
  }
}

// This thread's part of a norm's gain, in f32 in shared memory of its own, for as many rows as the block works on.
template <class Tile, class T>
class KeptGain {
 public:
  static constexpr int kVec = Tile::template kVec<T>;
  __device__ __forceinline__ KeptGain(const Columns<Tile, T>& columns, const Gain& gain, uint4* mine) : mine_(mine) {
    columns.each([&](int c, int v) {
      const auto w = gain.template load<kVec>(c);
#pragma unroll
      for (int part = 0; part < kVec / 4; ++part)
        *at(v, part) = {w[part * 4], w[part * 4 + 1], w[part * 4 + 2], w[part * 4 + 3]};
    });
  }
  __device__ __forceinline__ Floats<kVec> operator()(int v) const {
    Floats<kVec> y;
#pragma unroll
    for (int part = 0; part < kVec / 4; ++part) {
      const float4 w = *at(v, part);
      y[part * 4] = w.x, y[part * 4 + 1] = w.y, y[part * 4 + 2] = w.z, y[part * 4 + 3] = w.w;
    }
    return y;
  }

 private:
  __device__ __forceinline__ float4* at(int v, int part) const {
    return reinterpret_cast<float4*>(mine_ + (v * (kVec / 4) + part) * int(blockDim.x));
  }
  uint4* mine_;
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
  __device__ __forceinline__ void add(int v, const Floats<kVec>& a, const Floats<kVec>& b) {
    if constexpr (Tile::kVectors > 0)
#pragma unroll
      for (int j = 0; j < kVec; ++j) sums_[v][j] = fmaf(a[j], b[j], sums_[v][j]);
  }
  // Once, by every thread of the block, launched with grid_of(plan, slabs). Groups of one block are added in order.
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
