// Device code of RMSNorm and LayerNorm, forward and backward: v = x (+ residual); y = (v - mean) rstd gain (+ bias).
#pragma once
#include "traincore/cuda/row_sums.cuh"
#include "traincore/cuda/rows.cuh"

namespace tc::cuda {

// kCentred: the mean is subtracted, and there may be a bias. kRounds: v and the normalised row are rounded to T.
template <bool kCentred_, bool kHasResidual_, bool kRounds_>
struct NormKind {
  static constexpr bool kCentred = kCentred_, kHasResidual = kHasResidual_, kRounds = kRounds_;
};

template <class T>
struct NormForwardArgs {
  Rows<const T> x, residual;
  Rows<T> y, residual_out;
  Rows<float> mean, rstd;
  Gain gain;
  AnyVector bias;
  float eps;
};

template <class T, int N>
__device__ __forceinline__ Floats<N> rounded(const Floats<N>& x) {
  return Pack<T, N>::from(x).f32();
}

// near + rest is the mean: near is so close to it that v - near loses nothing, however far from 0 the row lies.
struct Moments {
  float near, rest, rstd;
};

// Sums of (v - near)^2 and, where centred, of v - near.
template <class Norm, class Tile, class T, class V>
__device__ __forceinline__ void sums_about(typename Tile::Group& group, const Columns<Tile, T>& columns, float near,
                                           const V& v, float (&sums)[2]) {
  sums[0] = sums[1] = 0;
  columns.each([&](int c, int i) {
    const auto value = v(c, i);
#pragma unroll
    for (int j = 0; j < Tile::template kVec<T>; ++j) {
      const float from_near = Norm::kCentred ? value[j] - near : value[j];
      sums[0] = fmaf(from_near, from_near, sums[0]);
      if constexpr (Norm::kCentred) sums[1] += from_near;
    }
  });
  if constexpr (Norm::kCentred)
    group.template reduce<Add>(sums);
  else
    sums[0] = sum(group, sums[0]);
}

// Centred rows: about their mean as one pass gives it; what that is off by, a second pass tells.
template <class Norm, class Tile, class T, class V>
__device__ __forceinline__ Moments moments_of(typename Tile::Group& group, const Columns<Tile, T>& columns, float eps,
                                              const V& v) {
  const float n = float(columns.cols);
  float near = 0;
  if constexpr (Norm::kCentred) {
    columns.each([&](int c, int i) {
      const auto value = v(c, i);
#pragma unroll
      for (int j = 0; j < Tile::template kVec<T>; ++j) near += value[j];
    });
    near = sum(group, near) / n;
  }
  float sums[2];
  sums_about<Norm>(group, columns, near, v, sums);
  if constexpr (!Norm::kCentred) return {0, 0, 1.0f / sqrtf(sums[0] / n + eps)};
  const float rest = sums[1] / n;
  return {near, rest, 1.0f / sqrtf(fmaxf(sums[0] / n - rest * rest, 0.0f) + eps)};
}

struct NoBias {
  template <int N>
  __device__ __forceinline__ void add(Floats<N>&, int) const {}
};
template <class T, int N>
struct TypedBias {
  TypedVector<T, N> vector;
  __device__ __forceinline__ void add(Floats<N>& y, int c) const { add_to(y, vector(c)); }
};
struct AnyBias {
  AnyVector vector;
  template <int N>
  __device__ __forceinline__ void add(Floats<N>& y, int c) const {
    add_to(y, vector.template load<N>(c));
  }
};

// f(gain, bias), their dtype looked at once where they share one.
template <class Norm, int N, class T, class F>
__device__ __forceinline__ void visit_affine(const NormForwardArgs<T>& a, F&& f) {
  if constexpr (Norm::kCentred) {
    const auto typed = [&]<class W>(W) {
      f(TypedVector<W, N>{static_cast<const W*>(a.gain.vector.data), a.gain.offset},
        TypedBias<W, N>{{static_cast<const W*>(a.bias.data), 0}});
    };
    if (a.bias.data && a.gain.vector.data && a.bias.dtype == a.gain.vector.dtype) {
      if (a.bias.dtype == TC_DTYPE_F32) return typed(float{});
      return a.bias.dtype == TC_DTYPE_BF16 ? typed(bf16{}) : typed(f16{});
    }
    if (a.bias.data) return f([&](int c) { return a.gain.template load<N>(c); }, AnyBias{a.bias});
  }
  a.gain.template visit<N>([&](const auto& gain) { f(gain, NoBias{}); });
}

template <class Norm, class Tile, class T, class V>
__device__ __forceinline__ void write_row(const NormForwardArgs<T>& a, const Columns<Tile, T>& columns, int64_t r,
                                          const Moments& m, const V& v) {
  constexpr int kVec = Tile::template kVec<T>;
  T* const y = a.y[r];
  T* const residual_out = a.residual_out.data ? a.residual_out[r] : nullptr;
  visit_affine<Norm, kVec>(a, [&](const auto& gain, const auto& bias) {
    columns.each([&](int c, int i) {
      const auto value = v(c, i), weight = gain(c);
      if (residual_out) store<Tile>(residual_out, c, value);
      auto normal =
          floats<kVec>([&](int j) { return (Norm::kCentred ? value[j] - m.near - m.rest : value[j]) * m.rstd; });
      if constexpr (Norm::kRounds) normal = rounded<T>(normal);
      auto result = floats<kVec>([&](int j) { return normal[j] * weight[j]; });
      bias.add(result, c);
      store<Tile>(y, c, result);
    });
  });
  if (columns.lane != 0) return;
  if (a.rstd.data) *a.rstd[r] = m.rstd;
  if constexpr (Norm::kCentred)
    if (a.mean.data) *a.mean[r] = m.near + m.rest;
}

template <class Norm, class Tile, class T>
__global__ void __launch_bounds__(Tile::kMostThreads, (Norm::kHasResidual ? 512 : 1024) / Tile::kMostThreads)
    norm_forward_kernel(const NormForwardArgs<T> a) {
  typename Tile::Group group;
  const Columns<Tile, T> columns(group, a.x.cols);
  for (int64_t r = group.first_row(); r < a.x.count; r += group.row_stride()) {
    const KeptSum<Tile, T, Norm::kHasResidual> sum(columns, a.x[r], Norm::kHasResidual ? a.residual[r] : nullptr);
    const auto v = [&](int c, int i) {
      if constexpr (Norm::kHasResidual && Norm::kRounds)
        return rounded<T>(sum(c, i));
      else
        return sum(c, i);
    };
    write_row<Norm>(a, columns, r, moments_of<Norm>(group, columns, a.eps, v), v);
  }
}

// For rows that take a cluster: the next rows are on their way while one waits for its other blocks.
template <class Norm, class Tile, class T>
__global__ void __launch_bounds__(Tile::kMostThreads, 2)
    norm_forward_ahead_kernel(const NormForwardArgs<T> a, const int stages) {
  typename Tile::Group group;
  const Columns<Tile, T> columns(group, a.x.cols);
  RowsAhead<Tile, T> ahead(1 + Norm::kHasResidual, stages);
  const auto load = [&](int64_t r, int stage) {
    if (r < a.x.count) {
      ahead.load(columns, stage, 0, a.x[r]);
      if constexpr (Norm::kHasResidual) ahead.load(columns, stage, 1, a.residual[r]);
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
      if constexpr (Norm::kHasResidual) add_to(value, ahead(stage, 1, i));
      if constexpr (Norm::kHasResidual && Norm::kRounds) value = rounded<T>(value);
      return value;
    };
    write_row<Norm>(a, columns, r, moments_of<Norm>(group, columns, a.eps, v), v);
    last = stage;
    stage = stage + 1 < stages ? stage + 1 : 0;
  }
}

template <class T>
struct NormBackwardArgs {
  Rows<const T> dy, x, residual, dresidual_out;
  Rows<const float> mean, rstd;
  Rows<T> dx;
  Gain gain;
  float *dweight, *dbias;  // [slabs, cols], or NULL
  int stages;
};

// What one row's numbers are about: (v - mean) rstd, and its gradient.
template <class Norm>
struct NormRow {
  float mean, rstd;
  template <class T>
  static __device__ __forceinline__ NormRow of(const NormBackwardArgs<T>& a, int64_t r) {
    return {Norm::kCentred ? *a.mean[r] : 0.0f, *a.rstd[r]};
  }
  __device__ __forceinline__ float centred(float v) const { return Norm::kCentred ? v - mean : v; }
  // The two means of dx: of gw c (times rstd^2), and of gw.
  template <class Group>
  __device__ __forceinline__ void reduce(Group& group, float (&sums)[2], int cols) const {
    if constexpr (Norm::kCentred)
      group.template reduce<Add>(sums);
    else
      sums[0] = sum(group, sums[0]);
    sums[0] = rstd * rstd * (sums[0] / float(cols));
    sums[1] /= float(cols);
  }
  __device__ __forceinline__ float dx(float gw, float v, const float (&means)[2]) const {
    const float g = Norm::kCentred ? gw - means[1] : gw;
    return rstd * fmaf(centred(v), -means[0], g);
  }
};

template <class Norm, class T, int N>
__device__ __forceinline__ void add_dots(const NormRow<Norm>& row, const Floats<N>& g, const Floats<N>& w,
                                         const Floats<N>& v, float (&sums)[2]) {
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const float gw = g[j] * w[j];
    sums[0] = fmaf(gw, row.centred(v[j]), sums[0]);
    if constexpr (Norm::kCentred) sums[1] += gw;
  }
}
template <class Norm, class T, int N>
__device__ __forceinline__ Floats<N> normalised(const NormRow<Norm>& row, const Floats<N>& v) {
  const auto y = floats<N>([&](int j) { return row.centred(v[j]) * row.rstd; });
  if constexpr (Norm::kRounds)
    return rounded<T>(y);
  else
    return y;
}

