// Softmax and log-softmax backward on the GPU: one pass over the rows of y and dy, which stay in registers where they fit.
#include "traincore/core/dispatch.h"
#include "traincore/cuda/overlap.cuh"
#include "traincore/cuda/row_launch.h"
#include "traincore/cuda/rows_ahead.cuh"
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

// What a row's gradient is made of: kSums sums over the row, then an element by itself.
template <class T>
struct Softmax {
  static constexpr int kSums = 1;
  static __device__ __forceinline__ void add(float y, float dy, float (&sums)[kSums]) {
    sums[0] = fmaf(y, dy, sums[0]);
  }
  static __device__ __forceinline__ float dx(float y, float dy, const float (&sums)[kSums]) {
    return y * (dy - sums[0]);
  }
};
// Only a row whose elements were all -inf has a y without a finite element: its gradient is 0.
template <class T>
struct LogSoftmax {
  static constexpr int kSums = 2;  // of dy; of ones where y is not -inf
  static __device__ __forceinline__ void add(float y, float dy, float (&sums)[kSums]) {
    sums[0] += dy;
    if (y != -kInfinity) sums[1] = 1;
  }
  static __device__ __forceinline__ float dx(float y, float dy, const float (&sums)[kSums]) {
    return sums[1] == 0 ? 0.0f : fmaf(-exp_for<T>(y), sums[0], dy);
  }
};

template <class Of, class Tile, class T, class Y, class DY>
__device__ __forceinline__ void add_sums(const Columns<Tile, T>& columns, const Y& y, const DY& dy,
                                         float (&sums)[Of::kSums]) {
  columns.each([&](int c, int v) {
    const auto p = y(c, v), g = dy(c, v);
#pragma unroll
    for (int j = 0; j < Tile::template kVec<T>; ++j) Of::add(p[j], g[j], sums);
  });
}
template <class Of, class Tile, class T, class Y, class DY>
__device__ __forceinline__ void write_row(const Columns<Tile, T>& columns, const Y& y, const DY& dy,
                                          const float (&sums)[Of::kSums], T* dx) {
  columns.each([&](int c, int v) {
    const auto p = y(c, v), g = dy(c, v);
    store<Tile>(dx, c, floats<Tile::template kVec<T>>([&](int j) { return Of::dx(p[j], g[j], sums); }));
  });
}

template <class Of, class Tile, class T>
__global__ void __launch_bounds__(Tile::kMostThreads) backward_kernel(const BackwardArgs<T> a) {
  follow_stream();
  typename Tile::Group group;
  const Columns<Tile, T> columns(group, a.y.cols);
  for (int64_t r = group.first_row(); r < a.y.count; r += group.row_stride()) {
    const Kept<Tile, T> y(columns, a.y[r]), dy(columns, a.dy[r]);
    float sums[Of::kSums] = {};
    add_sums<Of>(columns, y, dy, sums);
    group.template reduce<Add>(sums);
    write_row<Of>(columns, y, dy, sums, a.dx[r]);
  }
}

// For rows that take a cluster.
template <class Of, class T>
__global__ void __launch_bounds__(kSoftmaxBackwardAhead.threads, kSoftmaxBackwardAhead.blocks)
    backward_ahead_kernel(const BackwardArgs<T> a) {
  using Tile = AheadTile<kSoftmaxBackwardAhead.vectors>;
  using Sums = RowValues<Of::kSums>;
  follow_stream();
  Cluster group;
  const Columns<Tile, T> columns(group, a.y.cols);
  RowsAhead<Tile, T, kSoftmaxBackwardAhead.stages, 2> ahead(columns, 0, false);
  AllReduce<Cluster, Of::kSums, AddUp<Of::kSums>> known(group, ahead.end(), {});
  const Turns turns(group, a.y.count, a.y, a.dy, a.dx);
  const RowsInTurn<const T> y(a.y, turns), dy(a.dy, turns);
  const RowsInTurn<T> dx(a.dx, turns);
  for_rows_ahead(
      turns, columns, ahead, known,
      [&](int turn) {
        return RowSources<T, 2>{{sure(y[turn]), sure(dy[turn])}};
      },
      [&](int, int stage) {
        Sums sums{};
        add_sums<Of>(columns, ahead.row(stage, 0), ahead.row(stage, 1), sums.at);
        group.template reduce_in_warp<Add>(sums.at);
        return sums;
      },
      [&](const auto& sums) { return sums(); },
      [&](int turn, int stage, const Sums& sums) {
        write_row<Of>(columns, ahead.row(stage, 0), ahead.row(stage, 1), sums.at, dx[turn]);
      });
}

