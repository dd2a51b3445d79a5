// W of 16-bit elements, in either order: products of 16 outputs by 8 of k on the tensor cores, W as it comes from memory.
// v is exact enough in two numbers of 11 bits, whose products with W's 11 or fewer are exact; they stand in neighbouring
// columns of a tile, so that a tile is 4 rows of v.
#include "traincore/core/dispatch.h"
#include "traincore/cuda/launch.h"
#include "traincore/cuda/overlap.cuh"
#include "traincore/ops/norm_gemv/plan.h"
// After plan.h.
#include "traincore/ops/norm_gemv/cuda_gemv.cuh"
#include "traincore/ops/norm_gemv/cuda_ring.cuh"

namespace tc::ops::norm_gemv {
namespace {

constexpr int kVec = 8;          // elements of W that are read together, and places of k that a lane has of a step
constexpr int kTileRows = 4;     // rows of v that a tile multiplies
constexpr int kTurnsOfNext = 2;  // before the end the next kernel may begin

struct TilesArgs {
  GemvArgs gemv;
  TilesPlan plan;
};

// The hardware's order of a tile: a lane has an output (and the 8th after it) and every 4th place of k; of the sums, the
// same outputs and two neighbouring columns.
struct Lane {
  int output, place;
  __device__ __forceinline__ Lane() : output(int(threadIdx.x) % kGpuWarp / 4), place(int(threadIdx.x) % 4) {}
};

struct Place {
  int matrix;
  int64_t column;
};
// Of an output among those of all matrices, each filled up to whole units; beyond the last it is no column of a matrix.
template <int kUnit>
__device__ __forceinline__ Place place_of(const GemvArgs& a, int64_t output) {
  int matrix = 0;
  for (int64_t held; matrix + 1 < kMatrices; ++matrix, output -= held)
    if (held = (a.matrices[matrix].outputs + kUnit - 1) / kUnit * kUnit, output < held) break;
  return {matrix, output};
}

// What a warp reads of W: `kOutputs` outputs at a time, kGpuTileStep of k in a step, kStages steps in a turn of its ring.
// each_load(d, f): f(i, from, whether it is there) for the loads of a lane at step d of the turn.
template <class T, bool kTransposed>
class Feed;

// [n, k]: 16 rows of W, 64 bytes of each.
template <class T>
class Feed<T, true> {
 public:
  using Element = T;
  static constexpr int kOutputs = gpu_tile_outputs(true), kUnit = gpu_tile_unit(true), kLoads = 2, kQuarters = 1;
  static constexpr int kStages = gpu_tile_stages(true);
  __device__ __forceinline__ void start(const GemvArgs& a, int64_t output, int64_t last, int from, int to) {
    const Lane lane;
#pragma unroll
    for (int r = 0; r < kLoads; ++r) {
      const int64_t at = output + lane.output + 8 * r;
      const Place place = place_of<kUnit>(a, at);
      const GpuMatrix& m = a.matrices[place.matrix];
      const int first = from + lane.place * kVec;
      left_[r] = at < last && place.column < m.outputs ? to - first : 0;
      next_[r] = static_cast<const T*>(m.w) + place.column * m.stride + first;
    }
  }
  template <class F>
  __device__ __forceinline__ void each_load(int d, const F& f) const {
#pragma unroll
    for (int r = 0; r < kLoads; ++r) f(r, next_[r] + d * kGpuTileStep, d * kGpuTileStep < left_[r]);
  }
  __device__ __forceinline__ void advance() {
#pragma unroll
    for (int r = 0; r < kLoads; ++r) next_[r] += kStages * kGpuTileStep, left_[r] -= kStages * kGpuTileStep;
  }
  // Of a lane's two outputs, the `which`th at its i-th place of k.
  static __device__ __forceinline__ float at(const Pack<T, kVec> (&w)[kLoads], int, int which, int i) {
    return w[which].f32()[i];
  }
  static __device__ __forceinline__ int output(int, int which) { return Lane().output + 8 * which; }

