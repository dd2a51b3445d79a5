// Softmax and log-softmax forward on the GPU: one pass over the row, which stays in registers where it fits.
#include "traincore/core/dispatch.h"
#include "traincore/cuda/row_launch.h"
#include "traincore/cuda/row_sums.cuh"
#include "traincore/cuda/softmax.cuh"
#include "traincore/ops/softmax/cuda_plan.h"

namespace tc::ops::softmax {
namespace {

using namespace tc::cuda;  // NOLINT(google-build-using-namespace): the vocabulary of GPU kernels

template <bool kIsLog, class Tile, class T, class X>
__device__ __forceinline__ void forward_row(typename Tile::Group& group, const Columns<Tile, T>& columns, const X& x,
                                            T* y) {
  const SoftmaxStats stats = softmax_stats(group, columns, false, Plain{}, x);
  const float shift = stats.shift(), last = kIsLog ? stats.log_sum() : stats.inverse_sum();
  columns.each([&](int c, int v) {
    const auto value = x(c, v);
    store<Tile>(y, c, floats<Tile::template kVec<T>>([&](int j) {
                  return kIsLog ? (value[j] - shift) - last : exp_for<T>(value[j] - shift) * last;
                }));
  });
}

template <class Tile, class T, bool kIsLog>
__global__ void __launch_bounds__(Tile::kMostThreads) forward_kernel(const Rows<const T> from, const Rows<T> to) {
  typename Tile::Group group;
  const Columns<Tile, T> columns(group, from.cols);
  for (int64_t r = group.first_row(); r < from.count; r += group.row_stride())
    forward_row<kIsLog, Tile, T>(group, columns, Kept<Tile, T>(columns, from[r]), to[r]);
}

// For rows that take a cluster: the next ones are on their way while one waits for its other blocks.
template <class T, bool kIsLog>
__global__ void __launch_bounds__(kWideThreads, kWideBlocks) wide_kernel(const Rows<const T> from, const Rows<T> to) {
  Block group;
  const Columns<WideTile, T> columns(group, from.cols);
  for_rows_ahead(
      group, columns, from, kWideStages, [](int64_t) { return true; },
      [&](int64_t r, const auto& x) { forward_row<kIsLog, WideTile, T>(group, columns, x, to[r]); });
}

template <bool kIsLog>
void forward(const char* name, const tc_tensor& x, const tc_tensor& y, const tc_exec& exec) {
  const DeviceGuard device(x);
  const RowPlan plan = plan_forward(x, y, device.info());
  with_type(FloatTypes{}, x.dtype, [&]<class T>() {
    const auto from = rows_of<const T>(x);
    const auto to = rows_of<T>(y);
    if (plan.cluster > 1) return launch<wide_kernel<T, kIsLog>>(name, wide_grid(plan, from.count), exec, from, to);
    with_row_tile(plan,
                  [&]<class Tile>() { launch<forward_kernel<Tile, T, kIsLog>>(name, grid_of(plan), exec, from, to); });
  });
}

}  // namespace

void softmax_forward_cuda(const tcx_softmax_forward_args& a, const tc_exec& exec) {
  require_exact_exponentials("softmax_forward", a.x.dtype, exec);
  forward<false>("softmax_forward", a.x, a.y, exec);
}
void log_softmax_forward_cuda(const tcx_log_softmax_forward_args& a, const tc_exec& exec) {
  require_exact_exponentials("log_softmax_forward", a.x.dtype, exec);
  forward<true>("log_softmax_forward", a.x, a.y, exec);
}

}  // namespace tc::ops::softmax
