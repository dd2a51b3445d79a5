// Device code of RMSNorm and LayerNorm forward: v = x (+ residual); y = (v - mean) rstd gain (+ bias).
#pragma once
#include "traincore/cuda/norm.cuh"
#include "traincore/cuda/rows_ahead.cuh"

namespace tc::cuda {

template <class T>
struct NormForwardArgs {
  Rows<const T> x, residual;
  Rows<T> y, residual_out;
  Rows<float> mean, rstd;
  Gain gain;
  AnyVector bias;
  float eps;
};

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

template <int N>
__device__ __forceinline__ Floats<N> scaled(const Floats<N>& x, const Floats<N>& gain, const Floats<N>& bias) {
  return floats<N>([&](int j) { return fmaf(x[j], gain[j], bias[j]); });
}
struct NoBias {
  template <int N>
  __device__ __forceinline__ Floats<N> scaled(const Floats<N>& x, const Floats<N>& gain, int, int) const {
    return floats<N>([&](int j) { return x[j] * gain[j]; });
  }
};
template <class T, int N>
struct TypedBias {
  TypedVector<T, N> vector;
  __device__ __forceinline__ Floats<N> scaled(const Floats<N>& x, const Floats<N>& gain, int c, int) const {
    return cuda::scaled(x, gain, vector(c));
  }
};
struct AnyBias {
  AnyVector vector;
  template <int N>
  __device__ __forceinline__ Floats<N> scaled(const Floats<N>& x, const Floats<N>& gain, int c, int) const {
    return cuda::scaled(x, gain, vector.template load<N>(c));
  }
};
// In registers; no bias adds 0.
template <class Tile, class T>
class HeldBias {
 public:
  static constexpr int kVec = Tile::template kVec<T>;
  __device__ __forceinline__ HeldBias(const Columns<Tile, T>& columns, const AnyVector& bias) {
    columns.all([&](int c, int i) {
      bias_[i] = bias.data && c < columns.cols ? bias.template load<kVec>(c) : floats<kVec>([](int) { return 0.0f; });
    });
  }
  __device__ __forceinline__ Floats<kVec> scaled(const Floats<kVec>& x, const Floats<kVec>& gain, int, int i) const {
    return cuda::scaled(x, gain, bias_[i]);
  }