 private:
  const T* next_[kLoads];
  int left_[kLoads];  // of k, from next_ on
};

// [k, n]: 128 bytes of 32 rows of W, of which a lane has eight columns of eight rows.
template <class T>
class Feed<T, false> {
 public:
  using Element = T;
  static constexpr int kOutputs = gpu_tile_outputs(false), kUnit = gpu_tile_unit(false), kLoads = 8, kQuarters = 4;
  static constexpr int kStages = gpu_tile_stages(false);
  __device__ __forceinline__ void start(const GemvArgs& a, int64_t output, int64_t last, int from, int to) {
    const Lane lane;
    const Place place = place_of<kUnit>(a, output);
    const GpuMatrix& m = a.matrices[place.matrix];
    const int64_t column = place.column + lane.output * kVec, first = from + lane.place * kVec;
    left_ = output < last && column < m.outputs ? to - int(first) : 0;
    stride_ = m.stride;
    next_ = static_cast<const T*>(m.w) + first * stride_ + column;
  }
  template <class F>
  __device__ __forceinline__ void each_load(int d, const F& f) const {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) f(i, next_ + (d * kGpuTileStep + i) * stride_, d * kGpuTileStep + i < left_);
  }
  __device__ __forceinline__ void advance() {
    next_ += kStages * kGpuTileStep * stride_, left_ -= kStages * kGpuTileStep;
  }
  static __device__ __forceinline__ float at(const Pack<T, kVec> (&w)[kLoads], int quarter, int which, int i) {
    return w[i].f32()[2 * quarter + which];
  }
  static __device__ __forceinline__ int output(int quarter, int which) {
    return Lane().output * kVec + 2 * quarter + which;
  }

 private:
  const T* next_;
  int64_t stride_;
  int left_;  // rows of W, from next_ on
};

// sums += left right: numbers whose lower 13 bits are 0.
__device__ __forceinline__ void multiply(float (&sums)[4], float l0, float l1, float l2, float l3, float r0, float r1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(__float_as_uint(l0)), "r"(__float_as_uint(l1)), "r"(__float_as_uint(l2)), "r"(__float_as_uint(l3)),
        "r"(__float_as_uint(r0)), "r"(__float_as_uint(r1)));
}

// A lane's column of v in a tile: the upper 11 bits of a row, or the 11 after them.
class Right {
 public:
  __device__ __forceinline__ Right() : taken_(Lane().output % 2 ? kUpper : 0u) {}
  __device__ __forceinline__ Floats<kVec> load(const float* v) const {
    Floats<kVec> x;
#pragma unroll
    for (int i = 0; i < kVec; i += 4) {
      const auto four = Pack<float, 4>::load(v + i).f32();
#pragma unroll
      for (int j = 0; j < 4; ++j) x[i + j] = upper(four[j] - __uint_as_float(__float_as_uint(four[j]) & taken_));
    }
    return x;
  }

 private:
  static constexpr uint32_t kUpper = 0xffffe000u;
  static __device__ __forceinline__ float upper(float x) { return __uint_as_float(__float_as_uint(x) & kUpper); }
  uint32_t taken_;
};

template <int kQuarters, int kTiles>
struct Sums {
  float at[kQuarters][kTiles][2] = {};  // [.., .., which of a lane's outputs], of row Lane().place of the tile
};

// What a step adds: v's places are at `v` for this lane, those of the tiles further down `tile` floats apart. The hardware
// cuts its sums off, so they are short.
template <class F, class W, int kTiles>
__device__ __forceinline__ void add_products(const W& w, const float* v, int tile, const Right& right,
                                             Sums<F::kQuarters, kTiles>& sums) {
  Floats<kVec> columns[kTiles];
#pragma unroll
  for (int t = 0; t < kTiles; ++t) columns[t] = right.load(v + t * tile);
#pragma unroll
  for (int q = 0; q < F::kQuarters; ++q) {
    float step[kTiles][4] = {};
#pragma unroll
    for (int i = 0; i < kVec; i += 2) {
      const float l0 = F::at(w, q, 0, i), l1 = F::at(w, q, 1, i), l2 = F::at(w, q, 0, i + 1),
                  l3 = F::at(w, q, 1, i + 1);
#pragma unroll
      for (int t = 0; t < kTiles; ++t) multiply(step[t], l0, l1, l2, l3, columns[t][i], columns[t][i + 1]);
    }
#pragma unroll
    for (int t = 0; t < kTiles; ++t)
      sums.at[q][t][0] += step[t][0] + step[t][1], sums.at[q][t][1] += step[t][2] + step[t][3];
  }
}

