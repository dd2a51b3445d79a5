#include "traincore/cuda/norm_mixed.h"

#include "traincore/core/dispatch.h"
#include "traincore/cuda/elements.cuh"
#include "traincore/cuda/norm_backward.cuh"
#include "traincore/cuda/norm_forward.cuh"
#include "traincore/cuda/row_launch.h"

namespace tc::cuda {
namespace {

template <bool kIsWide>
using MixedTile = RowTile<Block, kIsWide, 0>;
template <bool kCentred>
using MixedNorm = NormKind<kCentred, true, false>;

__device__ __forceinline__ AnyVector row_of(const AnyTable& t, int64_t r) {
  return {t.rows.data ? t.at(r, 0) : nullptr, t.dtype};
}

template <int N>
__device__ __forceinline__ Floats<N> rounded_to(int32_t dtype, const Floats<N>& x) {
  if (dtype == TC_DTYPE_BF16) return rounded<bf16>(x);
  return dtype == TC_DTYPE_F16 ? rounded<f16>(x) : x;
}

// One row of v = x (+ residual). Without a residual it has x's dtype, and rounding changes nothing.
struct MixedRow {
  AnyVector x, residual;
  int32_t dtype;
  template <int N>
  __device__ __forceinline__ Floats<N> load(int c) const {
    auto v = x.load<N>(c);
    if (!residual.data) return v;
    add_to(v, residual.load<N>(c));
    return rounded_to(dtype, v);
  }
};

struct ForwardArgs {
  AnyTable x, residual, y, residual_out;
  Rows<float> mean, rstd;
  Gain gain;
  AnyVector bias;
  float eps;
  int32_t row_dtype;
};

template <class Norm, class Tile>
__global__ void __launch_bounds__(Tile::kMostThreads) forward_kernel(const __grid_constant__ ForwardArgs a) {
  constexpr int kVec = Tile::template kVec<float>;
  typename Tile::Group group;
  const Columns<Tile, float> columns(group, a.x.rows.cols);
  for (int64_t r = group.first_row(); r < a.x.rows.count; r += group.row_stride()) {
    const MixedRow row{row_of(a.x, r), row_of(a.residual, r), a.row_dtype};
    const auto v = [&](int c, int) { return row.load<kVec>(c); };
    const Moments m = moments_of<Norm>(group, columns, 1.0f / float(columns.cols), a.eps, v);
    std::byte* const y = a.y.at(r, 0);
    std::byte* const residual_out = a.residual_out.rows.data ? a.residual_out.at(r, 0) : nullptr;
    columns.each([&](int c, int i) {
      const auto value = v(c, i), gain = a.gain.template load<kVec>(c);
      auto result = rounded_to(a.row_dtype, floats<kVec>([&](int j) {
                                 return (Norm::kCentred ? value[j] - m.near - m.rest : value[j]) * m.rstd;
                               }));
#pragma unroll
      for (int j = 0; j < kVec; ++j) result[j] *= gain[j];
      if (a.bias.data) add_to(result, a.bias.load<kVec>(c));
      if (residual_out) store_as(residual_out, a.residual_out.dtype, c, value);
      store_as(y, a.y.dtype, c, result);
    });
    if (columns.lane != 0) continue;
    if (a.rstd.data) *a.rstd[r] = m.rstd;
    if (a.mean.data) *a.mean[r] = m.near + m.rest;
  }
}

struct BackwardArgs {
  AnyTable dy, x, residual, dresidual_out, dx;
  Rows<const float> mean, rstd;
  Gain gain;
  float *dweight, *dbias;
  int32_t row_dtype;

