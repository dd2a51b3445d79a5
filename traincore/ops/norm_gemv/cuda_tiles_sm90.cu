// W of 16-bit elements, in either order: products of 16 outputs by 8 of k on the tensor cores, W as it comes from memory in
// boxes, a ring of them for every warp. v is exact enough in two numbers of 11 bits, whose products with W's 11 or fewer are
// exact; they stand in neighbouring columns of a tile, so that a tile is 4 rows of v.
#include "traincore/core/dispatch.h"
#include "traincore/cuda/boxes.cuh"
#include "traincore/cuda/boxes.h"
#include "traincore/cuda/launch.h"
#include "traincore/ops/norm_gemv/plan.h"
// After plan.h.
#include "traincore/ops/norm_gemv/cuda_gemv.cuh"

namespace tc::ops::norm_gemv {
namespace {

constexpr const char* kName = "norm_gemv_tiles";
constexpr int kTileRows = 4;                                             // rows of v that a tile multiplies
constexpr int kPartBytes = 2 << 10, kParts = kGpuBoxBytes / kPartBytes;  // of a box: 16 of its rows

struct TilesArgs {
  GemvArgs gemv;
  TilesPlan plan;
  CUtensorMap maps[kMatrices];
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

// A block's part of the work: outputs [first, last), columns [begin, end) of v.
struct Part {
  int rank;  // in the cluster
  int64_t first, last;
  int begin, end;
  template <int kUnit>
  static __device__ __forceinline__ Part of(const TilesPlan& p, int k) {
    const int64_t clusters = gridDim.x / unsigned(p.cluster), cluster = blockIdx.x / unsigned(p.cluster);
    const int rank = int(blockIdx.x % unsigned(p.cluster)), begin = min(rank * p.share, k);
    return {rank, p.units * cluster / clusters * kUnit, p.units * (cluster + 1) / clusters * kUnit, begin,
            min(begin + p.share, k)};
  }
};

// Which boxes of W a warp multiplies: of the outputs `first`, first + pace, .. below `last`; of each of these every
// `slices`th box of the block's k, from the `slice`th on.
struct Share {
  int slice, pace;
  int64_t first, last;
  template <bool kTransposed>
  static __device__ __forceinline__ Share of(const TilesPlan& p, const Part& part) {
    constexpr int kOutputs = gpu_tile_outputs(kTransposed);
    const int warp = int(threadIdx.x) / kGpuWarp, slice = warp / p.abreast;
    return {slice, p.abreast * kOutputs, part.first + warp % p.abreast * kOutputs,
            slice < p.slices ? part.last : part.first};
  }
};

// They come one after another, plan.boxes at a time, to a ring in shared memory: `memory` has the rings of all warps, then
// their barriers. One lane asks for them.
template <bool kTransposed>
class Boxes {
 public:
  __device__ __forceinline__ Boxes(const TilesArgs& a, const Part& part, const Share& share, std::byte* memory)
      : a_(a),
        part_(part),
        share_(share),
        ring_(memory + warp() * a.plan.boxes * kGpuBoxBytes),
        barriers_(reinterpret_cast<BoxBarrier*>(memory + kGpuTileWarps * a.plan.boxes * kGpuBoxBytes) +
                  warp() * a.plan.boxes) {
    if (!leads()) return;
    for (int i = 0; i < a.plan.boxes; ++i) barriers_[i].start();
    fence_barriers();
  }
  // As far as the second-level cache: those that will be asked for first, and one more.
  __device__ __forceinline__ void send_for_first() const {
    if (!leads()) return;
    Next next{share_.first, 0};
    for (int i = 0; i <= a_.plan.boxes && next.output < share_.last; ++i) send_for_once(take(next));
  }
  __device__ __forceinline__ void ask() {
    if (!leads() || next_.output >= share_.last) return;
    barriers_[asked_].ask_for(take(next_), kGpuBoxBytes, ring_ + asked_ * kGpuBoxBytes);
    if (++asked_ == a_.plan.boxes) asked_ = 0;
    if (next_.output >= share_.last) let_next_begin();
  }
  // The next box; once all lanes have read it, ask() may put another in its place.
  __device__ __forceinline__ const std::byte* wait() {
    const std::byte* const box = ring_ + awaited_ * kGpuBoxBytes;
    barriers_[awaited_].wait(phase_);
    if (++awaited_ == a_.plan.boxes) awaited_ = 0, phase_ ^= 1;
    return box;
  }

