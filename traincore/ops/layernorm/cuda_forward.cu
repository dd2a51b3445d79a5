// LayerNorm forward on the GPU: one pass over memory; the row stays in registers, or in shared memory, where it fits.
#include "traincore/core/dispatch.h"
#include "traincore/cuda/norm_forward.cuh"
#include "traincore/cuda/norm_mixed.h"
#include "traincore/cuda/row_launch.h"
#include "traincore/ops/layernorm/cuda_plan.h"

namespace tc::ops::layernorm {
namespace {

using namespace tc::cuda;  // NOLINT(google-build-using-namespace): the vocabulary of GPU kernels

template <class Norm, class T>
void launch_forward(const RowsPlan& plan, const tc_exec& exec, const NormForwardArgs<T>& args) {
  if constexpr (!Norm::kHasResidual)
    if (plan.ahead && plan.ahead->vectors == kBiasedNormAhead.vectors)
      return launch<norm_forward_ahead_kernel<Norm, AheadTile<kBiasedNormAhead.vectors>, T, kBiasedNormAhead.stages,
                                              (kBiasedNormAhead.stays_from > 0), true>>(
          "layernorm_forward_ahead", following(grid_of(*plan.ahead)), exec, args);
  if (plan.ahead)
    return launch<norm_forward_ahead_kernel<Norm, AheadTile<kFullNormAhead.vectors>, T, kFullNormAhead.stages,
                                            (kFullNormAhead.stays_from > 0)>>(
        "layernorm_forward_ahead", following(grid_of(*plan.ahead)), exec, args);
  with_row_tile<!Norm::kHasResidual>(plan.rows, [&]<class Tile>() {
    launch<norm_forward_kernel<Norm, Tile, T>>("layernorm_forward", following(grid_of(plan.rows)), exec, args);
  });
}

template <class T>
void forward(const tcx_layernorm_forward_args& a, const tc_exec& exec, const RowsPlan& plan) {
  const NormForwardArgs<T> args{rows_of<const T>(a.x),
                                rows_of<const T>(a.residual),
                                rows_of<T>(a.y),
                                rows_of<T>(a.residual_out),
                                values_of<float>(a.mean),
                                values_of<float>(a.rstd),
                                {{a.weight.data, a.weight.dtype}, 0},
                                {a.bias.data, a.bias.dtype},
                                static_cast<float>(a.eps),
                                1.0f / static_cast<float>(a.x.shape[a.x.rank - 1]),
                                plan.ahead && plan.ahead->sends,
                                plan.ahead && plan.ahead->stays,
                                plan.rows.in_flight};
  with_value<false, true>("residual", given(a.residual), [&]<bool kHasResidual>() {
    launch_forward<NormKind<true, kHasResidual, false>>(plan, exec, args);
  });
}

}  // namespace

void forward_cuda(const tcx_layernorm_forward_args& a, const tc_exec& exec) {
  const DeviceGuard device(a.x);
  const RowsPlan plan = plan_forward(a, device.info());
  if (is_mixed(plan.rows.variant))
    return mixed_norm_forward({.name = "layernorm_forward_mixed",
                               .is_centred = true,
                               .row_dtype = TC_DTYPE_F32,
                               .x = a.x,
                               .residual = a.residual,
                               .weight = a.weight,
                               .bias = a.bias,
                               .y = a.y,
                               .residual_out = a.residual_out,
                               .mean = a.mean,
                               .rstd = a.rstd,
                               .weight_offset = 0,
                               .eps = a.eps},
                              plan.rows, exec);
  with_type(FloatTypes{}, a.x.dtype, [&]<class T>() { forward<T>(a, exec, plan); });
}

}  // namespace tc::ops::layernorm
