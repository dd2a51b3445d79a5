// Softmax and log-softmax forward on the GPU: one pass over the row, which stays in registers where it fits.
#include "traincore/core/dispatch.h"
#include "traincore/cuda/row_launch.h"
#include "traincore/cuda/softmax.cuh"
#include "traincore/ops/softmax/cuda_plan.h"

namespace tc::ops::softmax {
namespace {

using namespace tc::cuda;  // NOLINT(google-build-using-namespace): the vocabulary of GPU kernels

// y = exp(x) times `last`, or x - shift - `last`.
template <bool kIsLog, class Tile, class T, class Exp, class X>
__device__ __forceinline__ void write_row(const Columns<Tile, T>& columns, const X& x, const Exp& exp, float shift,
                                          float last, T* y) {
  map_row(columns, x, y, [&](float value) { return kIsLog ? (value - shift) - last : exp(value) * last; });
}

template <class Tile, class T, bool kIsLog>
__global__ void __launch_bounds__(Tile::kMostThreads) forward_kernel(const Rows<const T> from, const Rows<T> to) {
  typename Tile::Group group;
  const Columns<Tile, T> columns(group, from.cols);
  for (int64_t r = group.first_row(); r < from.count; r += group.row_stride()) {
    const Kept<Tile, T> x(columns, from[r]);
    const SoftmaxStats stats = softmax_stats(group, columns, false, Plain{}, x);
    const float shift = stats.shift();
    write_row<kIsLog>(
        columns, x, [shift](float value) { return exp_for<T>(value - shift); }, shift,
        kIsLog ? stats.log_sum() : stats.inverse_sum(), to[r]);
  }
}

// For rows that take a cluster. A row of -inf alone is 0, or -inf.
template <class T, bool kIsLog>
__global__ void __launch_bounds__(kSoftmaxAhead.threads, kSoftmaxAhead.blocks)
    forward_ahead_kernel(const Rows<const T> from, const Rows<T> to) {
  using Tile = AheadTile<kSoftmaxAhead.vectors>;
  Block group;
  const Columns<Tile, T> columns(group, from.cols);
  RowsAhead<Tile, T, kSoftmaxAhead.stages, 1> ahead(columns, -kInfinity);
  Exchange<Block, 4> exchange(group, ahead.end());
  const int own = columns.count();
  for_rows_ahead(
      group, columns, from.count, ahead, exchange, [&](int64_t r) { return RowSources<T, 1>{{from[r]}}; },
      [&](int64_t, int stage) { return softmax_facts(group, columns, own, false, Plain{}, ahead.row(stage)); },
      [&](const auto& facts) { return softmax_row<T>(facts, 1.0f); },
      [&](int64_t r, int stage, const SoftmaxRow<T>& row) {
        const bool is_empty = row.sum == 0;
        const float last = is_empty ? 0.0f : kIsLog ? row.log_sum() : 1.0f / row.sum;
        write_row<kIsLog>(columns, ahead.row(stage), row.exp(), is_empty ? 0.0f : row.top, last, to[r]);
      });
}

template <bool kIsLog>
void forward(const char* name, const tc_tensor& x, const tc_tensor& y, const tc_exec& exec) {
  const DeviceGuard device(x);
  const RowsPlan plan = plan_forward(x, y, device.info());
  with_type(FloatTypes{}, x.dtype, [&]<class T>() {
    const auto from = rows_of<const T>(x);
    const auto to = rows_of<T>(y);
    if (plan.ahead) return launch<forward_ahead_kernel<T, kIsLog>>(name, grid_of(*plan.ahead), exec, from, to);
    with_row_tile(plan.rows, [&]<class Tile>() {
      launch<forward_kernel<Tile, T, kIsLog>>(name, grid_of(plan.rows), exec, from, to);
    });
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
