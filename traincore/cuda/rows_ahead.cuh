// Device code: rows in turn. The next ones are on their way from memory into shared memory, and what the warps find out
// about one row is on its way between them while the row before it is written.
#pragma once
#include <cuda_pipeline.h>

#include "traincore/cuda/all_reduce.cuh"
#include "traincore/cuda/overlap.cuh"
#include "traincore/cuda/rows.cuh"
#include "traincore/cuda/turns.cuh"

namespace tc::cuda {

// Where a row of each tensor starts. NULL: the tensor is not there.
template <class T, int kMost>
struct RowSources {
  const T* at[kMost];
};
// Of tensors that are there.
template <class T>
__device__ __forceinline__ const T* sure(const T* row) {
  __builtin_assume(row != nullptr);
  return row;
}

// kStages rows of kTensors tensors in shared memory. Every thread loads and reads only its own vectors, so no barrier is
// needed; those of a warp lie side by side, because they are written there by lines.
template <class Tile, class T, int kStages_, int kTensors_>
class RowsAhead {
 public:
  static constexpr int kStages = kStages_, kTensors = kTensors_;
  static constexpr int kVec = Tile::template kVec<T>, kVectors = Tile::kVectors;
  // Past the end of the row all elements are `past`. sends_ahead: a row is sent for before it is loaded.
  __device__ __forceinline__ RowsAhead(const Columns<Tile, T>& columns, float past, bool sends_ahead)
      : sends_ahead_(sends_ahead) {
    extern __shared__ uint4 ahead[];
    mine_ = ahead + int(threadIdx.x) / 32 * (32 * kOfThread) + int(threadIdx.x) % 32;
    const auto fill = Pack<T, kVec>::from(floats<kVec>([past](int) { return past; }));
    columns.all([&](int c, int v) {
      if (c >= columns.cols)
        for (int i = 0; i < kStages * kTensors; ++i) *at(0, i, v) = fill.raw;
    });
  }
  __device__ __forceinline__ void load(const Columns<Tile, T>& columns, int stage,
                                       const RowSources<T, kTensors>& from) {
#pragma unroll
    for (int t = 0; t < kTensors; ++t)
      if (from.at[t]) columns.each([&](int c, int v) { __pipeline_memcpy_async(at(stage, t, v), from.at[t] + c, 16); });
  }
  // Sends for what the block will load of a row, as far as the second-level cache.
  template <class Sources>
  __device__ __forceinline__ void send_for(const Columns<Tile, T>& columns, Sources&& sources) const {
    if constexpr (Tile::Group::kIsBlock) {
      const int v = int(threadIdx.x);  // a thread sends for one vector of all threads
      if (!sends_ahead_ || v >= kVectors) return;
      const int c = (v * columns.size + columns.lane - v) * kVec;
      const int bytes = ::min(int(blockDim.x) * 16, (columns.cols - c) * int(sizeof(T)));
      const RowSources<T, kTensors> from = sources();
#pragma unroll
      for (int t = 0; t < kTensors; ++t)
        if (bytes > 0 && from.at[t]) send_for_once(from.at[t] + c, bytes);
    }
  }
  __device__ __forceinline__ Floats<kVec> operator()(int stage, int t, int v) const { return pack(stage, t, v).f32(); }
  __device__ __forceinline__ Pack<T, kVec> pack(int stage, int t, int v) const { return {*at(stage, t, v)}; }
  // x(c, v) and x.pack(v): tensor t's row in a stage.
  struct Row {
    const RowsAhead& rows;
    int stage, t;
    __device__ __forceinline__ Floats<kVec> operator()(int, int v) const { return rows(stage, t, v); }
    __device__ __forceinline__ Pack<T, kVec> pack(int v) const { return rows.pack(stage, t, v); }
  };
  __device__ __forceinline__ Row row(int stage, int t) const { return {*this, stage, t}; }
  // Where the shared memory of the rows ends.
  __device__ __forceinline__ void* end() const {
    extern __shared__ uint4 ahead[];
    return ahead + int(blockDim.x) * kOfThread;
  }

 private:
  static constexpr int kOfThread = kStages * kTensors * kVectors;
  __device__ __forceinline__ uint4* at(int stage, int t, int v) const {
    return mine_ + ((stage * kTensors + t) * kVectors + v) * 32;
  }
  uint4* mine_;
  bool sends_ahead_;
};

// The group's rows in turn. sources(turn): where its row lies. look(turn, stage): what this warp knows about it.
// merge(known): what all warps know, for write(turn, stage, merged). The next row is looked at before one is written.
template <class Tile, class T, int kStages, int kTensors, class AllReduce, class Sources, class Look, class Merge,
          class Write>
__device__ __forceinline__ void for_rows_ahead(const Turns& turns, const Columns<Tile, T>& columns,
                                               RowsAhead<Tile, T, kStages, kTensors>& ahead, AllReduce& known,
                                               Sources&& sources, Look&& look, Merge&& merge, Write&& write) {
  static_assert(kStages >= 2);
  const auto fetch = [&](int turn, int stage) {
    if (turn < turns.count) ahead.load(columns, stage, sources(turn));
    __pipeline_commit();
    if (turn + 1 < turns.count) ahead.send_for(columns, [&] { return sources(turn + 1); });
  };
#pragma unroll 1
  for (int s = 0; s < kStages; ++s) fetch(s, s);
  if (turns.count == 0) return;
  __pipeline_wait_prior(kStages - 1);
  known.put(look(0, 0));
  known.take();
  auto merged = merge(known);
  int stage = 0;
#pragma unroll 1
  for (int turn = 0; turn < turns.count; ++turn) {
    const int next = stage + 1 < kStages ? stage + 1 : 0;
    const bool is_last = turn + 1 == turns.count;
    if (!is_last) {
      __pipeline_wait_prior(kStages - 2);
      known.put(look(turn + 1, next));
    }
    write(turn, stage, merged);
    fetch(turn + kStages, stage);
    if (!is_last) {
      known.take();
      merged = merge(known);
    }
    stage = next;
  }
}

}  // namespace tc::cuda
