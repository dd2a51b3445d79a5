// Device code: rows in turn. The next ones are on their way from memory into shared memory, and what the warps find out
// about one row is on its way between them while the row before it is written.
#pragma once
#include <cuda_pipeline.h>

#include "traincore/cuda/all_reduce.cuh"
#include "traincore/cuda/rows.cuh"

namespace tc::cuda {

// Where a row of each tensor starts. NULL: the tensor is not there.
template <class T, int kMost>
struct RowSources {
  const T* at[kMost];
};

// kStages rows of kTensors tensors in shared memory. Every thread loads and reads only its own vectors, so no barrier is
// needed; those of a warp lie side by side, because they are written there by lines.
template <class Tile, class T, int kStages_, int kTensors_>
class RowsAhead {
 public:
  static constexpr int kStages = kStages_, kTensors = kTensors_;
  static constexpr int kVec = Tile::template kVec<T>, kVectors = Tile::kVectors;
  // Past the end of the row all elements are `past`.
  __device__ __forceinline__ RowsAhead(const Columns<Tile, T>& columns, float past) {
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
  __device__ __forceinline__ Floats<kVec> operator()(int stage, int t, int v) const { return pack(stage, t, v).f32(); }
  __device__ __forceinline__ Pack<T, kVec> pack(int stage, int t, int v) const { return {*at(stage, t, v)}; }
  // x(c, v) and x.pack(v): tensor t's row in a stage.
  struct Row {
    static constexpr int kAtOnce = 2;  // vectors that a thread works on: as many as its registers have room for
    const RowsAhead& rows;
    int stage, t;
    __device__ __forceinline__ Floats<kVec> operator()(int, int v) const { return rows(stage, t, v); }
    __device__ __forceinline__ Pack<T, kVec> pack(int v) const { return rows.pack(stage, t, v); }
  };
  __device__ __forceinline__ Row row(int stage, int t = 0) const { return {*this, stage, t}; }
  // The same in registers.
  struct HeldRow {
    Pack<T, kVec> packs[kVectors];
    __device__ __forceinline__ Floats<kVec> operator()(int, int v) const { return packs[v].f32(); }
  };
  __device__ __forceinline__ HeldRow held(int stage, int t) const {
    HeldRow row;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) row.packs[v] = pack(stage, t, v);
    return row;
  }
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
};

// The RowValues of all warps that share a row: put() leaves this warp's, after take() every lane has its share of them all.
// A group inside one warp has nothing to exchange.
template <class Group, int kValues>
class Exchange {
 public:
  __device__ __forceinline__ Exchange(const Group&, void*) {}
  __device__ __forceinline__ void put(const RowValues<kValues>& x) { mine_ = x; }
  __device__ __forceinline__ void take() {}
  // f(values) for this lane's share; sum() and max() are then over the shares of all lanes.
  template <class F>
  __device__ __forceinline__ void each(F&& f) const {
    f(mine_);
  }
  __device__ __forceinline__ float sum(float x) const { return x; }
  __device__ __forceinline__ float max(float x) const { return x; }

 private:
  RowValues<kValues> mine_;
};
// Two sets of slots, used in turn: who writes a set again has passed a barrier after everyone had read it. A value carries
// the number of its turn: who waits for that needs no fence, behind which a warp would wait for the rows that it wrote.
template <int kValues>
class Exchange<Block, kValues> {
 public:
  // `slots`: as much shared memory as plan_ahead() counts.
  __device__ __forceinline__ Exchange(const Block& group, void* slots)
      : slots_(static_cast<uint64_t*>(slots)),
        warps_(int(blockDim.x) / 32),
        blocks_(group.blocks()),
        mine_(group.rank() * warps_ + int(threadIdx.x) / 32) {
    for (int i = int(threadIdx.x); i < 2 * kValues * warps_ * blocks_; i += int(blockDim.x)) slots_[i] = 0;
#if __CUDA_ARCH__ >= 900
    cooperative_groups::this_cluster().sync();  // the others' memory is there, and theirs is empty
#else
    __syncthreads();
#endif
  }
  __device__ __forceinline__ void put(const RowValues<kValues>& x) {
    ++turn_;
    const int in_warp = int(threadIdx.x) % 32;
    if (in_warp < blocks_)
#pragma unroll
      for (int k = 0; k < kValues; ++k)
        send(slots_ + at(k, mine_), in_warp, uint64_t{turn_} << 32 | __float_as_uint(x.at[k]));
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
  }
  __device__ __forceinline__ void take() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
#else
    __syncthreads();
#endif
  }
  template <class F>
  __device__ __forceinline__ void each(F&& f) const {
    const int count = warps_ * blocks_, in_warp = int(threadIdx.x) % 32;
#pragma unroll 1
    for (int first = 0; first < count; first += 32) {
      const RowValues<kValues> x = wait_for(min(first + in_warp, count - 1));
      if (first + in_warp < count) f(x);
    }
  }
  __device__ __forceinline__ float sum(float x) const { return over_lanes<Add, 32>(x, 0xffffffffu); }
  __device__ __forceinline__ float max(float x) const { return over_lanes<Max, 32>(x, 0xffffffffu); }