// Rows of a slab, the next ones on their way into shared memory while one is worked on; this block's part of the
// parameter gradients stays in registers.
template <class Norm, class Tile, class T>
__global__ void __launch_bounds__(Tile::kMostThreads, 512 / Tile::kMostThreads)
    norm_slab_kernel(const NormBackwardArgs<T> a) {
  constexpr int kVec = Tile::template kVec<T>, kX = 1, kResidual = 2, kMore = 2 + Norm::kHasResidual;
  typename Tile::Group group;
  const Columns<Tile, T> columns(group, a.dy.cols);
  const bool has_more = a.dresidual_out.data != nullptr;
  RowsAhead<Tile, T> ahead(kMore + has_more, a.stages);
  const KeptGain<Tile, T> gain(columns, a.gain, ahead.end());
  RowSums<Tile, T> dweight, dbias;
  const auto load = [&](int64_t r, int stage) {
    if (r < a.dy.count) {
      ahead.load(columns, stage, 0, a.dy[r]);
      ahead.load(columns, stage, kX, a.x[r]);
      if constexpr (Norm::kHasResidual) ahead.load(columns, stage, kResidual, a.residual[r]);
      if (has_more) ahead.load(columns, stage, kMore, a.dresidual_out[r]);
    }
    ahead.commit();
  };
  const int64_t first = group.first_row(), stride = group.row_stride();
  for (int s = 0; s + 1 < a.stages; ++s) load(first + s * stride, s);
  int stage = 0, last = a.stages - 1;
  NormRow<Norm> next{};
  if (first < a.dy.count) next = NormRow<Norm>::of(a, first);
  for (int64_t r = first; r < a.dy.count; r += stride) {
    load(r + (a.stages - 1) * stride, last);
    const NormRow<Norm> row = next;
    if (r + stride < a.dy.count) next = NormRow<Norm>::of(a, r + stride);
    ahead.wait();
    const auto v = [&](int i) {
      auto value = ahead(stage, kX, i);
      if constexpr (Norm::kHasResidual) add_to(value, ahead(stage, kResidual, i));
      if constexpr (Norm::kHasResidual && Norm::kRounds) value = rounded<T>(value);
      return value;
    };
    float sums[2] = {0, 0};
    columns.each([&](int, int i) {
      const auto g = ahead(stage, 0, i), value = v(i);
      add_dots<Norm, T>(row, g, gain(i), value, sums);
      dweight.add(i, g, normalised<Norm, T>(row, value));
      if constexpr (Norm::kCentred) dbias.add(i, g);
    });
    if (a.dx.data) {
      row.reduce(group, sums, columns.cols);
      T* const dx = a.dx[r];
      columns.each([&](int c, int i) {
        const auto g = ahead(stage, 0, i), w = gain(i), value = v(i);
        auto gradient = floats<kVec>([&](int j) { return row.dx(g[j] * w[j], value[j], sums); });
        if (has_more) add_to(gradient, ahead(stage, kMore, i));
        store<Tile>(dx, c, gradient);
      });
    }
    last = stage;
    stage = stage + 1 < a.stages ? stage + 1 : 0;
  }
  if (a.dweight) dweight.store(group, columns, a.dweight);
  if constexpr (Norm::kCentred)
    if (a.dbias) dbias.store(group, columns, a.dbias);
}

