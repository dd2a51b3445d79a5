// RMSNorm backward on the GPU. Where rows fit registers, a block takes a slab of rows and keeps its part of dweight, with
// the next row on its way while it works; else dx and dweight come from a pass each. Then the parts are added in order.
#include "traincore/core/arena.h"
#include "traincore/core/dispatch.h"
#include "traincore/cuda/column_sums.h"
#include "traincore/cuda/row_launch.h"
#include "traincore/cuda/row_sums.cuh"
#include "traincore/cuda/rows.cuh"
#include "traincore/ops/rmsnorm/rmsnorm.h"

namespace tc::ops::rmsnorm {
namespace {

using namespace tc::cuda;  // NOLINT(google-build-using-namespace): the vocabulary of GPU kernels

template <class T>
struct BackwardArgs {
  Rows<const T> dy, x, residual, dresidual_out;
  Rows<const float> rstd;
  Rows<T> dx;
  Gain gain;
  float* slabs;  // [slabs, cols], or NULL
  int stages;
};

// Rows of a slab, the next ones on their way into shared memory while one is worked on; this block's part of dweight stays
// in registers.
template <class Tile, class T, bool kHasResidual>
__global__ void __launch_bounds__(Tile::kMostThreads, 512 / Tile::kMostThreads) slab_kernel(const BackwardArgs<T> a) {
  constexpr int kVec = Tile::template kVec<T>, kX = 1, kResidual = 2, kMore = 2 + kHasResidual;
  typename Tile::Group group;
  const Columns<Tile, T> columns(group, a.dy.cols);
  const bool has_more = a.dresidual_out.data != nullptr;
  RowsAhead<Tile, T> ahead(kMore + has_more, a.stages);
  const KeptGain<Tile, T> gain(columns, a.gain, ahead.end());
  RowSums<Tile, T> dweight;
  const auto load = [&](int64_t r, int stage) {
    if (r < a.dy.count) {
      ahead.load(columns, stage, 0, a.dy[r]);
      ahead.load(columns, stage, kX, a.x[r]);
      if constexpr (kHasResidual) ahead.load(columns, stage, kResidual, a.residual[r]);
      if (has_more) ahead.load(columns, stage, kMore, a.dresidual_out[r]);
    }
    ahead.commit();
  };
  const int64_t first = group.first_row(), stride = group.row_stride();
  for (int s = 0; s + 1 < a.stages; ++s) load(first + s * stride, s);
  int stage = 0, last = a.stages - 1;
  float next_rstd = first < a.dy.count ? *a.rstd[first] : 0;
  for (int64_t r = first; r < a.dy.count; r += stride) {
    load(r + (a.stages - 1) * stride, last);
    const float rstd = next_rstd;
    if (r + stride < a.dy.count) next_rstd = *a.rstd[r + stride];
    ahead.wait();
    const auto v = [&](int i) {
      auto value = ahead(stage, kX, i);
      if constexpr (kHasResidual) add_to(value, ahead(stage, kResidual, i));
      return value;
    };
    float dot = 0;
    columns.each([&](int, int i) {
      const auto g = ahead(stage, 0, i), w = gain(i), value = v(i);
#pragma unroll
      for (int j = 0; j < kVec; ++j) dot = fmaf(g[j] * w[j], value[j], dot);
      dweight.add(i, g, floats<kVec>([&](int j) { return value[j] * rstd; }));
    });
    if (a.dx.data) {
      const float pull = rstd * rstd * (sum(group, dot) / float(columns.cols));
      T* const dx = a.dx[r];
      columns.each([&](int c, int i) {
        const auto g = ahead(stage, 0, i), w = gain(i), value = v(i);
        auto gradient = floats<kVec>([&](int j) { return rstd * fmaf(value[j], -pull, g[j] * w[j]); });
        if (has_more) add_to(gradient, ahead(stage, kMore, i));
        store<Tile>(dx, c, gradient);
      });
    }
    last = stage;
    stage = stage + 1 < a.stages ? stage + 1 : 0;
  }
  dweight.store(group, columns, a.slabs);
}

// dx alone, rows of any width.
template <class Tile, class T, bool kHasResidual>
__global__ void __launch_bounds__(Tile::kMostThreads) dx_kernel(const BackwardArgs<T> a) {
  constexpr int kVec = Tile::template kVec<T>;
  typename Tile::Group group;
  const Columns<Tile, T> columns(group, a.dy.cols);
  for (int64_t r = group.first_row(); r < a.dy.count; r += group.row_stride()) {
    const Kept<Tile, T> dy(columns, a.dy[r]);
    const KeptSum<Tile, T, kHasResidual> v(columns, a.x[r], kHasResidual ? a.residual[r] : nullptr);
    const T* const dresidual_out = a.dresidual_out.data ? a.dresidual_out[r] : nullptr;
    const float rstd = *a.rstd[r];
    float dot = 0;
    columns.each([&](int c, int i) {
      const auto g = dy(c, i), value = v(c, i), w = a.gain.template load<kVec>(c);
#pragma unroll
      for (int j = 0; j < kVec; ++j) dot = fmaf(g[j] * w[j], value[j], dot);
    });
    const float pull = rstd * rstd * (sum(group, dot) / float(columns.cols));
    T* const dx = a.dx[r];
    columns.each([&](int c, int i) {
      const auto g = dy(c, i), value = v(c, i), w = a.gain.template load<kVec>(c);
      auto gradient = floats<kVec>([&](int j) { return rstd * fmaf(value[j], -pull, g[j] * w[j]); });
      if (dresidual_out) add_to(gradient, Pack<T, kVec>::load(dresidual_out + c).f32());
      store<Tile>(dx, c, gradient);
    });
  }
}

// A slab's dweight, kVec columns a thread.
template <class T, int kVec, bool kHasResidual>
__global__ void __launch_bounds__(kColumnThreads) dweight_kernel(const BackwardArgs<T> a, const ColumnTiles tiles) {
  const int64_t c = tiles.column(kVec);
  if (c >= a.dy.cols) return;
  auto dweight = floats<kVec>([](int) { return 0.0f; });
  for (int64_t r = tiles.first_row(a.dy.count); r < tiles.end_row(a.dy.count); ++r) {
    const auto g = Pack<T, kVec>::load(a.dy[r] + c).f32();
    auto value = Pack<T, kVec>::load(a.x[r] + c).f32();
    if constexpr (kHasResidual) add_to(value, Pack<T, kVec>::load(a.residual[r] + c).f32());
    const float rstd = *a.rstd[r];
#pragma unroll
    for (int j = 0; j < kVec; ++j) dweight[j] = fmaf(g[j], value[j] * rstd, dweight[j]);
  }
#pragma unroll
  for (int j = 0; j < kVec; ++j) a.slabs[tiles.slab() * a.dy.cols + c + j] = dweight[j];
}

struct Plan {
  RowPlan rows;
  SlabPlan slabs;
  ColumnPlan columns;  // of the pass over columns, where the rows are not kept
  bool has_dweight, keeps_rows;
  int64_t count() const { return keeps_rows ? slabs.slabs : columns.slabs; }
};

Plan plan_backward(const tcx_rmsnorm_backward_args& a, const DeviceInfo& device) {
  const RowShape shape = row_shape({&a.dy, &a.x, &a.residual, &a.dresidual_out, &a.dx}, {&a.weight});
  const RowPlan rows = plan_rows(shape, device);
  return {rows, plan_slabs(shape, rows, 2 + given(a.residual) + given(a.dresidual_out)), plan_columns(shape),
          given(a.dweight), keeps(rows.variant)};
}

float* carve(const tcx_rmsnorm_backward_args& a, const Plan& plan, Arena& arena) {
  return plan.has_dweight ? arena.take<float>(plan.count() * a.dy.shape[a.dy.rank - 1]) : nullptr;
}

template <class T, bool kHasResidual>
void backward(const tcx_rmsnorm_backward_args& a, const tc_exec& exec, const Plan& plan, float* slabs) {
  const BackwardArgs<T> args{rows_of<const T>(a.dy),
                             rows_of<const T>(a.x),
                             rows_of<const T>(a.residual),
                             rows_of<const T>(a.dresidual_out),
                             values_of<const float>(a.rstd),
                             rows_of<T>(a.dx),
                             {{a.weight.data, a.weight.dtype}, static_cast<float>(a.weight_offset)},
                             slabs,
                             plan.slabs.stages};
  if (slabs && !plan.keeps_rows)  // before dx, which may be dy
    with_value<false, true>("wide", plan.columns.is_wide, [&]<bool kIsWide>() {
      launch<dweight_kernel<T, kIsWide ? kWide<T> : 1, kHasResidual>>(
          "rmsnorm_backward_dweight", grid_of(plan.columns), exec, args,
          ColumnTiles{plan.columns.tiles, plan.columns.slabs});
    });
  with_row_tile(plan.rows, [&]<class Tile>() {
    if constexpr (Tile::kVectors > 0)
      if (slabs)
        return launch<slab_kernel<Tile, T, kHasResidual>>("rmsnorm_backward_slab", grid_of(plan.rows, plan.slabs), exec,
                                                          args);
    if (given(a.dx)) launch<dx_kernel<Tile, T, kHasResidual>>("rmsnorm_backward_dx", grid_of(plan.rows), exec, args);
  });
}

}  // namespace

size_t backward_cuda_workspace(const tcx_rmsnorm_backward_args& a, const tc_exec&) {
  Arena counting;
  carve(a, plan_backward(a, device_info(a.dy.device_index)), counting);
  return counting.used();
}

void backward_cuda(const tcx_rmsnorm_backward_args& a, const tc_exec& exec) {
  const DeviceGuard device(a.dy);
  const Plan plan = plan_backward(a, device.info());
  Arena arena(exec.workspace);
  float* const slabs = carve(a, plan, arena);
  with_type(FloatTypes{}, a.dy.dtype, [&]<class T>() {
    with_value<false, true>("residual", given(a.residual),
                            [&]<bool kHasResidual>() { backward<T, kHasResidual>(a, exec, plan, slabs); });
  });
  if (slabs) sum_columns({{slabs, &a.dweight}}, plan.count(), a.dy.shape[a.dy.rank - 1], a.accumulate != 0, exec);
}

}  // namespace tc::ops::rmsnorm