 private:
  __device__ __forceinline__ int at(int k, int i) const {
    return (int(turn_ % 2) * kValues + k) * warps_ * blocks_ + i;
  }
  // The lanes of a warp wait together, so that they need not be brought together afterwards.
  __device__ __forceinline__ RowValues<kValues> wait_for(int i) const {
    RowValues<kValues> x;
    bool is_there;
    do {
      is_there = true;
#pragma unroll
      for (int k = 0; k < kValues; ++k) {
        const uint64_t value = *static_cast<const volatile uint64_t*>(slots_ + at(k, i));
        is_there &= uint32_t(value >> 32) == turn_;
        x.at[k] = __uint_as_float(uint32_t(value));
      }
    } while (!__all_sync(0xffffffffu, is_there));
    return x;
  }
  // To the same place of a block's shared memory, by instructions that know that it is that.
  __device__ __forceinline__ void send(uint64_t* slot, [[maybe_unused]] int block, uint64_t value) const {
    uint32_t to = uint32_t(__cvta_generic_to_shared(slot));
#if __CUDA_ARCH__ >= 900
    if (blocks_ > 1) {
      asm("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(to) : "r"(block));
      asm volatile("st.relaxed.cluster.shared::cluster.u64 [%0], %1;" ::"r"(to), "l"(value) : "memory");
      return;
    }
#endif
    asm volatile("st.volatile.shared.u64 [%0], %1;" ::"r"(to), "l"(value) : "memory");
  }
  uint64_t* slots_;
  int warps_, blocks_, mine_;
  uint32_t turn_ = 0;
};

// Values that simply add up.
template <class Group, int kValues>
__device__ __forceinline__ RowValues<kValues> sum_of(const Exchange<Group, kValues>& warps) {
  RowValues<kValues> total{};
  warps.each([&](const RowValues<kValues>& warp) {
#pragma unroll
    for (int k = 0; k < kValues; ++k) total.at[k] += warp.at[k];
  });
#pragma unroll
  for (int k = 0; k < kValues; ++k) total.at[k] = warps.sum(total.at[k]);
  return total;
}

// The group's rows in turn. sources(r): where row r lies. look(r, stage): what this warp knows about it. merge(exchange):
// what all warps know, for write(r, stage, merged). Row r + 1 is looked at before row r is written.
template <class Tile, class T, int kStages, int kTensors, class Exchange, class Sources, class Look, class Merge,
          class Write>
__device__ __forceinline__ void for_rows_ahead(const typename Tile::Group& group, const Columns<Tile, T>& columns,
                                               int64_t count, RowsAhead<Tile, T, kStages, kTensors>& ahead,
                                               Exchange& exchange, Sources&& sources, Look&& look, Merge&& merge,
                                               Write&& write) {
  static_assert(kStages >= 2);
  const int64_t first = group.first_row(), stride = group.row_stride();
  const auto fetch = [&](int64_t r, int stage) {
    if (r < count) ahead.load(columns, stage, sources(r));
    __pipeline_commit();
  };
#pragma unroll 1
  for (int s = 0; s < kStages; ++s) fetch(first + s * stride, s);
  if (first >= count) return;
  __pipeline_wait_prior(kStages - 1);
  exchange.put(look(first, 0));
  exchange.take();
  auto merged = merge(exchange);
  int stage = 0;
  for (int64_t r = first; r < count; r += stride) {
    const int next = stage + 1 < kStages ? stage + 1 : 0;
    const bool is_last = r + stride >= count;
    if (!is_last) {
      __pipeline_wait_prior(kStages - 2);
      exchange.put(look(r + stride, next));
    }
    write(r, stage, merged);
    fetch(r + kStages * stride, stage);
    if (!is_last) {
      exchange.take();
      merged = merge(exchange);
    }
    stage = next;
  }
}

}  // namespace tc::cuda