// For rows that start at any address: both are held.
template <class Of, class Tile, class T>
__global__ void __launch_bounds__(Tile::kMostThreads, kHeldThreadsPerSm / Tile::kMostThreads)
    backward_held_kernel(const BackwardArgs<T> a) {
  using Group = typename Tile::Group;
  using Sums = RowValues<Of::kSums>;
  using InTurn = RowsAnywhere<Tile, T, kSoftmaxBackwardTwoAhead.stages, 2>;
  constexpr int kVec = InTurn::Columns::kVec;
  follow_stream();
  Group group;
  const RunColumns<Tile, T> columns(group, a.y.cols);
  InTurn rows(columns, 0);
  AllReduce<Group, Of::kSums, AddUp<Of::kSums>> known(group, rows.end(), {});
  const Turns turns(group, a.y.count, a.y, a.dy, a.dx);
  const RowsInTurn<const T> from_y(a.y, turns), from_dy(a.dy, turns);
  const RowsInTurn<T> dx(a.dx, turns);
  Pack<T, kVec> y[InTurn::Columns::kVectors], dy[InTurn::Columns::kVectors];
  for_rows_held(
      turns, columns, rows, known,
      [&](int turn) {
        return RowSources<T, 2>{{from_y[turn], from_dy[turn]}};
      },
      [&](int turn, int stage) {
        const auto y_row = rows.row(columns, stage, 0, from_y[turn]),
                   dy_row = rows.row(columns, stage, 1, from_dy[turn]);
        Sums sums{};
        columns.look([&]<bool kIsInside>(int c, int v) {
          y[v] = y_row.template pack<kIsInside>(v), dy[v] = dy_row.template pack<kIsInside>(v);
          const auto p = y[v].f32(), g = dy[v].f32();
#pragma unroll
          for (int j = 0; j < kVec; ++j)
            if (kIsInside || columns.in_row(c, j)) Of::add(p[j], g[j], sums.at);
        });
        group.template reduce_in_warp<Add>(sums.at);
        return sums;
      },
      [&](const auto& sums) { return sums(); },
      [&](int turn, int stage, const Sums& sums) {
        rows.write(columns, stage, dx[turn], Patch{}, [&](int, int v) {
          const auto p = y[v].f32(), g = dy[v].f32();
          return floats<kVec>([&](int j) { return Of::dx(p[j], g[j], sums.at); });
        });
      });
}

template <template <class> class Of, class A>
void backward(const char* name, const A& a, const tc_exec& exec) {
  const DeviceGuard device(a.y);
  const RowsPlan plan = plan_backward(name, a, device.info());
  with_type(FloatTypes{}, a.y.dtype, [&]<class T>() {
    const BackwardArgs<T> args{rows_of<const T>(a.y), rows_of<const T>(a.dy), rows_of<T>(a.dx)};
    if (plan.ahead && plan.ahead->anywhere)
      return with_anywhere_tile<T, kSoftmaxBackwardTwoAhead.vectors>(*plan.ahead, [&]<class Tile>() {
        launch<backward_held_kernel<Of<T>, Tile, T>>(name, following(grid_of(*plan.ahead)), exec, args);
      });
    if (plan.ahead) return launch<backward_ahead_kernel<Of<T>, T>>(name, following(grid_of(*plan.ahead)), exec, args);
    with_row_tile(plan.rows, [&]<class Tile>() {
      launch<backward_kernel<Of<T>, Tile, T>>(name, following(grid_of(plan.rows)), exec, args);
    });
  });
}

}  // namespace

void softmax_backward_cuda(const tcx_softmax_backward_args& a, const tc_exec& exec) {
  backward<Softmax>("softmax_backward", a, exec);
}
void log_softmax_backward_cuda(const tcx_log_softmax_backward_args& a, const tc_exec& exec) {
  require_exact_exponentials("log_softmax_backward", a.dy.dtype, exec);
  backward<LogSoftmax>("log_softmax_backward", a, exec);
}

}  // namespace tc::ops::softmax