// dx alone, rows of any width.
template <class Norm, class Tile, class T>
__global__ void __launch_bounds__(Tile::kMostThreads) norm_dx_kernel(const NormBackwardArgs<T> a) {
  constexpr int kVec = Tile::template kVec<T>;
  typename Tile::Group group;
  const Columns<Tile, T> columns(group, a.dy.cols);
  for (int64_t r = group.first_row(); r < a.dy.count; r += group.row_stride()) {
    const Kept<Tile, T> dy(columns, a.dy[r]);
    const KeptSum<Tile, T, Norm::kHasResidual> sum(columns, a.x[r], Norm::kHasResidual ? a.residual[r] : nullptr);
    const auto v = [&](int c, int i) {
      if constexpr (Norm::kHasResidual && Norm::kRounds)
        return rounded<T>(sum(c, i));
      else
        return sum(c, i);
    };
    const T* const dresidual_out = a.dresidual_out.data ? a.dresidual_out[r] : nullptr;
    const auto row = NormRow<Norm>::of(a, r);
    float sums[2] = {0, 0};
    columns.each([&](int c, int i) { add_dots<Norm, T>(row, dy(c, i), a.gain.template load<kVec>(c), v(c, i), sums); });
    row.reduce(group, sums, columns.cols);
    T* const dx = a.dx[r];
    columns.each([&](int c, int i) {
      const auto g = dy(c, i), value = v(c, i), w = a.gain.template load<kVec>(c);
      auto gradient = floats<kVec>([&](int j) { return row.dx(g[j] * w[j], value[j], sums); });
      if (dresidual_out) add_to(gradient, Pack<T, kVec>::load(dresidual_out + c).f32());
      store<Tile>(dx, c, gradient);
    });
  }
}