 private:
  Floats<kVec> bias_[Tile::kVectors];
};

// f(gain, bias), their dtype looked at once where they share one.
template <class Norm, int N, class T, class F>
__device__ __forceinline__ void visit_affine(const NormForwardArgs<T>& a, F&& f) {
  const auto by_column = [](const auto& vector) { return [&vector](int c, int) { return vector(c); }; };
  if constexpr (Norm::kCentred) {
    const auto typed = [&]<class W>(W) {
      const TypedVector<W, N> gain{static_cast<const W*>(a.gain.vector.data), a.gain.offset};
      f(by_column(gain), TypedBias<W, N>{{static_cast<const W*>(a.bias.data), 0}});
    };
    if (a.bias.data && a.gain.vector.data && a.bias.dtype == a.gain.vector.dtype) {
      if (a.bias.dtype == TC_DTYPE_F32) return typed(float{});
      return a.bias.dtype == TC_DTYPE_BF16 ? typed(bf16{}) : typed(f16{});
    }
    if (a.bias.data) return f([&](int c, int) { return a.gain.template load<N>(c); }, AnyBias{a.bias});
  }
  a.gain.template visit<N>([&](const auto& gain) { f(by_column(gain), NoBias{}); });
}

// gain(c, i) and bias.add(y, c, i) are of the vector at column c, this thread's i-th.
template <class Norm, class Tile, class T, class V, class G, class B>
__device__ __forceinline__ void write_row(const NormForwardArgs<T>& a, const Columns<Tile, T>& columns, int64_t r,
                                          const Moments& m, const V& v, const G& gain, const B& bias) {
  constexpr int kVec = Tile::template kVec<T>;
  T* const y = a.y[r];
  T* const residual_out = a.residual_out.data ? a.residual_out[r] : nullptr;
  const float shift = m.rest * m.rstd;
  columns.each([&](int c, int i) {
    const auto value = v(c, i), weight = gain(c, i);
    if (residual_out) store<Tile>(residual_out, c, value);
    auto normal = floats<kVec>(
        [&](int j) { return Norm::kCentred ? fmaf(value[j] - m.near, m.rstd, -shift) : value[j] * m.rstd; });
    if constexpr (Norm::kRounds) normal = rounded<T>(normal);
    store<Tile>(y, c, bias.scaled(normal, weight, c, i));
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
    const Moments moments = moments_of<Norm>(group, columns, a.eps, v);
    visit_affine<Norm, Tile::template kVec<T>>(
        a, [&](const auto& gain, const auto& bias) { write_row<Norm>(a, columns, r, moments, v, gain, bias); });
  }
}

// What the warps of a row know about it. Centred: where near their mean lies, what that is off by in sum, the sum of
// squares about it, and of how many elements; else the sum of squares.
template <class Norm>
using NormFacts = RowValues<Norm::kCentred ? 4 : 1>;

template <class Norm, class Tile, class T, class V>
__device__ __forceinline__ NormFacts<Norm> facts_of(const typename Tile::Group& group, const Columns<Tile, T>& columns,
                                                    const V& v) {
  constexpr int kVec = Tile::template kVec<T>;
  if constexpr (!Norm::kCentred) {
    float squares[1] = {0};
    columns.all([&](int c, int i) {
      const auto value = v(c, i);
#pragma unroll
      for (int j = 0; j < kVec; ++j) squares[0] = fmaf(value[j], value[j], squares[0]);
    });
    group.template reduce_in_warp<Add>(squares);
    return {{squares[0]}};
  } else {
    float first[2] = {0, 0};  // the sum, and of how many
    columns.each([&](int c, int i) {
      const auto value = v(c, i);
      first[1] += kVec;
#pragma unroll
      for (int j = 0; j < kVec; ++j) first[0] += value[j];
    });
    group.template reduce_in_warp<Add>(first);
    const float near = first[1] > 0 ? first[0] / first[1] : 0;
    float second[2] = {0, 0};  // of v - near, of its square
    columns.each([&](int c, int i) {
      const auto value = v(c, i);
#pragma unroll
      for (int j = 0; j < kVec; ++j) {
        const float from_near = value[j] - near;
        second[0] += from_near;
        second[1] = fmaf(from_near, from_near, second[1]);
      }
    });
    group.template reduce_in_warp<Add>(second);
    return {{near, second[0], second[1], first[1]}};
  }
}

template <class Norm, class Exchange>
__device__ __forceinline__ Moments moments_of(const Exchange& facts, int cols, float eps) {
  const float n = float(cols);
  if constexpr (!Norm::kCentred) {
    float squares = 0;
    facts.each([&](const auto& warp) { squares += warp.at[0]; });
    return {0, 0, 1.0f / sqrtf(facts.sum(squares) / n + eps)};
  } else {
    float total = 0;
    facts.each([&](const auto& warp) { total = fmaf(warp.at[3], warp.at[0], total); });
    const float near = facts.sum(total) / n;
    float rest = 0, squares = 0;
    facts.each([&](const auto& warp) {
      const float apart = warp.at[0] - near, all_apart = warp.at[3] * apart;
      rest += warp.at[1] + all_apart;
      squares += fmaf(apart, fmaf(2.0f, warp.at[1], all_apart), warp.at[2]);
    });
    rest = facts.sum(rest) / n;
    return {near, rest, 1.0f / sqrtf(fmaxf(facts.sum(squares) / n - rest * rest, 0.0f) + eps)};
  }
}

// For rows that take a cluster.
template <class Norm, class Tile, class T, int kStages>
__global__ void __launch_bounds__(Tile::kMostThreads, 1) norm_forward_ahead_kernel(const NormForwardArgs<T> a) {
  constexpr int kTensors = 1 + Norm::kHasResidual;
  typename Tile::Group group;
  const Columns<Tile, T> columns(group, a.x.cols);
  RowsAhead<Tile, T, kStages, kTensors> ahead(columns, 0);
  Exchange<typename Tile::Group, sizeof(NormFacts<Norm>) / sizeof(float)> exchange(group, ahead.end());
  const HeldGain<Tile, T> gain(columns, a.gain);
  // Centred rows are read twice for what is known about them, and so from registers.
  const auto tensor_at = [&](int stage, int t) {
    if constexpr (Norm::kCentred)
      return ahead.held(stage, t);
    else
      return ahead.row(stage, t);
  };
  const auto row_at = [&](int stage) {
    return [x = tensor_at(stage, 0), residual = tensor_at(stage, kTensors - 1)](int c, int i) {
      auto value = x(c, i);
      if constexpr (Norm::kHasResidual) add_to(value, residual(c, i));
      if constexpr (Norm::kHasResidual && Norm::kRounds) value = rounded<T>(value);
      return value;
    };
  };
  const auto turns = [&](const auto& bias) {
    for_rows_ahead(
        group, columns, a.x.count, ahead, exchange,
        [&](int64_t r) {
          if constexpr (Norm::kHasResidual)
            return RowSources<T, 2>{{a.x[r], a.residual[r]}};
          else
            return RowSources<T, 1>{{a.x[r]}};
        },
        [&](int64_t, int stage) { return facts_of<Norm>(group, columns, row_at(stage)); },
        [&](const auto& facts) { return moments_of<Norm>(facts, columns.cols, a.eps); },
        [&](int64_t r, int stage, const Moments& m) {
          write_row<Norm>(
              a, columns, r, m, row_at(stage), [&](int, int i) { return gain(i); }, bias);
        });
  };
  if constexpr (Norm::kCentred)
    turns(HeldBias<Tile, T>(columns, a.bias));
  else
    turns(NoBias{});
}

}  // namespace tc::cuda
