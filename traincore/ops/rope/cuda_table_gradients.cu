// dcos and dsin on the GPU: a few threads for a row of the tables take everything that the row turned, in one order, so
// that positions may repeat. Where each has its row they also turn it, so that gradients are read once.
#include "traincore/core/dispatch.h"
#include "traincore/cuda/elements.h"
#include "traincore/cuda/launch.h"
#include "traincore/cuda/row_launch.h"
#include "traincore/ops/rope/cuda_tables.cuh"
#include "traincore/ops/rope/plan.h"

namespace tc::ops::rope {
namespace {

using namespace tc::cuda;  // NOLINT(google-build-using-namespace): the vocabulary of GPU kernels

constexpr int kWarp = 32, kWarps = 4;  // kWarps: of a block
constexpr int kWidePairs = 4;          // of a thread, where vectors fit
constexpr int kBlocks = 8;             // of an SM at least
// Heads of which pairs are on their way to a thread at once.
template <class T>
constexpr int kHeads = 8 / int(sizeof(T));

template <class T>
struct GradientArgs {
  Heads<const T> x[2], g[2];  // of q and of k
  Heads<T> out[2];            // what turns_with_tables(): no heads where nothing is to be turned
  bool turns;
  TableRows table_rows;
  AnyTable cos, sin, dcos, dsin;
  bool accumulates;
  int64_t batches, seq, half;
  int64_t lanes, chunks;  // threads of a row at a time, how often; a warp has several rows, or one that it searches for
  uint32_t* errors;
};

template <int kPairs>
struct Sums {
  Floats<kPairs> dcos{}, dsin{};
};
// The two elements of each of kPairs neighbouring pairs.
template <bool kInterleaved, int kPairs, class T>
struct Pairs {
  // Whether their elements alternate.
  static constexpr bool kMixed = kInterleaved && kPairs > 1;
  Pack<T, kPairs> a, b;
  // `second`: from the first of a thread's two vectors of a row to the other.
  static __device__ __forceinline__ int64_t second(int64_t half) {
    return kMixed ? kPairs : second_of_pair<kInterleaved>(0, half);
  }
  __device__ __forceinline__ void load(const T* first, int64_t second) {
    a = Pack<T, kPairs>::load_once(first), b = Pack<T, kPairs>::load_once(first + second);
  }
  __device__ __forceinline__ void store_turned(T* first, int64_t second, const Floats<kPairs>& cos,
                                               const Floats<kPairs>& sin) const {
    auto y1 = a.f32(), y2 = b.f32();
    turn<kPairs, kInterleaved>(y1, y2, cos, sin);
    Pack<T, kPairs>::from(y1).store_once(first);
    Pack<T, kPairs>::from(y2).store_once(first + second);
  }
  __device__ __forceinline__ Floats<kPairs> firsts() const {
    const auto x = a.f32(), y = b.f32();
    return floats<kPairs>([&](int i) { return !kMixed ? x[i] : i < kPairs / 2 ? x[2 * i] : y[2 * i - kPairs]; });
  }
  __device__ __forceinline__ Floats<kPairs> seconds() const {
    const auto x = a.f32(), y = b.f32();
    return floats<kPairs>([&](int i) {
      return !kMixed ? y[i] : i < kPairs / 2 ? x[2 * i + 1] : y[2 * i + 1 - kPairs];
    });
  }
};

// The transpose's angles of kPairs pairs. They are read again for every few heads: registers are scarcer.
struct Angles {
  AnyVector cos, sin;
  template <int kPairs>
  __device__ __forceinline__ Floats<kPairs> negative_sin() const {
    const auto s = sin.load<kPairs>(0);
    return floats<kPairs>([&](int i) { return -s[i]; });
  }
};

// Adds what the heads of one side come to whose first vectors are at `x` and `g`, and turns them where there is `to`.
template <bool kInterleaved, int kPairs, class T>
__device__ __forceinline__ void add_heads(const GradientArgs<T>& a, int side, const T* x, const T* g, T* to,
                                          const Angles& angles, Sums<kPairs>& sums) {
  using Vectors = Pairs<kInterleaved, kPairs, T>;
  const int64_t second = Vectors::second(a.half);
#pragma unroll 1
  for (int64_t left = a.g[side].heads; left > 0; left -= kHeads<T>) {
    Vectors of_x[kHeads<T>], of_g[kHeads<T>];
#pragma unroll
    for (int j = 0; j < kHeads<T>; ++j) {
      if (j < left) of_x[j].load(x, second), of_g[j].load(g, second);
      x += a.x[side].head_stride, g += a.g[side].head_stride;
    }
#pragma unroll
    for (int j = 0; j < kHeads<T>; ++j) {
      if (j >= left) continue;
      const auto x1 = of_x[j].firsts(), x2 = of_x[j].seconds(), g1 = of_g[j].firsts(), g2 = of_g[j].seconds();
#pragma unroll
      for (int i = 0; i < kPairs; ++i) {
        sums.dcos[i] = fmaf(g2[i], x2[i], fmaf(g1[i], x1[i], sums.dcos[i]));
        sums.dsin[i] = fmaf(-g1[i], x2[i], fmaf(g2[i], x1[i], sums.dsin[i]));
      }
    }
    if (!to) continue;
    const auto cos = angles.cos.load<kPairs>(0), sin = angles.negative_sin<kPairs>();
#pragma unroll
    for (int j = 0; j < kHeads<T>; ++j) {
      if (j < left) of_g[j].store_turned(to, second, cos, sin);
      to += a.out[side].head_stride;
    }
  }
}

// f(b, s) for everything that a row turned, in order. Rows that are chosen by positions have the whole warp.
template <class T, class F>
__device__ __forceinline__ void each_turned(const GradientArgs<T>& a, int64_t row, int lane, F&& f) {
  const TableRows& rows = a.table_rows;
  const int64_t count = rows.gathers ? rows.positions.count() : 1;
#pragma unroll 1
  for (int64_t first = 0; first < count; first += kWarp) {
    uint32_t found = 1;  // of 32 places of the positions: those that chose this row
    if (rows.gathers) {
      const int64_t at = first + lane;
      const int64_t position = at < count ? rows.positions[at] : row;
      if (row == 0 && rows.inside(position) < 0 && a.errors) atomicOr(a.errors, uint32_t(TC_BAD_POSITION));
      found = __ballot_sync(0xffffffffu, at < count && position == row);
    }
#pragma unroll 1
    for (; found; found &= found - 1) {
      const int64_t at = rows.gathers ? first + __ffs(int(found)) - 1 : row;
      const int64_t begin = rows.batch_stride ? at / a.seq : 0, end = rows.batch_stride ? begin + 1 : a.batches;
#pragma unroll 1
      for (int64_t b = begin; b < end; ++b) f(b, at - begin * a.seq);
    }
  }
}

template <int kPairs>
__device__ __forceinline__ void store(const AnyTable& table, int64_t row, int64_t pair, const Floats<kPairs>& sums,
                                      bool accumulates) {
  if (!table.rows.data) return;
  std::byte* const p = table.at(row, pair);
#pragma unroll
  for (int i = 0; i < kPairs; ++i)
    store_as(p, table.dtype, i, accumulates ? reinterpret_cast<const float*>(p)[i] + sums[i] : sums[i]);
}

template <class T, bool kInterleaved, int kPairs>
__global__ void __launch_bounds__(kWarp* kWarps, kBlocks) gradient_kernel(const __grid_constant__ GradientArgs<T> a) {
  const int lane = int(threadIdx.x) % kWarp;
  for (int64_t thread = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
       thread < a.table_rows.count * a.chunks * a.lanes; thread += int64_t(gridDim.x) * blockDim.x) {
    const int64_t i = thread / a.lanes, row = i / a.chunks;
    const int64_t pair = (i % a.chunks * a.lanes + thread % a.lanes) * kPairs;
    Sums<kPairs> sums;
    const Angles angles{{a.turns ? a.cos.at(row, pair) : nullptr, a.cos.dtype},
                        {a.turns ? a.sin.at(row, pair) : nullptr, a.sin.dtype}};
    const int64_t first = first_of_pair<kInterleaved>(pair);
    each_turned(a, row, lane, [&](int64_t b, int64_t s) {
      if (pair >= a.half) return;
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        if (a.g[side].heads == 0) continue;
        T* const to = a.out[side].heads > 0 ? a.out[side].at(b, 0, s) + first : nullptr;
        add_heads<kInterleaved>(a, side, a.x[side].at(b, 0, s) + first, a.g[side].at(b, 0, s) + first, to, angles,
                                sums);
      }
    });
    if (pair >= a.half) continue;
    store(a.dcos, row, pair, sums.dcos, a.accumulates);
    store(a.dsin, row, pair, sums.dsin, a.accumulates);
  }
}

}  // namespace

