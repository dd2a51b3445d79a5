// Cross entropy forward on the GPU, with dlogits on request: one pass over the logits, whose row stays in registers or
// shared memory where it fits, over a cluster of blocks if need be.
#include "traincore/core/arena.h"
#include "traincore/core/dispatch.h"
#include "traincore/cuda/loss.cuh"
#include "traincore/cuda/row_launch.h"
#include "traincore/cuda/row_sums.cuh"
#include "traincore/cuda/softmax.cuh"
#include "traincore/ops/cross_entropy/cuda_plan.h"

namespace tc::ops::cross_entropy {
namespace {

using namespace tc::cuda;  // NOLINT(google-build-using-namespace): the vocabulary of GPU kernels

template <class T>
struct ForwardArgs {
  LossOptions options;
  Rows<const T> logits;
  Rows<T> dlogits;
  Rows<const float> dloss;
  Rows<float> loss, z_loss_part, row_max, row_log_sum;
};

struct RowResult {
  float loss, z_loss_part, max, log_sum;
};
template <class T>
__device__ __forceinline__ void store_result(const ForwardArgs<T>& a, int64_t r, const RowResult& result) {
  if (a.loss.data) *a.loss[r] = result.loss;
  if (a.z_loss_part.data) *a.z_loss_part[r] = result.z_loss_part;
  if (a.row_max.data) *a.row_max[r] = result.max;
  if (a.row_log_sum.data) *a.row_log_sum[r] = result.log_sum;
}

template <class Tile, class T>
__device__ __forceinline__ void ignored_row(const ForwardArgs<T>& a, const typename Tile::Group& group,
                                            const Columns<Tile, T>& columns, int64_t r) {
  if (a.dlogits.data) {
    T* const dlogits = a.dlogits[r];
    columns.each(
        [&](int c, int) { store<Tile>(dlogits, c, floats<Tile::template kVec<T>>([](int) { return 0.0f; })); });
  }
  if (group.lane() == 0) store_result(a, r, {0, 0, 0, 0});
}

// x(c, v): the row's logits. A target that is no class makes the row NaN.
template <class Tile, class T, bool kIsCapped, class X>
__device__ __forceinline__ void valid_row(const ForwardArgs<T>& a, typename Tile::Group& group,
                                          const Columns<Tile, T>& columns, int64_t r, int64_t target,
                                          double inverse_normalizer, X&& x) {
  constexpr int kVec = Tile::template kVec<T>;
  const LossOptions& o = a.options;
  const bool is_class = o.is_class(target);
  if (!is_class && o.errors && group.lane() == 0) atomicOr(o.errors, uint32_t{TC_BAD_TARGET});
  const float x_target = to_f32(a.logits[r][is_class ? target : 0]);  // now: dlogits may take the logits' place
  const Logit<T, kIsCapped> logit(o);
  const SoftmaxStats stats = softmax_stats(group, columns, o.label_smoothing > 0, logit, x);
  // A row of -inf alone has no distribution.
  const float sum = stats.sum > 0 ? stats.sum : __builtin_nanf(""), log_sum = logf(sum), weight = o.weight(target);
  if (a.dlogits.data) {
    T* const dlogits = a.dlogits[r];
    const double dloss = (a.dloss.data ? double(*a.dloss[r]) : 1.0) * inverse_normalizer;
    const LossGradient<T, kIsCapped> gradient(o, logit, weight, stats.max, log_sum, 1 / sum, float(dloss));
    columns.each([&](int c, int v) {
      const auto value = x(c, v);
      store<Tile>(dlogits, c, floats<kVec>([&](int j) { return gradient(value[j]); }));
    });
    if (is_class && columns.has(int(target)))  // after its vector, which the same thread wrote
      dlogits[target] = from_f32<T>(gradient.of_target(x_target));
  }
  if (group.lane() != 0) return;
  const double s = o.label_smoothing, lse = double(stats.max) + log_sum, z_loss_part = o.z_loss * lse * lse;
  const float u_target = Logit<float, kIsCapped>(o)(x_target);
  double loss = weight * (1 - s) * ((double(stats.max) - u_target) + log_sum) + z_loss_part;
  if (s > 0) loss += s * (log_sum - double(stats.shifted) / o.classes);
  store_result(a, r, {float(loss), float(z_loss_part), stats.max, log_sum});
}

template <class Tile, class T, bool kIsCapped>
__global__ void __launch_bounds__(Tile::kMostThreads) row_kernel(const ForwardArgs<T> a) {
  typename Tile::Group group;
  const Columns<Tile, T> columns(group, a.logits.cols);
  const double inverse = a.dlogits.data ? inverse_normalizer(a.options) : 0;
  for (int64_t r = group.first_row(); r < a.logits.count; r += group.row_stride()) {
    const int64_t target = a.options.target[r];
    if (target == a.options.ignore_index) {
      ignored_row(a, group, columns, r);
      continue;
    }
    const Kept<Tile, T> x(columns, a.logits[r]);
    valid_row<Tile, T, kIsCapped>(a, group, columns, r, target, inverse, x);
  }
}

// For rows that take a cluster: the next ones are on their way while one waits for its other blocks.
template <class T, bool kIsCapped>
__global__ void __launch_bounds__(kWideThreads, kWideBlocks) wide_kernel(const ForwardArgs<T> a) {
  Block group;
  const Columns<WideTile, T> columns(group, a.logits.cols);
  const double inverse = a.dlogits.data ? inverse_normalizer(a.options) : 0;
  const auto is_wanted = [&](int64_t r) { return a.options.target[r] != a.options.ignore_index; };
  for_rows_ahead(group, columns, a.logits, kWideStages, is_wanted, [&](int64_t r, const auto& x) {
    const int64_t target = a.options.target[r];
    if (target == a.options.ignore_index)
      ignored_row(a, group, columns, r);
    else
      valid_row<WideTile, T, kIsCapped>(a, group, columns, r, target, inverse, x);
  });
}

struct Parts {
  TargetTotals* totals;
  float *loss, *z_loss_part;  // of rows, where they are then reduced
};
Parts carve(const tcx_cross_entropy_forward_args& a, Arena& arena) {
  const int64_t reduced = a.reduction == TC_REDUCTION_NONE ? 0 : element_count(a.target);
  return {arena.take<TargetTotals>(counts_targets(a) || given(a.valid_count) ? kTargetParts : 0),
          arena.take<float>(reduced), arena.take<float>(given(a.z_loss_part) ? reduced : 0)};
}

// Where rows leave a value: in the output, or in scratch if it is then reduced.
Rows<float> row_values(const tc_tensor& output, float* scratch, int64_t rows) {
  return values_of<float>(scratch ? tc_tensor_dense(scratch, TC_DTYPE_F32, 1, &rows) : output);
}

template <class T, bool kIsCapped>
void forward_rows(const ForwardArgs<T>& args, const RowPlan& plan, const tc_exec& exec) {
  if (plan.cluster > 1)
    return launch<wide_kernel<T, kIsCapped>>("cross_entropy_forward_wide", wide_grid(plan, args.logits.count), exec,
                                             args);
  with_row_tile(plan, [&]<class Tile>() {
    launch<row_kernel<Tile, T, kIsCapped>>("cross_entropy_forward", grid_of(plan), exec, args);
  });
}

}  // namespace

size_t forward_cuda_workspace(const tcx_cross_entropy_forward_args& a, const tc_exec&) {
  Arena counting;
  carve(a, counting);
  return counting.used();
}

void forward_cuda(const tcx_cross_entropy_forward_args& a, const tc_exec& exec) {
  require_exact_exponentials("cross_entropy_forward", a.logits.dtype, exec);
  const DeviceGuard device(a.logits);
  const RowPlan plan = plan_forward(a, device.info());
  Arena arena(exec.workspace);
  const Parts parts = carve(a, arena);
  const LossOptions options = loss_options(a, parts.totals, exec);
  if (parts.totals) total_targets(options, parts.totals, exec);
  const int64_t rows = options.target.count();
  with_type(FloatTypes{}, a.logits.dtype, [&]<class T>() {
    const ForwardArgs<T> args{options,
                              rows_of<const T>(a.logits),
                              rows_of<T>(a.dlogits),
                              values_of<const float>(a.dloss),
                              row_values(a.loss, parts.loss, rows),
                              row_values(a.z_loss_part, parts.z_loss_part, rows),
                              values_of<float>(a.row_max),
                              values_of<float>(a.row_log_sum)};
    with_value<false, true>("softcap", a.softcap > 0,
                            [&]<bool kIsCapped>() { forward_rows<T, kIsCapped>(args, plan, exec); });
  });
  const bool is_reduced = a.reduction != TC_REDUCTION_NONE;
  reduce_rows(options, {parts.loss, static_cast<float*>(is_reduced ? a.loss.data : nullptr)},
              {parts.z_loss_part, static_cast<float*>(is_reduced ? a.z_loss_part.data : nullptr)},
              static_cast<int64_t*>(a.valid_count.data), exec);
}

}  // namespace tc::ops::cross_entropy