 private:
  struct Next {
    int64_t output;
    int step;
  };
  static __device__ __forceinline__ int warp() { return int(threadIdx.x) / kGpuWarp; }
  static __device__ __forceinline__ bool leads() { return threadIdx.x % kGpuWarp == 0; }
  __device__ __forceinline__ BoxAt take(Next& next) const {
    const TilesPlan& p = a_.plan;
    const Place place = place_of<gpu_tile_outputs(kTransposed)>(a_.gemv, next.output);
    int k = part_.begin + (next.step * p.slices + share_.slice) * gpu_tile_places(kTransposed);
    if (k >= part_.end) k = a_.gemv.norm.k;  // the other blocks of the cluster have it: a box beyond W, zeros
    if (++next.step == p.steps) next = {next.output + share_.pace, 0};
    const int column = int(place.column);
    const BoxAt along = {a_.maps + place.matrix, {0, column, k / kBoxColumns}};
    return kTransposed ? along : BoxAt{along.map, {column, k, 0}};
  }

  const TilesArgs& a_;
  const Part& part_;
  const Share& share_;
  std::byte* ring_;
  BoxBarrier* barriers_;
  Next next_{share_.first, 0};
  int asked_ = 0, awaited_ = 0;  // places in the ring
  uint32_t phase_ = 0;
};

// sums += left right: numbers whose lower 13 bits are 0.
__device__ __forceinline__ void multiply(float (&sums)[4], float l0, float l1, float l2, float l3, float r0, float r1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(__float_as_uint(l0)), "r"(__float_as_uint(l1)), "r"(__float_as_uint(l2)), "r"(__float_as_uint(l3)),
        "r"(__float_as_uint(r0)), "r"(__float_as_uint(r1)));
}

// What a lane multiplies at a time: of W two outputs by kPlaces of k for each of kQuarters, of v the same places of its
// column of a tile. A part of a box is read as it stands there; lanes that read together meet in no bank.
template <class T, bool kTransposed>
class Operands;

// [n, k]: a part is 16 outputs by 64 places, half of which are multiplied at a time.
template <class T>
class Operands<T, true> {
 public:
  static constexpr int kQuarters = 1, kPlaces = 8, kHalves = 2, kPartPlaces = 64;
  static __device__ __forceinline__ int output(int, int which) {
    const Lane lane;
    return (lane.output >> 1 | (lane.output & 1) << 2) + 8 * which;
  }
  __device__ __forceinline__ void load(const std::byte* part, int half) {
    const int chunk = Lane().place + 4 * half;
#pragma unroll
    for (int which = 0; which < 2; ++which) {
      const int row = output(0, which);
      w_[which] = Pack<T, 8>::load(reinterpret_cast<const T*>(part + row * 128 + (chunk ^ row % 8) * 16));
    }
  }
  __device__ __forceinline__ float left(int, int which, int i) const { return w_[which].f32()[i]; }
  static __device__ __forceinline__ Floats<kPlaces> right(const float* v, int half) {
    Floats<kPlaces> x;
#pragma unroll
    for (int i = 0; i < kPlaces; i += 4) {
      const auto four = Pack<float, 4>::load(v + (Lane().place + 4 * half) * kPlaces + i).f32();
#pragma unroll
      for (int j = 0; j < 4; ++j) x[i + j] = four[j];
    }
    return x;
  }

 private:
  Pack<T, 8> w_[2];
};

// [k, n]: 16 places by 64 outputs.
template <class T>
class Operands<T, false> {
 public:
  static constexpr int kQuarters = 4, kPlaces = 4, kHalves = 1, kPartPlaces = 16;
  static __device__ __forceinline__ int output(int quarter, int which) {
    return Lane().output * 8 + 2 * quarter + which;
  }
  __device__ __forceinline__ void load(const std::byte* part, int) {
    const Lane lane;
#pragma unroll
    for (int i = 0; i < kPlaces; ++i) {
      const int row = i / 2 * 8 + lane.place * 2 + i % 2;
      w_[i] = Pack<T, 8>::load(reinterpret_cast<const T*>(part + row * 128 + (lane.output ^ row % 8) * 16));
    }
  }
  __device__ __forceinline__ float left(int quarter, int which, int i) const {
    return w_[i].f32()[2 * quarter + which];
  }
  static __device__ __forceinline__ Floats<kPlaces> right(const float* v, int) {
    Floats<kPlaces> x;
#pragma unroll
    for (int i = 0; i < kPlaces; i += 2) {
      const auto two = Pack<float, 2>::load(v + i * 4 + Lane().place * 2).f32();
      x[i] = two[0], x[i + 1] = two[1];
    }
    return x;
  }

