// RMSNorm forward on the GPU: one pass over the row, which stays in registers where it fits.
#include "traincore/core/dispatch.h"
#include "traincore/cuda/row_launch.h"
#include "traincore/cuda/row_sums.cuh"
#include "traincore/cuda/rows.cuh"
#include "traincore/ops/rmsnorm/rmsnorm.h"

namespace tc::ops::rmsnorm {
namespace {

using namespace tc::cuda;  // NOLINT(google-build-using-namespace): the vocabulary of GPU kernels

template <class T>
struct ForwardArgs {
  Rows<const T> x, residual;
  Rows<T> y, residual_out;
  Rows<float> rstd;
  Gain gain;
  float eps;
};

// What follows the row's sum of squares.
template <class Tile, class T, class V>
__device__ __forceinline__ void write_row(const ForwardArgs<T>& a, const Columns<Tile, T>& columns, int64_t r,
                                          float rstd, const V& v) {
  constexpr int kVec = Tile::template kVec<T>;
  T* const y = a.y[r];
  T* const residual_out = a.residual_out.data ? a.residual_out[r] : nullptr;
  a.gain.template visit<kVec>([&](const auto& gain) {
    columns.each([&](int c, int i) {
      const auto value = v(c, i), weight = gain(c);
      if (residual_out) store<Tile>(residual_out, c, value);
      store<Tile>(y, c, floats<kVec>([&](int j) { return value[j] * rstd * weight[j]; }));
    });
  });
  if (a.rstd.data && columns.lane == 0) *a.rstd[r] = rstd;
}

template <class Tile, class T, class V>
__device__ __forceinline__ float rstd_of(const ForwardArgs<T>& a, typename Tile::Group& group,
                                         const Columns<Tile, T>& columns, const V& v) {
  float squares = 0;
  columns.each([&](int c, int i) {
    const auto value = v(c, i);
#pragma unroll
    for (int j = 0; j < Tile::template kVec<T>; ++j) squares = fmaf(value[j], value[j], squares);
  });
  return 1.0f / sqrtf(sum(group, squares) / float(columns.cols) + a.eps);
}

template <class Tile, class T, bool kHasResidual>
__global__ void __launch_bounds__(Tile::kMostThreads) forward_kernel(const ForwardArgs<T> a) {
  typename Tile::Group group;
  const Columns<Tile, T> columns(group, a.x.cols);
  for (int64_t r = group.first_row(); r < a.x.count; r += group.row_stride()) {
    const KeptSum<Tile, T, kHasResidual> v(columns, a.x[r], kHasResidual ? a.residual[r] : nullptr);
    write_row<Tile>(a, columns, r, rstd_of<Tile>(a, group, columns, v), v);
  }
}

// For rows that take a cluster: the next rows are on their way while one waits for its other blocks.
template <class Tile, class T, bool kHasResidual>
__global__ void __launch_bounds__(Tile::kMostThreads, 2) ahead_kernel(const ForwardArgs<T> a, const int stages) {
  typename Tile::Group group;
  const Columns<Tile, T> columns(group, a.x.cols);
  RowsAhead<Tile, T> ahead(1 + kHasResidual, stages);
  const auto load = [&](int64_t r, int stage) {
    if (r < a.x.count) {
      ahead.load(columns, stage, 0, a.x[r]);
      if constexpr (kHasResidual) ahead.load(columns, stage, 1, a.residual[r]);
    }
    ahead.commit();
  };
  const int64_t first = group.first_row(), stride = group.row_stride();
  for (int s = 0; s + 1 < stages; ++s) load(first + s * stride, s);
  int stage = 0, last = stages - 1;
  for (int64_t r = first; r < a.x.count; r += stride) {
    load(r + (stages - 1) * stride, last);
    ahead.wait();
    const auto v = [&](int, int i) {
      auto value = ahead(stage, 0, i);
      if constexpr (kHasResidual) add_to(value, ahead(stage, 1, i));
      return value;
    };
    write_row<Tile>(a, columns, r, rstd_of<Tile>(a, group, columns, v), v);
    last = stage;
    stage = stage + 1 < stages ? stage + 1 : 0;
  }
}

template <class T>
void forward(const tcx_rmsnorm_forward_args& a, const tc_exec& exec, const RowPlan& plan) {
  const ForwardArgs<T> args{
      rows_of<const T>(a.x),    rows_of<const T>(a.residual),
      rows_of<T>(a.y),          rows_of<T>(a.residual_out),
      values_of<float>(a.rstd), {{a.weight.data, a.weight.dtype}, static_cast<float>(a.weight_offset)},
      static_cast<float>(a.eps)};
  with_value<false, true>("residual", given(a.residual), [&]<bool kHasResidual>() {
    if (plan.cluster > 1) {
      const AheadPlan ahead = plan_ahead(plan, 1 + kHasResidual);
      return launch<ahead_kernel<RowTile<Block, true, 4>, T, kHasResidual>>(
          "rmsnorm_forward_ahead", grid_of(plan, ahead), exec, args, ahead.stages);
    }
    with_row_tile(plan, [&]<class Tile>() {
      launch<forward_kernel<Tile, T, kHasResidual>>("rmsnorm_forward", grid_of(plan), exec, args);
    });
  });
}

}  // namespace

void forward_cuda(const tcx_rmsnorm_forward_args& a, const tc_exec& exec) {
  const DeviceGuard device(a.x);
  const RowPlan plan = plan_rows(row_shape({&a.x, &a.residual, &a.y, &a.residual_out}, {&a.weight}), device.info());
  with_type(FloatTypes{}, a.x.dtype, [&]<class T>() { forward<T>(a, exec, plan); });
}

}  // namespace tc::ops::rmsnorm
