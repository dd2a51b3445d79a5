// Cross entropy backward on the GPU: a stream over the logits, in pieces of rows.
#include "traincore/core/arena.h"
#include "traincore/core/dispatch.h"
#include "traincore/cuda/loss.cuh"
#include "traincore/cuda/row_launch.h"
#include "traincore/ops/cross_entropy/cuda_plan.h"

namespace tc::ops::cross_entropy {
namespace {

using namespace tc::cuda;  // NOLINT(google-build-using-namespace): the vocabulary of GPU kernels

constexpr int kThreads = 256;  // of a block
constexpr int kFewLanes = 32;  // threads of a piece, where they have a whole row; else all of a block
// Vectors of a thread.
template <int kVec>
constexpr int kVectors = kVec > 1 ? 4 : 16;

template <class T>
struct BackwardArgs {
  LossOptions options;
  Rows<const T> logits;
  Rows<T> dlogits;
  Rows<const float> dloss, row_max, row_log_sum;
  int64_t pieces;  // of a row
};

// Vectors of a row lie at multiples of 16 bytes, whatever the row's address: the first and the last may lie in it in part,
// and of those nothing but its elements is touched.
template <class T, int kVec>
class Vectors {
 public:
  __device__ __forceinline__ explicit Vectors(int cols) : cols_(cols) {}
  __device__ __forceinline__ bool has(int c) const { return c >= 0 && c < cols_; }
  __device__ __forceinline__ bool has_all_of(int c) const { return c >= 0 && c <= cols_ - kVec; }
  __device__ __forceinline__ Floats<kVec> load_part(const T* row, int c) const {
    return floats<kVec>([&](int j) { return has(c + j) ? to_f32(row[c + j]) : 0.0f; });
  }
  __device__ __forceinline__ void store(T* row, int c, const Floats<kVec>& x) const {
    if (has_all_of(c)) return Pack<T, kVec>::from(x).store(row + c);
#pragma unroll
    for (int j = 0; j < kVec; ++j)
      if (has(c + j)) row[c + j] = from_f32<T>(x[j]);
  }

 private:
  int cols_;
};

// The vectors of one thread, from the first on, `step` elements apart.
template <class T, int kVec, bool kIsCapped>
__device__ __forceinline__ void gradient_piece(const BackwardArgs<T>& a, int64_t r, int first, int step,
                                               double inverse) {
  const LossOptions& o = a.options;
  const int cols = int(a.logits.cols);
  const Vectors<T, kVec> vectors(cols);
  const T* const x = a.logits[r];
  T* const dlogits = a.dlogits[r];
  first -= int(reinterpret_cast<uintptr_t>(x) / sizeof(T) % kVec);
  const int64_t target = o.target[r];
  if (target == o.ignore_index) {
    for (int v = 0, c = first; v < kVectors<kVec> && c < cols; ++v, c += step)
      vectors.store(dlogits, c, floats<kVec>([](int) { return 0.0f; }));
    return;
  }
  Pack<T, kVec> packs[kVectors<kVec>];
#pragma unroll
  for (int v = 0; v < kVectors<kVec>; ++v)
    if (vectors.has_all_of(first + v * step)) packs[v] = Pack<T, kVec>::load(x + first + v * step);
  if (!o.is_class(target) && o.errors && first <= 0) atomicOr(o.errors, uint32_t{TC_BAD_TARGET});
  const float log_sum = *a.row_log_sum[r];
  const Logit<T, kIsCapped> logit(o);
  const ExpOfLogit<T> exp{logit.gain, *a.row_max[r]};
  const LossGradient gradient(o, logit, exp, o.weight(target), exp.max, log_sum, expf(-log_sum),
                              float(*a.dloss[r] * inverse));
#pragma unroll
  for (int v = 0; v < kVectors<kVec>; ++v) {
    const int c = first + v * step;
    if (c >= cols) return;
    const auto value = vectors.has_all_of(c) ? packs[v].f32() : vectors.load_part(x, c);
    vectors.store(dlogits, c, floats<kVec>([&](int j) { return gradient(value[j]); }));
    if (target >= c && target < c + kVec) {
      const auto at_target = floats<kVec>([&](int j) { return gradient.of_target(value[j]); });
#pragma unroll
      for (int j = 0; j < kVec; ++j)
        if (c + j == target) dlogits[c + j] = from_f32<T>(at_target[j]);
    }
  }
}

// kLanes threads a piece of a row.
template <class T, int kVec, int kLanes, bool kIsCapped>
__global__ void __launch_bounds__(kThreads) gradient_kernel(const BackwardArgs<T> a) {
  constexpr int kPieces = kThreads / kLanes;  // of a block
  const double inverse = inverse_normalizer(a.options);
  const int64_t count = a.logits.count * a.pieces;
  const int lane = int(threadIdx.x) % kLanes;
  for (int64_t piece = int64_t(blockIdx.x) * kPieces + int(threadIdx.x) / kLanes; piece < count;
       piece += int64_t(gridDim.x) * kPieces)
    gradient_piece<T, kVec, kIsCapped>(
        a, piece / a.pieces, (int(piece % a.pieces) * kVectors<kVec> * kLanes + lane) * kVec, kLanes * kVec, inverse);
}

TargetTotals* carve(const tcx_cross_entropy_backward_args& a, Arena& arena) {
  return arena.take<TargetTotals>(counts_targets(a) ? kTargetParts : 0);
}

template <class T, int kVec, bool kIsCapped>
void backward(const tcx_cross_entropy_backward_args& a, const RowShape& shape, const LossOptions& options,
              const tc_exec& exec) {
  const int64_t vectors = (shape.cols + (shape.aligned ? 0 : kVec - 1) + kVec - 1) / kVec;
  const auto launch_with = [&]<int kLanes>() {
    constexpr int64_t kOfPiece = int64_t{kLanes} * kVectors<kVec>;
    const BackwardArgs<T> args{options,
                               rows_of<const T>(a.logits),
                               rows_of<T>(a.dlogits),
                               values_of<const float>(a.dloss),  // a scalar is every row's
                               values_of<const float>(a.row_max),
                               values_of<const float>(a.row_log_sum),
                               (vectors + kOfPiece - 1) / kOfPiece};
    const Grid grid{blocks_for(shape.rows * args.pieces, kThreads / kLanes), kThreads};
    launch<gradient_kernel<T, kVec, kLanes, kIsCapped>>("cross_entropy_backward", grid, exec, args);
  };
  if (vectors <= int64_t{kFewLanes} * kVectors<kVec>) return launch_with.template operator()<kFewLanes>();
  launch_with.template operator()<kThreads>();
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
  const RowShape shape = backward_shape(a);
  with_type(FloatTypes{}, a.logits.dtype, [&]<class T>() {
    with_value<false, true>("softcap", a.softcap > 0, [&]<bool kIsCapped>() {
      if (takes_vectors(a, shape)) return backward<T, kWide<T>, kIsCapped>(a, shape, options, exec);
      backward<T, 1, kIsCapped>(a, shape, options, exec);
    });
  });
}

}  // namespace tc::ops::cross_entropy