 private:
  Pack<T, 8> w_[kPlaces];
};

// Of a lane's column of v in a tile the upper 11 bits, or the 11 after them.
template <int N>
__device__ __forceinline__ Floats<N> half_of(const Floats<N>& v) {
  constexpr uint32_t kUpper = 0xffffe000u;
  const uint32_t taken = Lane().output % 2 ? kUpper : 0u;
  return floats<N>([&](int i) {
    const float rest = v[i] - __uint_as_float(__float_as_uint(v[i]) & taken);
    return __uint_as_float(__float_as_uint(rest) & kUpper);
  });
}

template <int kQuarters, int kTiles>
struct Sums {
  float at[kQuarters][kTiles][2] = {};  // [.., .., which of a lane's outputs], of row Lane().place of the tile
};

// What operands add: v's places are at `v` for this lane, those of the tiles further down `tile` floats apart. The hardware
// cuts its sums off, so they are short.
template <class W, int kTiles>
__device__ __forceinline__ void add_products(const W& w, const float* v, int half, int tile,
                                             Sums<W::kQuarters, kTiles>& sums) {
  Floats<W::kPlaces> columns[kTiles];
#pragma unroll
  for (int t = 0; t < kTiles; ++t) columns[t] = half_of(W::right(v + t * tile, half));
#pragma unroll
  for (int q = 0; q < W::kQuarters; ++q) {
    float step[kTiles][4] = {};
#pragma unroll
    for (int i = 0; i < W::kPlaces; i += 2)
#pragma unroll
      for (int t = 0; t < kTiles; ++t)
        multiply(step[t], w.left(q, 0, i), w.left(q, 1, i), w.left(q, 0, i + 1), w.left(q, 1, i + 1), columns[t][i],
                 columns[t][i + 1]);
#pragma unroll
    for (int t = 0; t < kTiles; ++t)
      sums.at[q][t][0] += step[t][0] + step[t][1], sums.at[q][t][1] += step[t][2] + step[t][3];
  }
}

// The sums of a warp's item in `kept`, at its slice's place.
template <class W, int kRows, int kTiles>
__device__ __forceinline__ void keep(const Sums<W::kQuarters, kTiles>& sums, float* kept, int batch) {
#pragma unroll
  for (int q = 0; q < W::kQuarters; ++q)
#pragma unroll
    for (int t = 0; t < kTiles; ++t)
#pragma unroll
      for (int which = 0; which < 2; ++which)
        if (const int row = t * kTileRows + Lane().place; row < kRows)
          kept[row * batch + W::output(q, which)] = sums.at[q][t][which];
}

// Over the slices of k in order, then over the blocks of the cluster in order: y. `sums` is [slices, kRows, batch].
template <int kUnit, int kRows>
__device__ __forceinline__ void finish(const TilesArgs& a, const Part& part, int64_t first, float* sums) {
  const int batch = a.plan.batch, outputs = int(min(int64_t(batch), part.last - first)), all = kRows * batch;
  const GpuNorm& norm = a.gemv.norm;
  const auto of_slices = [&](int i) {
    float total = sums[i];
#pragma unroll 8
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
  if (a.plan.cluster == 1) {
    store(int(threadIdx.x), kGpuTileThreads, of_slices);
    return __syncthreads();
  }
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
}

template <class T, bool kTransposed, int kRows>
__global__ void __launch_bounds__(kGpuTileThreads, 1) tiles_kernel(const __grid_constant__ TilesArgs a) {
  using W = Operands<T, kTransposed>;
  constexpr int kOutputs = gpu_tile_outputs(kTransposed), kTiles = (kRows + kTileRows - 1) / kTileRows;
  constexpr int kAtOnce = kTiles == 1 ? kParts : 1;  // parts of a box, as registers allow
  extern __shared__ __align__(1024) std::byte memory[];
  const TilesPlan& p = a.plan;
  float* const v = reinterpret_cast<float*>(memory + p.boxes * kGpuTileRing);
  float* const kept = v + kRows * p.stride;
  const Part mine = Part::template of<kOutputs>(p, a.gemv.norm.k);
  const Share share = Share::of<kTransposed>(p, mine);
  Normalised<T, kRows, true, false, kGpuTileThreads> normalised(a.gemv.norm, v, p.stride);
  Boxes<kTransposed> boxes(a, mine, share, memory);
  boxes.send_for_first();
  if (blockIdx.x == 0 && threadIdx.x == 0 && a.gemv.norm.is_wide) a.gemv.norm.send_for_all();
  const Span span{mine.begin, mine.end, p.steps * p.slices * gpu_tile_places(kTransposed)};
  wait_for_stream();
  normalised.ask(span);
  for (int i = 0; i < p.boxes; ++i) boxes.ask();
  normalised.stage(span);
  __syncthreads();
  const float* const places =
      v + min(Lane().output / 2, kRows - 1) * p.stride + share.slice * gpu_tile_places(kTransposed);
  for (int64_t batch = mine.first; batch < mine.last; batch += p.batch) {
    const int64_t end = min(batch + p.batch, share.last);
    for (int64_t item = batch + share.first - mine.first; item < end; item += share.pace) {
      Sums<W::kQuarters, kTiles> sums;
#pragma unroll 1
      for (int step = 0; step < p.steps; ++step) {
        const std::byte* const box = boxes.wait();
        const float* const at = places + step * p.slices * gpu_tile_places(kTransposed);
#pragma unroll
        for (int part = 0; part < kParts; part += kAtOnce) {
          W w[kAtOnce][W::kHalves];
#pragma unroll
          for (int i = 0; i < kAtOnce; ++i)
#pragma unroll
            for (int half = 0; half < W::kHalves; ++half) w[i][half].load(box + (part + i) * kPartBytes, half);
          if (part + kAtOnce == kParts) {
            __syncwarp();
            boxes.ask();
          }
#pragma unroll
          for (int i = 0; i < kAtOnce; ++i)
#pragma unroll
            for (int half = 0; half < W::kHalves; ++half)
              add_products(w[i][half], at + (part + i) * W::kPartPlaces, half, kTileRows * p.stride, sums);
        }
      }
      keep<W, kRows>(sums, kept + share.slice * kRows * p.batch + int(item - batch), p.batch);
    }
    finish<kOutputs, kRows>(a, mine, batch, kept);
  }
}

// W [n, k] in three dimensions, 64 of k, n, the rest of k; [k, n] in two.
template <bool kTransposed>
CUtensorMap map_of(const GpuMatrix& m, int32_t dtype, uint64_t k) {
  const uint64_t outputs = static_cast<uint64_t>(m.outputs), stride = static_cast<uint64_t>(m.stride) * 2;
  if constexpr (kTransposed)
    return cuda::box_map(kName, {m.w,
                                 dtype,
                                 {cuda::kBoxColumns, outputs, k / cuda::kBoxColumns},
                                 {stride, 128},
                                 {cuda::kBoxColumns, 16, kParts}});
  else
    return cuda::box_map(kName, {m.w, dtype, {outputs, k, 1}, {stride, stride}, {cuda::kBoxColumns, 16 * kParts, 1}});
}

template <class T, bool kTransposed>
void launch_tiles(const GemvArgs& gemv, const TilesPlan& plan, int32_t dtype, const tc_exec& exec) {
  TilesArgs args{gemv, plan, {}};
  for (int i = 0; i < kMatrices; ++i)
    if (gemv.matrices[i].outputs > 0)
      args.maps[i] = map_of<kTransposed>(gemv.matrices[i], dtype, static_cast<uint64_t>(gemv.norm.k));
  const Grid grid{plan.blocks, kGpuTileThreads, plan.cluster, plan.shared, true, true};
  with_gpu_rows<8>(
      gemv.norm.rows, [&]<auto kRows>() { launch<tiles_kernel<T, kTransposed, kRows>>(kName, grid, exec, args); });
}

}  // namespace

void run_tiles(const GemvArgs& gemv, const TilesPlan& plan, bool transposed, int32_t dtype, const tc_exec& exec) {
  with_type(Types<bf16, f16>{}, dtype, [&]<class T>() {
    with_value<false, true>("transposed", transposed,
                            [&]<bool kTransposed>() { launch_tiles<T, kTransposed>(gemv, plan, dtype, exec); });
  });
}

}  // namespace tc::ops::norm_gemv
