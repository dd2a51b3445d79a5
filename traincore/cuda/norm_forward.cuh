// Device code of RMSNorm and LayerNorm forward: v = x (+ residual); y = (v - mean) rstd gain (+ bias).
#pragma once
#include "traincore/cuda/norm.cuh"
#include "traincore/cuda/norm_gain.cuh"
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
  // Of 16 bits in one step: what that loses where the row lies far from 0, its elements have lost before.
  template <class Norm, class T>
  __device__ __forceinline__ float normalised(float v) const {
    if constexpr (!Norm::kCentred) return v * rstd;
    if constexpr (sizeof(T) < sizeof(float)) return fmaf(v, rstd, -fmaf(near, rstd, rest * rstd));
    return fmaf(v - near, rstd, -(rest * rstd));
  }
};

// What is known about a row or a part of it. Centred: where near its mean lies, what that is off by in sum, the sum of
// squares about it, and of how many elements; else the sum of squares.
template <class Norm>
using NormFacts = RowValues<Norm::kCentred ? 4 : 1>;

// Sums about `near`, of n elements: of v - near, and of its square. Whether the mean lies so far from near that the variance
// is less than a quarter of the mean square about it, and would lose more than two bits: outliers are near.
__device__ __forceinline__ bool is_far(float sum, float squares, float n) { return sum * sum > 0.75f * n * squares; }

// Of 16 bits: in 12 bits, so that elements less it are mostly exact; if all were rounded alike, a sum of many would be off.
template <class T>
__device__ __forceinline__ float as_shift(float near) {
  return sizeof(T) < sizeof(float) ? __uint_as_float(__float_as_uint(near) & 0xfffff000u) : near;
}

// A value near the mean of this warp's part, to sum about. kLooksAgain: the mean of its first vector. Else the mean of its
// threads' first vectors, where they keep few, or of all: no small part, so that what lies apart from it makes the variance
// large.
template <bool kLooksAgain, class Tile, class T, class V>
__device__ __forceinline__ float near_of(const typename Tile::Group& group, const Columns<Tile, T>& columns,
                                         const V& v) {
  constexpr int kVec = Tile::template kVec<T>;
  float first[1] = {0};
  columns.each([&](int c, int i) {
    if (Tile::kVectors > 0 && i > 0) return;
    const auto value = v(c, i);
#pragma unroll
    for (int j = 0; j < kVec; ++j) first[0] += value[j];
  });
  if constexpr (kLooksAgain) return as_shift<T>(group.from_lane(first[0] * (1.0f / kVec), 0));
  group.template reduce_in_warp<Add>(first);
  const int count = columns.first_in_warp();
  return count > 0 ? as_shift<T>(first[0] / float(count)) : 0;
}

// Of this warp's part. kLooksAgain: at a row whose mean turns out to be far from where it was summed about, for kernels that
// have registers for that.
template <class Norm, bool kLooksAgain, class Tile, class T, class V>
__device__ __forceinline__ NormFacts<Norm> facts_of(const typename Tile::Group& group, const Columns<Tile, T>& columns,
                                                    const V& v) {
  constexpr int kVec = Tile::template kVec<T>;
  if constexpr (!Norm::kCentred) {
    float squares[1] = {0};
    columns.each([&](int c, int i) {
      const auto value = v(c, i);
#pragma unroll
      for (int j = 0; j < kVec; ++j) squares[0] = fmaf(value[j], value[j], squares[0]);
    });
    group.template reduce_in_warp<Add>(squares);
    return {{squares[0]}};
  } else {
    const float count = float(columns.count_in_warp());
    float near = near_of<kLooksAgain>(group, columns, v), sums[2];
#pragma unroll 1
    for (bool again = false;; again = true) {
      sums[0] = sums[1] = 0;
      columns.each([&](int c, int i) {
        const auto value = v(c, i);
        auto from_near = floats<kVec>([&](int j) { return value[j] - near; });
#pragma unroll
        for (int j = 0; j < kVec; ++j) sums[1] = fmaf(from_near[j], from_near[j], sums[1]);
#pragma unroll
        for (int half = kVec / 2; half > 0; half /= 2)
#pragma unroll
          for (int j = 0; j < half; ++j) from_near[j] += from_near[j + half];
        sums[0] += from_near[0];
      });
      group.template reduce_in_warp<Add>(sums);
      if (!kLooksAgain || again || !group.any(is_far(sums[0], sums[1], count))) break;
      near = as_shift<T>(near + sums[0] / count);
    }
    return {{near, sums[0], sums[1], count}};
  }
}

// Parts are brought together about where the mean of the first lies, and once more about that of all if those are far apart.
template <class Norm>
struct MergeFacts {
  __device__ __forceinline__ NormFacts<Norm> operator()(const Shares<Norm::kCentred ? 4 : 1>& parts) const {
    if constexpr (!Norm::kCentred) {
      return AddUp<1>{}(parts);
    } else {
      const float* const part = parts.mine.at;
      const float n = parts.is_there ? part[3] : 0.0f;
      float near = parts.first(part[0]), sums[3];
#pragma unroll 1
      for (bool again = false;; again = true) {
        sums[0] = sums[1] = 0, sums[2] = n;
        if (n > 0) {
          const float apart = part[0] - near, all_apart = n * apart;
          sums[0] = part[1] + all_apart;
          sums[1] = fmaf(apart, fmaf(2.0f, part[1], all_apart), part[2]);
        }
        parts.sum(sums);
        if (again || !__any_sync(0xffffffffu, is_far(sums[0], sums[1], sums[2]))) break;
        near += sums[0] / sums[2];
      }
      return {{near, sums[0], sums[1], sums[2]}};
    }
  }
};