void table_gradients_cuda(const tcx_rope_backward_args& a, const tc_exec& exec) {
  with_type(FloatTypes{}, a.dq_out.dtype, [&]<class T>() {
    const Heads<const T> dq_out(a.dq_out);
    const int64_t half = a.cos.shape[a.cos.rank - 1];
    bool is_wide = half % kWidePairs == 0;
    const bool turns = turns_with_tables(a);
    const tc_tensor none{};
    const tc_tensor &dq = turns ? a.dq : none, &dk = turns ? a.dk : none;
    for (const tc_tensor* t : {&a.q, &a.k, &a.dq_out, &a.dk_out, &dq, &dk}) is_wide &= fits_vectors(*t);
    if (turns) is_wide &= fits_vectors(a.cos) && fits_vectors(a.sin);
    GradientArgs<T> args{.x = {Heads<const T>(a.q), Heads<const T>(a.k)},
                         .g = {dq_out, Heads<const T>(a.dk_out)},
                         .out = {Heads<T>(dq), Heads<T>(dk)},
                         .turns = turns,
                         .table_rows = TableRows(a.cos, a.positions, dq_out.seq),
                         .cos = AnyTable(a.cos),
                         .sin = AnyTable(a.sin),
                         .dcos = AnyTable(a.dcos),
                         .dsin = AnyTable(a.dsin),
                         .accumulates = a.accumulate != 0,
                         .batches = dq_out.batch.count,
                         .seq = dq_out.seq,
                         .half = half,
                         .lanes = kWarp,
                         .chunks = 0,
                         .errors = exec.device_errors};
    const int64_t lanes = half / (is_wide ? kWidePairs : 1);  // that a row could have
    while (!args.table_rows.gathers && args.lanes > 1 && args.lanes / 2 >= lanes) args.lanes /= 2;
    args.chunks = (lanes + args.lanes - 1) / args.lanes;
    const Grid grid{blocks_for(args.table_rows.count * args.chunks * args.lanes, kWarps * kWarp), kWarps * kWarp};
    with_value<false, true>("wide", is_wide, [&]<bool kIsWide>() {
      with_value<false, true>("interleaved", a.pairing == TC_ROPE_INTERLEAVED, [&]<bool kInterleaved>() {
        launch<gradient_kernel<T, kInterleaved, kIsWide ? kWidePairs : 1>>("rope_table_gradients", grid, exec, args);
      });
    });
  });
}

}  // namespace tc::ops::rope