  __device__ __forceinline__ MixedRow v(int64_t r) const { return {row_of(x, r), row_of(residual, r), row_dtype}; }
  template <class Norm>
  __device__ __forceinline__ NormRow<Norm> row(int64_t r) const {
    return {Norm::kCentred ? *mean[r] : 0.0f, *rstd[r]};
  }
};

template <class Norm, class Tile>
__global__ void __launch_bounds__(Tile::kMostThreads) dx_kernel(const __grid_constant__ BackwardArgs a) {
  constexpr int kVec = Tile::template kVec<float>;
  typename Tile::Group group;
  const Columns<Tile, float> columns(group, a.dy.rows.cols);
  for (int64_t r = group.first_row(); r < a.dy.rows.count; r += group.row_stride()) {
    const AnyVector dy = row_of(a.dy, r), more = row_of(a.dresidual_out, r);
    const MixedRow v = a.v(r);
    const auto row = a.row<Norm>(r);
    float sums[2] = {0, 0};
    columns.each(
        [&](int c, int) { add_dots(row, dy.load<kVec>(c), a.gain.template load<kVec>(c), v.load<kVec>(c), sums); });
    group.template reduce<Add>(sums);
    row.template to_means<float>(sums, 1.0f / float(columns.cols));
    std::byte* const dx = a.dx.at(r, 0);
    columns.each([&](int c, int) {
      const auto g = dy.load<kVec>(c), w = a.gain.template load<kVec>(c), value = v.load<kVec>(c);
      auto gradient = floats<kVec>([&](int j) { return row.template dx<false>(g[j], w[j], value[j], sums); });
      if (more.data) add_to(gradient, more.load<kVec>(c));
      store_as(dx, a.dx.dtype, c, gradient);
    });
  }
}

// A slab's parameter gradients, kVec columns a thread.
template <class Norm, class Tile>
__global__ void __launch_bounds__(kColumnThreads)
    columns_kernel(const __grid_constant__ BackwardArgs a, const ColumnTiles tiles) {
  constexpr int kVec = Tile::template kVec<float>;
  const int64_t c = tiles.column(kVec), rows = a.dy.rows.count, cols = a.dy.rows.cols;
  if (c >= cols) return;
  auto dweight = floats<kVec>([](int) { return 0.0f; }), dbias = dweight;
  for (int64_t r = tiles.first_row(rows); r < tiles.end_row(rows); ++r) {
    const auto g = row_of(a.dy, r).load<kVec>(int(c));
    const auto normal = rounded_to(a.row_dtype, normalised<Norm, float>(a.row<Norm>(r), a.v(r).load<kVec>(int(c))));
#pragma unroll
    for (int j = 0; j < kVec; ++j) dweight[j] = fmaf(g[j], normal[j], dweight[j]);
    add_to(dbias, g);
  }
  const int64_t at = tiles.slab() * cols + c;
#pragma unroll
  for (int j = 0; j < kVec; ++j) {
    if (a.dweight) a.dweight[at + j] = dweight[j];
    if (a.dbias) a.dbias[at + j] = dbias[j];
  }
}

// body.operator()<Norm, Tile>()
template <class F>
void with_mixed(bool is_centred, RowVariant variant, F&& body) {
  with_value<false, true>("centred", is_centred, [&]<bool kCentred>() {
    with_value<false, true>("wide", variant == RowVariant::mixed, [&]<bool kIsWide>() {
      body.template operator()<MixedNorm<kCentred>, MixedTile<kIsWide>>();
    });
  });
}

Gain gain_of(const tc_tensor& weight, double offset) {
  return {{weight.data, weight.dtype}, static_cast<float>(offset)};
}

}  // namespace

void mixed_norm_forward(const MixedNormForward& a, const RowPlan& plan, const tc_exec& exec) {
  const ForwardArgs args{AnyTable(a.x),
                         AnyTable(a.residual),
                         AnyTable(a.y),
                         AnyTable(a.residual_out),
                         values_of<float>(a.mean),
                         values_of<float>(a.rstd),
                         gain_of(a.weight, a.weight_offset),
                         {a.bias.data, a.bias.dtype},
                         static_cast<float>(a.eps),
                         a.row_dtype};
  with_mixed(a.is_centred, plan.variant,
             [&]<class Norm, class Tile>() { launch<forward_kernel<Norm, Tile>>(a.name, grid_of(plan), exec, args); });
}

void mixed_norm_backward(const MixedNormBackward& a, const SlabbedPlan& plan, const tc_exec& exec) {
  const BackwardArgs args{AnyTable(a.dy),
                          AnyTable(a.x),
                          AnyTable(a.residual),
                          AnyTable(a.dresidual_out),
                          AnyTable(a.dx),
                          values_of<const float>(a.mean),
                          values_of<const float>(a.rstd),
                          gain_of(a.weight, a.weight_offset),
                          a.dweight,
                          a.dbias,
                          a.row_dtype};
  with_mixed(a.is_centred, plan.rows.variant, [&]<class Norm, class Tile>() {
    if (a.dweight || a.dbias)  // before dx, which may be dy
      launch<columns_kernel<Norm, Tile>>(a.name, grid_of(plan.columns), exec, args,
                                         ColumnTiles{plan.columns.tiles, plan.columns.slabs});
    if (given(a.dx)) launch<dx_kernel<Norm, Tile>>(a.name, grid_of(plan.rows), exec, args);
  });
}

}  // namespace tc::cuda