// A block's part of the work: outputs [first, last), columns [begin, end) of v.
struct Part {
  int rank;  // in the cluster
  int64_t first, last;
  int begin, end;
  template <int kUnit>
  static __device__ __forceinline__ Part of(const TilesPlan& p, int k) {
    const int64_t clusters = gridDim.x / unsigned(p.cluster), cluster = blockIdx.x / unsigned(p.cluster);
    const int rank = int(blockIdx.x % unsigned(p.cluster)), begin = rank * p.share;
    return {rank, p.units * cluster / clusters * kUnit, p.units * (cluster + 1) / clusters * kUnit, begin,
            min(begin + p.share, k)};
  }
};

// Over the slices of k in order, then over the blocks of the cluster in order: y. `sums` is [slices, kRows, batch].
template <int kUnit, int kRows>
__device__ __forceinline__ void finish(const TilesArgs& a, const Part& part, int64_t first, float* sums) {
  const int batch = a.plan.batch, outputs = int(min(int64_t(batch), part.last - first)), all = kRows * batch;
  const GpuNorm& norm = a.gemv.norm;
  const auto of_slices = [&](int i) {
    float total = sums[i];
    for (int s = 1; s < a.plan.slices; ++s) total += sums[s * all + i];
    return total;
  };
  const auto store = [&](int thread, int threads, auto&& total_of) {
    for (int i = thread; i < norm.rows * batch; i += threads) {
      const int row = i / batch, output = i % batch;
      if (output >= outputs) continue;
      const Place place = place_of<kUnit>(a.gemv, first + output);
      const GpuMatrix& m = a.gemv.matrices[place.matrix];
      if (place.column < m.outputs) m.y.store(norm.first + row, place.column, total_of(i));
    }
  };
  __syncthreads();
#if __CUDA_ARCH__ >= 900
  if (a.plan.cluster > 1) {
    auto cluster = cooperative_groups::this_cluster();
    for (int i = int(threadIdx.x); i < norm.rows * batch; i += kGpuTileThreads) sums[i] = of_slices(i);
    cluster.sync();
    store(part.rank * kGpuTileThreads + int(threadIdx.x), a.plan.cluster * kGpuTileThreads, [&](int i) {
      float total = 0;
      for (int b = 0; b < a.plan.cluster; ++b) total += cluster.map_shared_rank(sums, b)[i];
      return total;
    });
    // Nobody's memory goes before everyone has read it; what was stored needs no waiting for.
    __syncwarp();
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
    return;
  }
#endif
  store(int(threadIdx.x), kGpuTileThreads, of_slices);
  __syncthreads();
}

// What the block's warps read first of W, as far as the second-level cache.
template <class T, bool kTransposed>
__device__ __forceinline__ void send_ahead(const TilesArgs& a, const Part& part) {
  using F = Feed<T, kTransposed>;
  const Place place = place_of<F::kUnit>(a.gemv, part.first);
  const GpuMatrix& m = a.gemv.matrices[place.matrix];
  const int64_t outputs = min(part.last - part.first, m.outputs - place.column);
  const T* const w = static_cast<const T*>(m.w);
  if constexpr (kTransposed) {
    const int bytes = (part.end - part.begin) * int(sizeof(T)),
              rows = int(min(outputs, int64_t(kGpuTileAhead / bytes)));
    if (const int row = int(threadIdx.x); row < rows)
      send_for_once(w + (place.column + row) * m.stride + part.begin, bytes);
  } else {
    const TilesPlan& p = a.plan;
    const int bytes = int(min(outputs, int64_t(p.batch))) * int(sizeof(T)), rows = kGpuTileAhead / bytes / p.slices;
    for (int i = int(threadIdx.x); i < rows * p.slices; i += kGpuTileThreads)
      if (const int row = i % rows, k = part.begin + i / rows * p.slice + row; row < p.slice && k < part.end)
        send_for_once(w + k * m.stride + place.column, bytes);
  }
}

// A warp's part of its block's: outputs first, first + pace, ... below `last`, and columns [from, to) of v.
struct Share {
  int slice, from, to, mine, pace;  // mine: its place among the outputs of a batch
  int64_t last;
  template <class F>
  static __device__ __forceinline__ Share of(const TilesPlan& p, const Part& part) {
    const int warp = int(threadIdx.x) / kGpuWarp, slice = warp / p.abreast, from = part.begin + slice * p.slice;
    return {slice,
            from,
            min(from + p.slice, part.end),
            warp % p.abreast * F::kOutputs,
            p.abreast * F::kOutputs,
            slice < p.slices ? part.last : part.first};
  }
};

