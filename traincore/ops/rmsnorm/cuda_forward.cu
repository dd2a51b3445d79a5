// RMSNorm forward on the GPU: one pass over the row, which stays in registers where it fits.
#include "traincore/core/dispatch.h"
#include "traincore/cuda/row_launch.h"
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

// A block without a residual is small enough for 1024 threads of 64 registers.
constexpr int32_t kMostThreads = 1024;
template <class Tile>
constexpr int most_threads(bool has_residual) {
  return Tile::Group::kIsBlock && !has_residual ? kMostThreads : Tile::kMostThreads;
}

template <class Tile, class T, bool kHasResidual>
__global__ void __launch_bounds__(most_threads<Tile>(kHasResidual)) forward_kernel(const ForwardArgs<T> a) {
  constexpr int kVec = Tile::template kVec<T>;
  typename Tile::Group group;
  const Columns<Tile, T> columns(group, a.x.cols);
  for (int64_t r = group.first_row(); r < a.x.count; r += group.row_stride()) {
    const KeptSum<Tile, T, kHasResidual> v(columns, a.x[r], kHasResidual ? a.residual[r] : nullptr);
    float squares = 0;
    columns.each([&](int c, int i) {
      const auto value = v(c, i);
#pragma unroll
      for (int j = 0; j < kVec; ++j) squares = fmaf(value[j], value[j], squares);
    });
    const float rstd = 1.0f / sqrtf(sum(group, squares) / float(columns.cols) + a.eps);
    T* const y = a.y[r];
    T* const residual_out = a.residual_out.data ? a.residual_out[r] : nullptr;
    a.gain.template visit<kVec>([&](const auto& gain) {
      columns.each([&](int c, int i) {
        const auto value = v(c, i), weight = gain(c);
        if (residual_out) store<Tile>(residual_out, c, value);
        store<Tile>(y, c, floats<kVec>([&](int j) { return value[j] * rstd * weight[j]; }));
      });
    });
    if (a.rstd.data && group.lane() == 0) *a.rstd[r] = rstd;
  }
}

template <class T>
void forward(const tcx_rmsnorm_forward_args& a, const tc_exec& exec, const RowPlan& plan) {
  const ForwardArgs<T> args{
      rows_of<const T>(a.x),    rows_of<const T>(a.residual),
      rows_of<T>(a.y),          rows_of<T>(a.residual_out),
      values_of<float>(a.rstd), {{a.weight.data, a.weight.dtype}, static_cast<float>(a.weight_offset)},
      static_cast<float>(a.eps)};
  with_row_tile(plan, [&]<class Tile>() {
    with_value<false, true>("residual", given(a.residual), [&]<bool kHasResidual>() {
      launch<forward_kernel<Tile, T, kHasResidual>>("rmsnorm_forward", grid_of(plan), exec, args);
    });
  });
}

}  // namespace

void forward_cuda(const tcx_rmsnorm_forward_args& a, const tc_exec& exec) {
  const DeviceGuard device(a.x);
  RowShape shape = row_shape({&a.x, &a.residual, &a.y, &a.residual_out}, {&a.weight});
  if (!given(a.residual)) shape.most_threads = kMostThreads;
  const RowPlan plan = plan_rows(shape, device.info());
  with_type(FloatTypes{}, a.x.dtype, [&]<class T>() { forward<T>(a, exec, plan); });
}

}  // namespace tc::ops::rmsnorm
