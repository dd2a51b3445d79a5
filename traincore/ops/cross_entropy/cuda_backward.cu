// Cross entropy backward on the GPU: a stream over the logits, in pieces of rows.
#include "traincore/core/arena.h"
#include "traincore/core/dispatch.h"
#include "traincore/cuda/loss.cuh"
#include "traincore/cuda/row_launch.h"
#include "traincore/ops/cross_entropy/cuda_plan.h"

namespace tc::ops::cross_entropy {
namespace {

using namespace tc::cuda;  // NOLINT(google-build-using-namespace): the vocabulary of GPU kernels

constexpr int kThreads = 256, kVectors = 4;  // of a block; of a thread
constexpr int kFewLanes = 32;                // threads of a piece, where they have a whole row; else all of a block

template <class T>
struct BackwardArgs {
  LossOptions options;
  Rows<const T> logits;
  Rows<T> dlogits;
  Rows<const float> dloss, row_max, row_log_sum;
  int64_t pieces;  // of a row, lanes * kVectors vectors each
  int32_t lanes;   // threads of a piece
};

template <class T, int kVec, bool kIsCapped>
__device__ __forceinline__ void gradient_piece(const BackwardArgs<T>& a, int64_t r, int first, double inverse) {
  const LossOptions& o = a.options;
  const int cols = int(a.logits.cols), step = a.lanes * kVec;
  T* const dlogits = a.dlogits[r];
  const int64_t target = o.target[r];
  if (target == o.ignore_index) {
    for (int c = first; c < min(cols, first + kVectors * step); c += step)
      Pack<T, kVec>::from(floats<kVec>([](int) { return 0.0f; })).store(dlogits + c);
    return;
  }
  const T* const x = a.logits[r];
  Pack<T, kVec> packs[kVectors];
#pragma unroll
  for (int v = 0; v < kVectors; ++v)
    if (first + v * step < cols) packs[v] = Pack<T, kVec>::load(x + first + v * step);
  if (!o.is_class(target) && o.errors && first == 0) atomicOr(o.errors, uint32_t{TC_BAD_TARGET});
  const float log_sum = *a.row_log_sum[r];
  const Logit<T, kIsCapped> logit(o);
  const ExpOfLogit<T> exp{logit.gain, *a.row_max[r]};
  const LossGradient gradient(o, logit, exp, o.weight(target), exp.max, log_sum, expf(-log_sum),
                              float(*a.dloss[r] * inverse));
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int c = first + v * step;
    if (c >= cols) return;
    const auto value = packs[v].f32();
    const auto g = floats<kVec>([&](int j) { return gradient(value[j]); });
    Pack<T, kVec>::from(g).store(dlogits + c);
    if (target >= c && target < c + kVec) {
      const auto at_target = floats<kVec>([&](int j) { return gradient.of_target(value[j]); });
#pragma unroll
      for (int j = 0; j < kVec; ++j)
        if (c + j == target) dlogits[c + j] = from_f32<T>(at_target[j]);
    }
  }
}

template <class T, int kVec, bool kIsCapped>
__global__ void __launch_bounds__(kThreads) gradient_kernel(const BackwardArgs<T> a) {
  const double inverse = inverse_normalizer(a.options);
  const int64_t count = a.logits.count * a.pieces;
  const int of_block = kThreads / a.lanes, lane = int(threadIdx.x) % a.lanes;
  for (int64_t piece = int64_t(blockIdx.x) * of_block + int(threadIdx.x) / a.lanes; piece < count;
       piece += int64_t(gridDim.x) * of_block) {
    const int first = (int(piece % a.pieces) * kVectors * a.lanes + lane) * kVec;
    if (first < int(a.logits.cols)) gradient_piece<T, kVec, kIsCapped>(a, piece / a.pieces, first, inverse);
  }
}

TargetTotals* carve(const tcx_cross_entropy_backward_args& a, Arena& arena) {
  return arena.take<TargetTotals>(counts_targets(a) ? kTargetParts : 0);
}

template <class T, bool kIsCapped>
void backward(const tcx_cross_entropy_backward_args& a, const LossOptions& options, const tc_exec& exec) {
  const RowShape shape = backward_shape(a);
  const int64_t vec = shape.aligned ? kWide<T> : 1;
  const int32_t lanes = shape.cols <= kFewLanes * kVectors * vec ? kFewLanes : kThreads;
  const int64_t per_piece = lanes * kVectors * vec;
  const BackwardArgs<T> args{options,
                             rows_of<const T>(a.logits),
                             rows_of<T>(a.dlogits),
                             values_of<const float>(a.dloss),  // a scalar is every row's
                             values_of<const float>(a.row_max),
                             values_of<const float>(a.row_log_sum),
                             (shape.cols + per_piece - 1) / per_piece,
                             lanes};
  const Grid grid{blocks_for(shape.rows * args.pieces, kThreads / lanes), kThreads};
  if (shape.aligned)
    launch<gradient_kernel<T, kWide<T>, kIsCapped>>("cross_entropy_backward", grid, exec, args);
  else
    launch<gradient_kernel<T, 1, kIsCapped>>("cross_entropy_backward", grid, exec, args);
}

}  // namespace

size_t backward_cuda_workspace(const tcx_cross_entropy_backward_args& a, const tc_exec&) {
  Arena counting;
  carve(a, counting);
  return counting.used();
}

void backward_cuda(const tcx_cross_entropy_backward_args& a, const tc_exec& exec) {
  require_exact_exponentials("cross_entropy_backward", a.logits.dtype, exec);
  const DeviceGuard device(a.logits);
  Arena arena(exec.workspace);
  TargetTotals* const totals = carve(a, arena);
  const LossOptions options = loss_options(a, totals, exec);
  if (totals) total_targets(options, totals, exec);
  with_type(FloatTypes{}, a.logits.dtype, [&]<class T>() {
    with_value<false, true>("softcap", a.softcap > 0,
                            [&]<bool kIsCapped>() { backward<T, kIsCapped>(a, options, exec); });
  });
}

}  // namespace tc::ops::cross_entropy