template <class Norm>
__device__ __forceinline__ Moments moments_of(const NormFacts<Norm>& row, int cols, float eps) {
  const float share = 1.0f / float(cols);
  if constexpr (!Norm::kCentred) {
    return {0, 0, 1.0f / sqrtf(row.at[0] * share + eps)};
  } else {
    const float rest = row.at[1] * share;
    return {row.at[0], rest, 1.0f / sqrtf(fmaxf(row.at[2] * share - rest * rest, 0.0f) + eps)};
  }
}

template <class Norm, class Tile, class T, class V>
__device__ __forceinline__ Moments moments_of(typename Tile::Group& group, const Columns<Tile, T>& columns, float eps,
                                              const V& v) {
  const auto row = merged(group, facts_of<Norm, false>(group, columns, v), MergeFacts<Norm>{});
  return moments_of<Norm>(row, columns.cols, eps);
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
  PlainVector<T, N> vector;
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
      const PlainVector<W, N> gain{static_cast<const W*>(a.gain.vector.data)};
      f(by_column(gain), TypedBias<W, N>{{static_cast<const W*>(a.bias.data)}});
    };
    if (a.bias.data && a.gain.vector.data && a.gain.offset == 0 && a.bias.dtype == a.gain.vector.dtype) {
      if (a.bias.dtype == TC_DTYPE_F32) return typed(float{});
      return a.bias.dtype == TC_DTYPE_BF16 ? typed(bf16{}) : typed(f16{});
    }
    if (a.bias.data) return f([&](int c, int) { return a.gain.template load<N>(c); }, AnyBias{a.bias});
  }
  a.gain.template visit<N>([&](const auto& gain) { f(by_column(gain), NoBias{}); });
}

// gain(c, i) and bias.scaled(y, gain, c, i) are of the vector at column c, this thread's i-th.
template <class Norm, class Tile, class T, class V, class G, class B>
__device__ __forceinline__ void write_row(const NormForwardArgs<T>& a, const Columns<Tile, T>& columns, int64_t r, T* y,
                                          T* residual_out, const Moments& m, const V& v, const G& gain, const B& bias) {
  constexpr int kVec = Tile::template kVec<T>;
  if constexpr (!Norm::kHasResidual)  // rare, and no business of the loop below
    if (residual_out) columns.each([&](int c, int i) { store<Tile>(residual_out, c, v(c, i)); });
  columns.each([&](int c, int i) {
    const auto value = v(c, i), weight = gain(c, i);
    if constexpr (Norm::kHasResidual)
      if (residual_out) store<Tile>(residual_out, c, value);
    auto normal = floats<kVec>([&](int j) { return m.template normalised<Norm, T>(value[j]); });
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
    T* const residual_out = a.residual_out.data ? a.residual_out[r] : nullptr;
    visit_affine<Norm, Tile::template kVec<T>>(a, [&](const auto& gain, const auto& bias) {
      write_row<Norm>(a, columns, r, a.y[r], residual_out, moments, v, gain, bias);
    });
    if constexpr (Tile::kVectors == 8) break;  // there is no tensor of more such rows than a grid has blocks
  }
}

// For rows that take a cluster.
template <class Norm, class Tile, class T, int kStages>
__global__ void __launch_bounds__(Tile::kMostThreads, 1) norm_forward_ahead_kernel(const NormForwardArgs<T> a) {
  constexpr int kTensors = 1 + Norm::kHasResidual;
  typename Tile::Group group;
  const Columns<Tile, T> columns(group, a.x.cols);
  RowsAhead<Tile, T, kStages, kTensors> ahead(columns, 0);
  AllReduce<typename Tile::Group, Norm::kCentred ? 4 : 1, MergeFacts<Norm>> facts(group, ahead.end(), {});
  const NormGain<Tile, T, false> gain(columns, a.gain, nullptr);
  const auto row_at = [&](int stage) {
    return [x = ahead.row(stage, 0), residual = ahead.row(stage, kTensors - 1)](int c, int i) {
      auto value = x(c, i);
      if constexpr (Norm::kHasResidual) add_to(value, residual(c, i));
      if constexpr (Norm::kHasResidual && Norm::kRounds) value = rounded<T>(value);
      return value;
    };
  };
  const Turns turns(group, a.x.count, a.x, a.residual, a.y, a.residual_out);
  const RowsInTurn<const T> x(a.x, turns), residual(a.residual, turns);
  const RowsInTurn<T> y(a.y, turns), residual_out(a.residual_out, turns);
  const bool has_residual_out = a.residual_out.data != nullptr;
  const auto all_rows = [&](const auto& bias) {
    for_rows_ahead(
        turns, columns, ahead, facts,
        [&](int turn) {
          RowSources<T, kTensors> from{{sure(x[turn])}};
          if constexpr (Norm::kHasResidual) from.at[1] = sure(residual[turn]);
          return from;
        },
        [&](int, int stage) { return facts_of<Norm, true>(group, columns, row_at(stage)); },
        [&](const auto& row) { return moments_of<Norm>(row(), columns.cols, a.eps); },
        [&](int turn, int stage, const Moments& m) {
          write_row<Norm>(
              a, columns, turns.row(turn), y[turn], has_residual_out ? residual_out[turn] : nullptr, m, row_at(stage),
              [&](int, int i) { return gain(i); }, bias);
        });
  };
  if constexpr (Norm::kCentred)
    all_rows(HeldBias<Tile, T>(columns, a.bias));
  else
    all_rows(NoBias{});
}

}  // namespace tc::cuda