// The sums of a warp's item in `kept`, at its slice's place.
template <class F, int kRows, int kTiles>
__device__ __forceinline__ void keep(const Sums<F::kQuarters, kTiles>& sums, float* kept, int batch) {
#pragma unroll
  for (int q = 0; q < F::kQuarters; ++q)
#pragma unroll
    for (int t = 0; t < kTiles; ++t)
#pragma unroll
      for (int which = 0; which < 2; ++which)
        if (const int row = t * kTileRows + Lane().place; row < kRows)
          kept[row * batch + F::output(q, which)] = sums.at[q][t][which];
}

template <class T, bool kTransposed, int kRows>
__global__ void __launch_bounds__(kGpuTileThreads, 2) tiles_kernel(const __grid_constant__ TilesArgs a) {
  using F = Feed<T, kTransposed>;
  constexpr int kTiles = (kRows + kTileRows - 1) / kTileRows, kTurn = F::kStages * kGpuTileStep;
  extern __shared__ float4 memory[];
  float* const v = reinterpret_cast<float*>(memory);
  const TilesPlan& p = a.plan;
  float* const kept = v + kRows * p.stride;
  const Part part = Part::template of<F::kUnit>(p, a.gemv.norm.k);
  if (blockIdx.x == 0 && threadIdx.x == 0 && a.gemv.norm.is_wide) a.gemv.norm.send_for_all();
  send_ahead<T, kTransposed>(a, part);
  wait_for_stream();
  Normalised<kRows, false, kGpuTileThreads> normalised(a.gemv.norm, v, p.stride);
  normalised.stage(part.begin, part.end, p.stride);
  __syncthreads();
  const Share share = Share::template of<F>(p, part);
  const int turns = (p.slice + kTurn - 1) / kTurn;
  const Lane lane;
  const Right right;
  const float* const places =
      v + min(lane.output / 2, kRows - 1) * p.stride + share.slice * p.slice + lane.place * kVec;
  F feed;
  std::conditional_t<kTransposed, SharedRing<F>, RegisterRing<F>> ring(kept + p.slices * kRows * p.batch);
  int64_t next = part.first + share.mine;
  feed.start(a.gemv, next, share.last, share.from, share.to);
#pragma unroll
  for (int d = 0; d < F::kStages; ++d) ring.load(feed, d);
  int turns_of_item = turns;
  for (int64_t batch = part.first; batch < part.last; batch += p.batch) {
    for (int64_t item = batch + share.mine; item < min(batch + p.batch, share.last); item += share.pace) {
      Sums<F::kQuarters, kTiles> sums;
      for (int turn = 0; turn < turns; ++turn) {
        if (item + share.pace >= share.last && turn + kTurnsOfNext >= turns) let_next_begin();
        feed.advance();
        if (--turns_of_item == 0) {
          turns_of_item = turns, next += share.pace;
          feed.start(a.gemv, next, share.last, share.from, share.to);
        }
#pragma unroll
        for (int d = 0; d < F::kStages; ++d) {
          const auto& step = ring.take(d);
          add_products<F>(step.w, places + turn * kTurn + d * kGpuTileStep, kTileRows * p.stride, right, sums);
          ring.load(feed, d);
        }
      }
      keep<F, kRows>(sums, kept + share.slice * kRows * p.batch + int(item - batch), p.batch);
    }
    finish<F::kUnit, kRows>(a, part, batch, kept);
  }
}

}  // namespace

void run_tiles(const GemvArgs& gemv, const TilesPlan& plan, bool transposed, int32_t dtype, const tc_exec& exec) {
  const Grid grid{plan.blocks, kGpuTileThreads, plan.cluster, plan.shared, plan.overlaps};
  const TilesArgs args{gemv, plan};
  with_type(Types<bf16, f16>{}, dtype, [&]<class T>() {
    with_value<false, true>("transposed", transposed, [&]<bool kTransposed>() {
      with_gpu_rows<kVec>(
          gemv.norm.rows, [&]<auto kRows>() {
            if constexpr (tiles_are_fastest(kTransposed, kRows))
              launch<tiles_kernel<T, kTransposed, kRows>>("norm_gemv_tiles", grid, exec, args);
          });
    });
  });
}

}  // namespace tc::ops::norm_gemv
