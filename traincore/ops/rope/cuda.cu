// The rotation of q and k on the GPU. A thread takes the same two vectors of many heads at one position, so that their
// angles are read once and kept in registers; threads that turn and threads that copy do so side by side in one warp.
#include <algorithm>

#include "traincore/core/dispatch.h"
#include "traincore/cuda/elements.h"
#include "traincore/cuda/launch.h"
#include "traincore/cuda/row_launch.h"
#include "traincore/ops/rope/cuda_tables.cuh"
#include "traincore/ops/rope/plan.h"

namespace tc::ops::rope {

void table_gradients_cuda(const tcx_rope_backward_args& a, const tc_exec& exec);

namespace {

using namespace tc::cuda;  // NOLINT(google-build-using-namespace): the vocabulary of GPU kernels

constexpr int kHeads = 4;      // of a thread at a time
constexpr int kThreads = 128;  // of a block
constexpr int kBlocks = 5;     // of an SM at least: enough bytes in flight
// Threads, so that all SMs end together. Where there could be more, a thread takes several groups of heads.
constexpr int64_t kEnough = 1 << 20;

// One of q and k, on its way in and out. Group g of its heads is g, g + groups, g + 2 groups, ...
template <class T>
struct Side {
  Heads<const T> in;
  Heads<T> out;
  int64_t groups;
  Side(const tc_tensor& from, const tc_tensor& to) : in(from), out(to), groups((out.heads + kHeads - 1) / kHeads) {}
};

template <class T>
struct TurnArgs {
  Side<T> sides[2];  // q and k
  AnyTable cos, sin;
  TableRows table_rows;
  float direction;      // 1, or -1 for the transpose
  bool heads_in_a_row;  // neighbours in memory are heads of one position, not positions of one head
  int64_t seq, half;
  int64_t lanes, turning;  // threads of a row, and those of them that turn; the others copy
  int64_t copied;          // vectors of a row
  int64_t splits;          // threads that share the groups of both sides: every splits-th is one's
  int64_t items;
  uint32_t* errors;
};

struct Item {
  int64_t lane, split, b, s;
};
template <class Index, class T>
__device__ __forceinline__ Item item_at(const TurnArgs<T>& a, Index i) {
  const Index splits = Index(a.splits), seq = Index(a.seq), lanes = Index(a.lanes);
  const Index row = i / lanes, inner = a.heads_in_a_row ? splits : seq, outer = a.heads_in_a_row ? seq : splits;
  const Index rest = row / inner, at_inner = row - rest * inner, b = rest / outer, at_outer = rest - b * outer;
  return {int64_t(i - row * lanes), int64_t(a.heads_in_a_row ? at_inner : at_outer), int64_t(b),
          int64_t(a.heads_in_a_row ? at_outer : at_inner)};
}

// f(j, from, to) for the heads of a group that there are.
template <class T, class F>
__device__ __forceinline__ void each_head(const Side<T>& side, int64_t group, int64_t b, int64_t s, F&& f) {
  const T* const from = side.in.at(b, group, s);
  T* const to = side.out.at(b, group, s);
#pragma unroll
  for (int j = 0; j < kHeads; ++j)
    if (group + j * side.groups < side.out.heads)
      f(j, from + j * side.groups * side.in.head_stride, to + j * side.groups * side.out.head_stride);
}

// The angles of two vectors of a row. Halves: those of the pairs that the vectors make together. Interleaved: those of the
// first vector's pairs, then those of the second's.
template <int kVec, bool kInterleaved>
__device__ __forceinline__ Floats<kVec> angles(const AnyTable& table, int64_t row, int64_t lane, int64_t half) {
  if (row < 0) return floats<kVec>([](int) { return __int_as_float(0x7fc00000); });
  if constexpr (!kInterleaved || kVec == 1) {
    return table.load<kVec>(row, lane * kVec);
  } else {
    constexpr int kPairs = kVec / 2;
    const auto a = table.load<kPairs>(row, lane * kPairs), b = table.load<kPairs>(row, half / 2 + lane * kPairs);
    return floats<kVec>([&](int i) { return i < kPairs ? a[i] : b[i - kPairs]; });
  }
}

// Where a lane's two vectors start in a row: whoever copies the last of an odd number of vectors shares one with another.
struct Places {
  int64_t first, second;
};
template <int kVec, bool kInterleaved, class T>
__device__ __forceinline__ Places places(const TurnArgs<T>& a, int64_t lane) {
  if (lane >= a.turning) {
    const int64_t i = lane - a.turning, copying = a.lanes - a.turning;
    return {2 * a.half + i * kVec, 2 * a.half + min(i + copying, a.copied - 1) * kVec};
  }
  if (kInterleaved && kVec == 1) return {first_of_pair<true>(lane), second_of_pair<true>(lane, a.half)};
  return {lane * kVec, a.half + lane * kVec};
}

template <class T, int kVec, bool kInterleaved>
__device__ __forceinline__ void turn_item(const TurnArgs<T>& a, const Item& at) {
  using Vector = Pack<T, kVec>;
  const auto [first, second] = places<kVec, kInterleaved>(a, at.lane);
  const bool turns = at.lane < a.turning;
  const int64_t groups_of_q = a.sides[0].groups, groups = groups_of_q + a.sides[1].groups;
  const int64_t chosen = a.table_rows.chosen(at.b, at.s);  // on its way before all that doesn't need it
  Floats<kVec> cos{}, sin{};
  for (int64_t i = at.split; i < groups; i += a.splits) {
    const Side<T>& side = a.sides[i < groups_of_q ? 0 : 1];
    const int64_t group = i < groups_of_q ? i : i - groups_of_q;
    Vector x1[kHeads], x2[kHeads];
    each_head(side, group, at.b, at.s, [&](int j, const T* from, T*) {
      x1[j] = Vector::load_once(from + first), x2[j] = Vector::load_once(from + second);
    });
    if (turns && i == at.split) {
      const int64_t row = a.table_rows.inside(chosen);
      if (row < 0 && at.lane == 0 && a.errors) atomicOr(a.errors, uint32_t(TC_BAD_POSITION));
      cos = angles<kVec, kInterleaved>(a.cos, row, at.lane, a.half);
      sin = angles<kVec, kInterleaved>(a.sin, row, at.lane, a.half);
#pragma unroll
      for (int j = 0; j < kVec; ++j) sin[j] *= a.direction;
    }
    each_head(side, group, at.b, at.s, [&](int j, const T*, T* to) {
      if (turns) {
        auto y1 = x1[j].f32(), y2 = x2[j].f32();
        turn<kVec, kInterleaved>(y1, y2, cos, sin);
        x1[j] = Vector::from(y1), x2[j] = Vector::from(y2);
      }
      x1[j].store_once(to + first);
      x2[j].store_once(to + second);
    });
  }
}

template <class T, int kVec, bool kInterleaved>
__global__ void __launch_bounds__(kThreads, kBlocks) turn_kernel(const __grid_constant__ TurnArgs<T> a) {
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < a.items; i += int64_t(gridDim.x) * blockDim.x)
    turn_item<T, kVec, kInterleaved>(a, a.items <= UINT32_MAX ? item_at(a, uint32_t(i)) : item_at(a, uint64_t(i)));
}

// What is turned, by what: both passes are this.
struct Rotation {
  int32_t pairing;
  float direction;
  const tc_tensor &q, &k, &cos, &sin, &positions, &q_out, &k_out;
};

template <class T>
void rotate(const Rotation& r, const tc_exec& exec) {
  const int64_t half = r.cos.shape[r.cos.rank - 1];
  bool is_wide = half % kWide<T> == 0;
  for (const tc_tensor* t : {&r.q, &r.k, &r.cos, &r.sin, &r.q_out, &r.k_out}) is_wide &= fits_vectors(*t);
  const int64_t width = is_wide ? kWide<T> : 1;
  const bool is_in_place = r.q.data == r.q_out.data && r.k.data == r.k_out.data;
  const Heads<const T> q(r.q);
  TurnArgs<T> args{.sides = {{r.q, r.q_out}, {r.k, r.k_out}},
                   .cos = AnyTable(r.cos),
                   .sin = AnyTable(r.sin),
                   .table_rows = {r.cos, r.positions, q.seq},
                   .direction = r.direction,
                   .heads_in_a_row = q.head_stride < q.seq_stride,
                   .seq = q.seq,
                   .half = half,
                   .lanes = 0,
                   .turning = half / width,
                   .copied = is_in_place ? 0 : (q.dim - 2 * half) / width,
                   .splits = 0,
                   .items = 0,
                   .errors = exec.device_errors};
  args.lanes = args.turning + (args.copied + 1) / 2;
  const int64_t groups = args.sides[0].groups + args.sides[1].groups, threads = q.batch.count * q.seq * args.lanes;
  const int64_t groups_of_thread = std::max<int64_t>(1, groups * threads / kEnough);
  args.splits = (groups + groups_of_thread - 1) / groups_of_thread;
  args.items = threads * args.splits;
  with_value<false, true>("wide", is_wide, [&]<bool kIsWide>() {
    with_value<false, true>("interleaved", r.pairing == TC_ROPE_INTERLEAVED, [&]<bool kInterleaved>() {
      launch<turn_kernel<T, kIsWide ? kWide<T> : 1, kInterleaved>>("rope", {blocks_for(args.items, kThreads), kThreads},
                                                                   exec, args);
    });
  });
}

}  // namespace

void forward_cuda(const tcx_rope_forward_args& a, const tc_exec& exec) {
  const DeviceGuard device(a.q);
  with_type(FloatTypes{}, a.q.dtype, [&]<class T>() {
    rotate<T>({a.pairing, 1, a.q, a.k, a.cos, a.sin, a.positions, a.q_out, a.k_out}, exec);
  });
}

void backward_cuda(const tcx_rope_backward_args& a, const tc_exec& exec) {
  const DeviceGuard device(a.dq_out);
  if (given(a.dcos) || given(a.dsin)) table_gradients_cuda(a, exec);  // first: dq may be written over dq_out
  if (turns_with_tables(a)) return;
  with_type(FloatTypes{}, a.dq_out.dtype, [&]<class T>() {
    rotate<T>({a.pairing, -1, a.dq_out, a.dk_out, a.cos, a.sin, a.positions, a.dq, a.dk}, exec);
  });
}

}  // namespace tc::ops::rope
