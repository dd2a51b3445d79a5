// CPU kernels of norm_gemv: compiled once per SIMD target, the best one is chosen at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "traincore/ops/norm_gemv/cpu.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "traincore/core/dispatch.h"
#include "traincore/cpu/gemm.h"
#include "traincore/cpu/norm-inl.h"
#include "traincore/cpu/parallel.h"
#include "traincore/cpu/vector.h"
#include "traincore/ops/norm_gemv/plan.h"

HWY_BEFORE_NAMESPACE();
namespace tc::ops::norm_gemv::HWY_NAMESPACE {
namespace {

using namespace tc::HWY_NAMESPACE;  // NOLINT(google-build-using-namespace): the SIMD vocabulary of this target

// ---------------------------------------------------------------- v = Norm(x), in f32

template <class T>
void normalise_row(const tcx_norm_gemv_args& a, const float* gain, const float* bias, const T* x, int64_t k, float* v) {
  const NormRow<T> row{x, nullptr};
  const auto eps = static_cast<float>(a.eps);
  if (a.norm == TC_NORM_RMS) {
    const float s = rms_rstd(row, k, eps);
    return map_row(0, k, v, false, [=](auto at) HWY_ATTR { return hn::Mul(hn::Mul(row(at), set(s)), at.load(gain)); });
  }
  const Moments moments = moments_of(row, k);
  const float s = moments.rstd(eps);
  map_row(0, k, v, false,
          [=](auto at) HWY_ATTR { return hn::MulAdd(moments.normalise(row(at), s), at.load(gain), at.load(bias)); });
}

void normalise(const tcx_norm_gemv_args& a, const Scratches& scratch, int threads) {
  const int64_t k = AnyRows(a.x).cols();
  const float* const gain = as_f32(a.weight, a.weight_offset, 1, k, scratch.gain);
  const float* const bias = as_f32(a.bias, 0, 0, k, scratch.bias);
  with_type(FloatTypes{}, a.x.dtype, [&]<class T>() {
    const auto x = rows_of<const T>(a.x);
    parallel_blocks(x.count, rows_per_block(x.count, x.cols), threads, [&](int64_t begin, int64_t end) HWY_ATTR {
      for (int64_t r = begin; r < end; ++r) normalise_row(a, gain, bias, x[r], x.cols, scratch.normalised + r * x.cols);
    });
  });
}

// ---------------------------------------------------------------- products of few rows

// A piece of v W: v is [rows, k] in f32, w the piece's first element, sums [rows, n] with its rows sums_stride apart.
template <class T>
struct Piece {
  const float* v;
  int64_t v_stride;
  const T* w;
  int64_t w_stride;
  float* sums;
  int64_t sums_stride;
  int64_t rows, k, n;
};

// kRows rows of v by kWide rows of W, from their beginnings, each a dot product.
template <int kRows, int kWide, class T>
void dot_tile(const float* v, int64_t v_stride, const T* w, int64_t w_stride, int64_t k, float* sums, int64_t stride) {
  V sum[kRows][kWide];
  for (auto& row : sum) std::fill(row, row + kWide, hn::Zero(F32()));
  for_row(k, [&](auto at) HWY_ATTR {
    V left[kRows];
    for (int i = 0; i < kRows; ++i) left[i] = at.load(v + i * v_stride);
    for (int j = 0; j < kWide; ++j) {
      const V right = at.load(w + j * w_stride);
      for (int i = 0; i < kRows; ++i) sum[i][j] = hn::MulAdd(left[i], right, sum[i][j]);
    }
  });
  for (int i = 0; i < kRows; ++i)
    for (int j = 0; j < kWide; ++j) sums[i * stride + j] = sum_of_lanes(sum[i][j]);
}

// kRows rows of sums += kRows rows of kWide elements of v by kWide rows of W.
template <int kRows, int kWide, class T>
void add_tile(const float* v, int64_t v_stride, const T* w, int64_t w_stride, int64_t n, float* sums, int64_t stride) {
  V factor[kRows][kWide];
  for (int i = 0; i < kRows; ++i)
    for (int j = 0; j < kWide; ++j) factor[i][j] = set(v[i * v_stride + j]);
  for_row(n, [&](auto at) HWY_ATTR {
    V right[kWide];
    for (int j = 0; j < kWide; ++j) right[j] = at.load(w + j * w_stride);
    for (int i = 0; i < kRows; ++i) {
      V sum = at.load(sums + i * stride);
      for (int j = 0; j < kWide; ++j) sum = hn::MulAdd(factor[i][j], right[j], sum);
      at.store(sums + i * stride, sum);
    }
  });
}

// tile<kRows>(first) until all rows are served, the largest tiles first.
template <int kRows, class F>
void for_row_tiles(int64_t rows, int64_t first, F&& tile) {
  for (; first + kRows <= rows; first += kRows) tile.template operator()<kRows>(first);
  if constexpr (kRows > 1) for_row_tiles<kRows / 2>(rows, first, tile);
}

constexpr int kTile = 8;  // sums or factors of a tile, in registers

// W [n, k]: a few rows at a time, so that v is read from the cache once for all of them.
template <class T>
void dot_products(const Piece<T>& p) {
  int64_t j = 0;
  const auto tiles = [&]<int kWide>() {
    for (; j + kWide <= p.n; j += kWide)
      for_row_tiles<kTile / kWide>(p.rows, 0, [&]<int kRows>(int64_t i) {
        dot_tile<kRows, kWide>(p.v + i * p.v_stride, p.v_stride, p.w + j * p.w_stride, p.w_stride, p.k,
                               p.sums + i * p.sums_stride + j, p.sums_stride);
      });
  };
  if (p.rows == 1) tiles.template operator()<kTile>();
  tiles.template operator()<2>();
  tiles.template operator()<1>();
}

// W [k, n]: a few rows at a time, so that the sums are read and written once for all of them.
template <class T>
void add_products(const Piece<T>& p) {
  for (int64_t i = 0; i < p.rows; ++i) std::fill_n(p.sums + i * p.sums_stride, p.n, 0.0f);
  int64_t j = 0;
  const auto tiles = [&]<int kWide>() {
    for (; j + kWide <= p.k; j += kWide)
      for_row_tiles<kTile / kWide>(p.rows, 0, [&]<int kRows>(int64_t i) {
        add_tile<kRows, kWide>(p.v + i * p.v_stride + j, p.v_stride, p.w + j * p.w_stride, p.w_stride, p.n,
                               p.sums + i * p.sums_stride, p.sums_stride);
      });
  };
  if (p.rows == 1) tiles.template operator()<kTile>();
  tiles.template operator()<4>();
  tiles.template operator()<1>();
}

// Task `task` of one matrix's product.
template <class T>
void run_task(const tcx_norm_gemv_args& a, const tc_tensor& w, const GemvPlan& plan, int64_t task, const float* v,
              float* sums) {
  const bool transposed = a.transpose_w != 0;
  const auto matrix = rows_of<const T>(w, 1);
  const int64_t rows = rows_in(a.x), k = w.shape[transposed ? 1 : 0], n = w.shape[transposed ? 0 : 1];
  const int64_t column = task % plan.strips * plan.columns, part = task / plan.strips, first = part * plan.part_k;
  const T* const start = matrix[transposed ? column : first] + (transposed ? first : column);
  const Piece<T> piece{v + first,
                       k,
                       start,
                       w.stride[0],
                       sums + part * rows * n + column,
                       n,
                       rows,
                       std::min(plan.part_k, k - first),
                       std::min(plan.columns, n - column)};
  transposed ? dot_products(piece) : add_products(piece);
}

void store_rows(const tc_tensor& to, const float* values) {
  const AnyRows y(to);
  for (int64_t r = 0; r < y.count(); ++r) narrow(to.dtype, values + r * y.cols(), y.cols(), y.at(r));
}

// Every task of every matrix in one go.
void few_rows(const tcx_norm_gemv_args& a, const Scratches& scratch, int threads) {
  const auto all = matrices(a);
  const int64_t rows = rows_in(a.x), k = AnyRows(a.x).cols();
  std::array<GemvPlan, kMatrices> plans{};
  int64_t total = 0;
  for (int i = 0; i < kMatrices; ++i) {
    plans[i] = plan_gemv(rows, k, outputs_of(all[i]), a.transpose_w != 0);
    total += plans[i].tasks();
  }
  parallel_for(total, threads, [&](int64_t task) {
    int i = 0;
    for (; task >= plans[i].tasks(); ++i) task -= plans[i].tasks();
    with_type(FloatTypes{}, all[i].w->dtype, [&]<class T>() {
      run_task<T>(a, *all[i].w, plans[i], task, scratch.normalised, scratch.products[i].sums);
    });
  });
  for (int i = 0; i < kMatrices && given(*all[i].w); ++i) {
    float* const sums = scratch.products[i].sums;
    sum_vectors(sums, plans[i].parts, rows * outputs_of(all[i]));
    store_rows(*all[i].y, sums);
  }
}

// ---------------------------------------------------------------- more rows

void many_rows(const tcx_norm_gemv_args& a, const Scratches& scratch, int threads) {
  const auto all = matrices(a);
  for (int i = 0; i < kMatrices && given(*all[i].w); ++i) {
    const tc_tensor &w = *all[i].w, &y = *all[i].y;
    const GemmInput matrix{w.data, w.dtype, w.stride[0], 1};
    float* const sums = scratch.products[i].sums;
    const auto out = rows_of<std::byte>(y);
    const int64_t k = AnyRows(a.x).cols();
    run_gemm({.m = out.count,
              .n = out.cols,
              .k = k,
              .a = {scratch.normalised, TC_DTYPE_F32, k, 1},
              .b = a.transpose_w ? matrix.transposed() : matrix,
              .c = sums ? GemmOutput{sums, TC_DTYPE_F32, out.cols} : GemmOutput{y.data, y.dtype, out.stride[0]}},
             threads);
    if (sums) store_rows(y, sums);
  }
}

void run(const tcx_norm_gemv_args& a, const tc_exec& exec) {
  if (rows_in(a.x) == 0) return;
  const Scratch scratch(carve, a, exec);
  normalise(a, *scratch, exec.threads);
  rows_in(a.x) <= kFewRows ? few_rows(a, *scratch, exec.threads) : many_rows(a, *scratch, exec.threads);
}

}  // namespace
}  // namespace tc::ops::norm_gemv::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tc::ops::norm_gemv {

HWY_EXPORT(run);
void norm_gemv_cpu(const tcx_norm_gemv_args& a, const tc_exec& exec) { HWY_DYNAMIC_DISPATCH(run)(a, exec); }

}  // namespace tc::ops::norm_gemv
#endif
