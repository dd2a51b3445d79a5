// Softmax and log-softmax backward on the GPU: one pass over the rows of y and dy, which stay in registers where they fit.
#include "traincore/core/dispatch.h"
#include "traincore/cuda/row_launch.h"
#include "traincore/cuda/softmax.cuh"
#include "traincore/ops/softmax/cuda_plan.h"

namespace tc::ops::softmax {
namespace {

using namespace tc::cuda;  // NOLINT(google-build-using-namespace): the vocabulary of GPU kernels

template <class T>
struct BackwardArgs {
  Rows<const T> y, dy;
  Rows<T> dx;
};

template <class Tile, class T>
__global__ void __launch_bounds__(Tile::kMostThreads) softmax_kernel(const BackwardArgs<T> a) {
  constexpr int kVec = Tile::template kVec<T>;
  typename Tile::Group group;
  const Columns<Tile, T> columns(group, a.y.cols);
  for (int64_t r = group.first_row(); r < a.y.count; r += group.row_stride()) {
    const Kept<Tile, T> y(columns, a.y[r]), dy(columns, a.dy[r]);
    float dot = 0;
    columns.each([&](int c, int v) {
      const auto p = y(c, v), g = dy(c, v);
#pragma unroll
      for (int j = 0; j < kVec; ++j) dot = fmaf(p[j], g[j], dot);
    });
    dot = sum(group, dot);
    T* const dx = a.dx[r];
    columns.each([&](int c, int v) {
      const auto p = y(c, v), g = dy(c, v);
      store<Tile>(dx, c, floats<kVec>([&](int j) { return p[j] * (g[j] - dot); }));
    });
  }
}

// Only a row whose elements were all -inf has a y without a finite maximum: its gradient is 0.
template <class Tile, class T>
__global__ void __launch_bounds__(Tile::kMostThreads) log_softmax_kernel(const BackwardArgs<T> a) {
  constexpr int kVec = Tile::template kVec<T>;
  typename Tile::Group group;
  const Columns<Tile, T> columns(group, a.y.cols);
  for (int64_t r = group.first_row(); r < a.y.count; r += group.row_stride()) {
    const Kept<Tile, T> y(columns, a.y[r]), dy(columns, a.dy[r]);
    float sums[2] = {0, 0};  // of dy; of ones where y is not -inf
    columns.each([&](int c, int v) {
      const auto value = y(c, v), g = dy(c, v);
#pragma unroll
      for (int j = 0; j < kVec; ++j) {
        sums[0] += g[j];
        if (value[j] != -kInfinity) sums[1] = 1;
      }
    });
    group.template reduce<Add>(sums);
    const float total = sums[0];
    const bool is_masked = sums[1] == 0;
    T* const dx = a.dx[r];
    columns.each([&](int c, int v) {
      const auto value = y(c, v), g = dy(c, v);
      store<Tile>(dx, c,
                  floats<kVec>([&](int j) { return is_masked ? 0.0f : fmaf(-exp_for<T>(value[j]), total, g[j]); }));
    });
  }
}

// launch.operator()<Tile, T>(plan, arguments) for the plan's tile and the call's dtype.
template <class A, class F>
void backward(const A& a, F&& launch_kernel) {
  const DeviceGuard device(a.y);
  const RowPlan plan = plan_backward(a, device.info());
  with_type(FloatTypes{}, a.y.dtype, [&]<class T>() {
    const BackwardArgs<T> args{rows_of<const T>(a.y), rows_of<const T>(a.dy), rows_of<T>(a.dx)};
    with_row_tile(plan, [&]<class Tile>() { launch_kernel.template operator()<Tile, T>(plan, args); });
  });
}

}  // namespace

void softmax_backward_cuda(const tcx_softmax_backward_args& a, const tc_exec& exec) {
  backward(a, [&]<class Tile, class T>(const RowPlan& plan, const BackwardArgs<T>& args) {
    launch<softmax_kernel<Tile, T>>("softmax_backward", grid_of(plan), exec, args);
  });
}
void log_softmax_backward_cuda(const tcx_log_softmax_backward_args& a, const tc_exec& exec) {
  require_exact_exponentials("log_softmax_backward", a.dy.dtype, exec);
  backward(a, [&]<class Tile, class T>(const RowPlan& plan, const BackwardArgs<T>& args) {
    launch<log_softmax_kernel<Tile, T>>("log_softmax_backward", grid_of(plan), exec, args);
  });
}

}  // namespace tc::ops::softmax
