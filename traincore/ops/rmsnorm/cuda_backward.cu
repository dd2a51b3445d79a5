// RMSNorm backward on the GPU. Where rows fit registers, a block takes a slab of rows and keeps its part of dweight, with
// the next row on its way while it works; else dx and dweight come from a pass each. Then the parts are added in order.
#include "traincore/core/arena.h"
#include "traincore/core/dispatch.h"
#include "traincore/cuda/column_sums.h"
#include "traincore/cuda/norm_backward.cuh"
#include "traincore/cuda/norm_mixed.h"
#include "traincore/cuda/slab_launch.h"
#include "traincore/ops/rmsnorm/cuda_plan.h"
#include "traincore/ops/rmsnorm/plan.h"

namespace tc::ops::rmsnorm {
namespace {

using namespace tc::cuda;  // NOLINT(google-build-using-namespace): the vocabulary of GPU kernels

float* carve(const tcx_rmsnorm_backward_args& a, const SlabbedPlan& plan, Arena& arena) {
  return arena.take<float>(given(a.dweight) ? plan.count() * a.dy.shape[a.dy.rank - 1] : 0);
}

template <class Norm, class T>
void launch_backward(const SlabbedPlan& plan, const tc_exec& exec, const NormBackwardArgs<T>& args) {
  const bool has_sums = args.dweight != nullptr;
  if (has_sums && !plan.slabs)  // before dx, which may be dy
    with_value<false, true>("wide", plan.columns.is_wide, [&]<bool kIsWide>() {
      launch<norm_columns_kernel<Norm, T, kIsWide ? kWide<T> : 1>>("rmsnorm_backward_dweight", grid_of(plan.columns),
                                                                   exec, args,
                                                                   ColumnTiles{plan.columns.tiles, plan.columns.slabs});
    });
  if (takes_slabs(plan, has_sums))
    return with_slab_tile<Norm>(*plan.slabs, [&]<class Tile>() {
      launch<norm_slab_kernel<Norm, Tile, T>>("rmsnorm_backward_slab", following(grid_of(*plan.slabs)), exec, args);
    });
  if (args.dx.data)
    with_row_tile(plan.rows, [&]<class Tile>() {
      launch<norm_dx_kernel<Norm, Tile, T>>("rmsnorm_backward_dx", grid_of(plan.rows), exec, args);
    });
}

template <class T>
void backward(const tcx_rmsnorm_backward_args& a, const tc_exec& exec, const SlabbedPlan& plan, float* slabs) {
  const NormBackwardArgs<T> args{rows_of<const T>(a.dy),
                                 rows_of<const T>(a.x),
                                 rows_of<const T>(a.residual),
                                 rows_of<const T>(a.dresidual_out),
                                 {},
                                 values_of<const float>(a.rstd),
                                 rows_of<T>(a.dx),
                                 {{a.weight.data, a.weight.dtype}, static_cast<float>(a.weight_offset)},
                                 slabs,
                                 nullptr,
                                 plan.slabs && plan.slabs->sends,
                                 plan.slabs && plan.slabs->stays};
  with_value<false, true>("residual", given(a.residual), [&]<bool kHasResidual>() {
    if constexpr (sizeof(T) < sizeof(float))  // rounding to f32 changes nothing
      if (a.rounding == TC_ROUND_BEFORE_WEIGHT)
        return launch_backward<NormKind<false, kHasResidual, true>>(plan, exec, args);
    launch_backward<NormKind<false, kHasResidual, false>>(plan, exec, args);
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
  const SlabbedPlan plan = plan_backward(a, device.info());
  Arena arena(exec.workspace);
  float* const slabs = carve(a, plan, arena);
  if (is_mixed(plan.rows.variant))
    mixed_norm_backward({.name = "rmsnorm_backward_mixed",
                         .is_centred = false,
                         .row_dtype = rounded_to(a),
                         .dy = a.dy,
                         .x = a.x,
                         .residual = a.residual,
                         .weight = a.weight,
                         .mean = {},
                         .rstd = a.rstd,
                         .dresidual_out = a.dresidual_out,
                         .dx = a.dx,
                         .weight_offset = a.weight_offset,
                         .dweight = slabs,
                         .dbias = nullptr},
                        plan, exec);
  else
    with_type(FloatTypes{}, a.dy.dtype, [&]<class T>() { backward<T>(a, exec, plan, slabs); });
  if (slabs) sum_columns({{slabs, &a.dweight}}, plan.count(), a.dy.shape[a.dy.rank - 1], a.accumulate != 0, exec);
}

}  // namespace tc::ops::rmsnorm
