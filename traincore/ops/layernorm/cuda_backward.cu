// LayerNorm backward on the GPU. Where rows fit registers, a block takes a slab of rows and keeps its part of dweight and dbias, with
// the next row on its way while it works; else dx and the sums come from a pass each. Then the parts are added in order.
#include "traincore/core/arena.h"
#include "traincore/core/dispatch.h"
#include "traincore/cuda/column_sums.h"
#include "traincore/cuda/norm_backward.cuh"
#include "traincore/cuda/norm_mixed.h"
#include "traincore/cuda/slab_launch.h"
#include "traincore/ops/layernorm/cuda_plan.h"

namespace tc::ops::layernorm {
namespace {

using namespace tc::cuda;  // NOLINT(google-build-using-namespace): the vocabulary of GPU kernels

struct Slabs {
  float *dweight, *dbias;
};
Slabs carve(const tcx_layernorm_backward_args& a, const SlabbedPlan& plan, Arena& arena) {
  const int64_t each = plan.count() * a.dy.shape[a.dy.rank - 1];
  float* const dweight = arena.take<float>(given(a.dweight) ? each : 0);
  return {dweight, arena.take<float>(given(a.dbias) ? each : 0)};
}

template <class Norm, class T>
void launch_backward(const SlabbedPlan& plan, const tc_exec& exec, const NormBackwardArgs<T>& args) {
  const bool has_sums = args.dweight || args.dbias;
  if (has_sums && !plan.slabs)  // before dx, which may be dy
    with_value<false, true>("wide", plan.columns.is_wide, [&]<bool kIsWide>() {
      launch<norm_columns_kernel<Norm, T, kIsWide ? kWide<T> : 1>>("layernorm_backward_columns", grid_of(plan.columns),
                                                                   exec, args,
                                                                   ColumnTiles{plan.columns.tiles, plan.columns.slabs});
    });
  if (takes_slabs(plan, has_sums))
    return with_slab_tile<Norm>(*plan.slabs, [&]<class Tile>() {
      launch<norm_slab_kernel<Norm, Tile, T>>("layernorm_backward_slab", following(grid_of(*plan.slabs)), exec, args);
    });
  if (args.dx.data)
    with_row_tile(plan.rows, [&]<class Tile>() {
      launch<norm_dx_kernel<Norm, Tile, T>>("layernorm_backward_dx", grid_of(plan.rows), exec, args);
    });
}

template <class T>
void backward(const tcx_layernorm_backward_args& a, const tc_exec& exec, const SlabbedPlan& plan, const Slabs& slabs) {
  const NormBackwardArgs<T> args{rows_of<const T>(a.dy),
                                 rows_of<const T>(a.x),
                                 rows_of<const T>(a.residual),
                                 rows_of<const T>(a.dresidual_out),
                                 values_of<const float>(a.mean),
                                 values_of<const float>(a.rstd),
                                 rows_of<T>(a.dx),
                                 {{a.weight.data, a.weight.dtype}, 0},
                                 slabs.dweight,
                                 slabs.dbias,
                                 plan.slabs && plan.slabs->sends,
                                 plan.slabs && plan.slabs->stays};
  with_value<false, true>("residual", given(a.residual), [&]<bool kHasResidual>() {
    launch_backward<NormKind<true, kHasResidual, false>>(plan, exec, args);
  });
}

}  // namespace

size_t backward_cuda_workspace(const tcx_layernorm_backward_args& a, const tc_exec&) {
  Arena counting;
  carve(a, plan_backward(a, device_info(a.dy.device_index)), counting);
  return counting.used();
}

void backward_cuda(const tcx_layernorm_backward_args& a, const tc_exec& exec) {
  const DeviceGuard device(a.dy);
  const SlabbedPlan plan = plan_backward(a, device.info());
  Arena arena(exec.workspace);
  const Slabs slabs = carve(a, plan, arena);
  if (is_mixed(plan.rows.variant))
    mixed_norm_backward({.name = "layernorm_backward_mixed",
                         .is_centred = true,
                         .row_dtype = TC_DTYPE_F32,
                         .dy = a.dy,
                         .x = a.x,
                         .residual = a.residual,
                         .weight = a.weight,
                         .mean = a.mean,
                         .rstd = a.rstd,
                         .dresidual_out = a.dresidual_out,
                         .dx = a.dx,
                         .weight_offset = 0,
                         .dweight = slabs.dweight,
                         .dbias = slabs.dbias},
                        plan, exec);
  else
    with_type(FloatTypes{}, a.dy.dtype, [&]<class T>() { backward<T>(a, exec, plan, slabs); });
  if (slabs.dweight || slabs.dbias)
    sum_columns({{slabs.dweight, &a.dweight}, {slabs.dbias, &a.dbias}}, plan.count(), a.dy.shape[a.dy.rank - 1],
                a.accumulate != 0, exec);
}

}  // namespace tc::ops::layernorm