// A slab's parameter gradients, kVec columns a thread; for rows that are not kept in registers.
template <class Norm, class T, int kVec>
__global__ void __launch_bounds__(256) norm_columns_kernel(const NormBackwardArgs<T> a, const ColumnTiles tiles) {
  const int64_t c = tiles.column(kVec);
  if (c >= a.dy.cols) return;
  auto dweight = floats<kVec>([](int) { return 0.0f; }), dbias = dweight;
  for (int64_t r = tiles.first_row(a.dy.count); r < tiles.end_row(a.dy.count); ++r) {
    const auto g = Pack<T, kVec>::load(a.dy[r] + c).f32();
    auto value = Pack<T, kVec>::load(a.x[r] + c).f32();
    if constexpr (Norm::kHasResidual) add_to(value, Pack<T, kVec>::load(a.residual[r] + c).f32());
    if constexpr (Norm::kHasResidual && Norm::kRounds) value = rounded<T>(value);
    const auto normal = normalised<Norm, T>(NormRow<Norm>::of(a, r), value);
#pragma unroll
    for (int j = 0; j < kVec; ++j) dweight[j] = fmaf(g[j], normal[j], dweight[j]);
    add_to(dbias, g);
  }
  const int64_t at = tiles.slab() * a.dy.cols + c;
#pragma unroll
  for (int j = 0; j < kVec; ++j) {
    if (a.dweight) a.dweight[at + j] = dweight[j];
    if constexpr (Norm::kCentred)
      if (a.dbias) a.dbias[at + j] = dbias[j];
  }
}

}  // namespace tc::cuda
