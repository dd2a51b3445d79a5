// dcos and dsin on the GPU: a warp for a row of the tables takes everything that the row turned, in one order, so that
// positions may repeat.
#include "traincore/core/dispatch.h"
#include "traincore/cuda/elements.h"
#include "traincore/cuda/launch.h"
#include "traincore/ops/rope/cuda_tables.cuh"
#include "traincore/ops/rope/plan.h"

namespace tc::ops::rope {
namespace {

using namespace tc::cuda;  // NOLINT(google-build-using-namespace): the vocabulary of GPU kernels

constexpr int kWarp = 32, kWarps = 4;   // kWarps: of a block
constexpr int kPairs = 4;               // of a thread
constexpr int kChunk = kWarp * kPairs;  // pairs of a warp

template <class T>
struct GradientArgs {
  Heads<const T> q, dq_out, k, dk_out;
  TableRows table_rows;
  AnyTable dcos, dsin;
  bool accumulates;
  int64_t batches, seq, half, chunks;
  uint32_t* errors;
};

struct Sums {
  float dcos[kPairs] = {}, dsin[kPairs] = {};
};

// Adds what the heads of one side at one position come to.
template <bool kInterleaved, class T>
__device__ __forceinline__ void add_heads(const Heads<const T>& x, const Heads<const T>& g, int64_t b, int64_t s,
                                          int64_t first, int64_t half, Sums& sums) {
  for (int64_t head = 0; head < g.heads; ++head) {
    const T *const xs = x.at(b, head, s), *const gs = g.at(b, head, s);
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      const int64_t pair = first + j * kWarp;
      if (pair >= half) continue;
      const int64_t one = first_of_pair<kInterleaved>(pair), two = second_of_pair<kInterleaved>(pair, half);
      const float x1 = to_f32(xs[one]), x2 = to_f32(xs[two]), g1 = to_f32(gs[one]), g2 = to_f32(gs[two]);
      sums.dcos[j] = fmaf(g2, x2, fmaf(g1, x1, sums.dcos[j]));
      sums.dsin[j] = fmaf(-g1, x2, fmaf(g2, x1, sums.dsin[j]));
    }
  }
}

// f(b, s) for everything that a row turned, in order; the same for every thread of the warp.
template <class T, class F>
__device__ __forceinline__ void each_turned(const GradientArgs<T>& a, int64_t row, int lane, F&& f) {
  const TableRows& rows = a.table_rows;
  const auto sequences = [&](int64_t at) {  // those of place `at` of the positions or rows
    if (rows.batch_stride) return f(at / a.seq, at % a.seq);
    for (int64_t b = 0; b < a.batches; ++b) f(b, at);
  };
  if (!rows.gathers) return sequences(row);
  const int64_t count = rows.positions.count();
  for (int64_t first = 0; first < count; first += kWarp) {
    const int64_t at = first + lane;
    const int64_t position = at < count ? rows.positions[at] : row;
    if (row == 0 && rows.inside(position) < 0 && a.errors) atomicOr(a.errors, uint32_t(TC_BAD_POSITION));
    for (uint32_t found = __ballot_sync(0xffffffffu, at < count && position == row); found; found &= found - 1)
      sequences(first + __ffs(int(found)) - 1);
  }
}

__device__ __forceinline__ void store(const AnyTable& table, int64_t row, int64_t pair, float sum, bool accumulates) {
  if (!table.rows.data) return;
  table.store(row, pair, accumulates ? table.load<1>(row, pair)[0] + sum : sum);
}

template <class T, bool kInterleaved>
__global__ void __launch_bounds__(kWarp* kWarps) gradient_kernel(const __grid_constant__ GradientArgs<T> a) {
  const int lane = int(threadIdx.x) % kWarp;
  for (int64_t i = int64_t(blockIdx.x) * kWarps + threadIdx.x / kWarp; i < a.table_rows.count * a.chunks;
       i += int64_t(gridDim.x) * kWarps) {
    const int64_t row = i / a.chunks, first = i % a.chunks * kChunk + lane;
    Sums sums;
    each_turned(a, row, lane, [&](int64_t b, int64_t s) {
      add_heads<kInterleaved>(a.q, a.dq_out, b, s, first, a.half, sums);
      add_heads<kInterleaved>(a.k, a.dk_out, b, s, first, a.half, sums);
    });
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      const int64_t pair = first + j * kWarp;
      if (pair >= a.half) continue;
      store(a.dcos, row, pair, sums.dcos[j], a.accumulates);
      store(a.dsin, row, pair, sums.dsin[j], a.accumulates);
    }
  }
}

}  // namespace

void table_gradients_cuda(const tcx_rope_backward_args& a, const tc_exec& exec) {
  with_type(FloatTypes{}, a.dq_out.dtype, [&]<class T>() {
    const Heads<const T> dq_out(a.dq_out);
    const int64_t half = a.cos.shape[a.cos.rank - 1];
    const GradientArgs<T> args{Heads<const T>(a.q),
                               dq_out,
                               Heads<const T>(a.k),
                               Heads<const T>(a.dk_out),
                               TableRows(a.cos, a.positions, dq_out.seq),
                               AnyTable(a.dcos),
                               AnyTable(a.dsin),
                               a.accumulate != 0,
                               dq_out.batch.count,
                               dq_out.seq,
                               half,
                               (half + kChunk - 1) / kChunk,
                               exec.device_errors};
    const Grid grid{blocks_for(args.table_rows.count * args.chunks, kWarps), kWarp * kWarps};
    with_value<false, true>("interleaved", a.pairing == TC_ROPE_INTERLEAVED, [&]<bool kInterleaved>() {
      launch<gradient_kernel<T, kInterleaved>>("rope_table_gradients", grid, exec, args);
    });
  });
}

}  // namespace tc::ops::rope
