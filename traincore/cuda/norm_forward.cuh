// Device code of RMSNorm and LayerNorm forward: v = x (+ residual); y = (v - mean) rstd gain (+ bias).
#pragma once
#include "traincore/cuda/norm.cuh"
#include "traincore/cuda/norm_vector.cuh"
#include "traincore/cuda/overlap.cuh"
#include "traincore/cuda/rows_ahead.cuh"

namespace tc::cuda {

template <class T>
struct NormForwardArgs {
  Rows<const T> x, residual;
  Rows<T> y, residual_out;
  Rows<float> mean, rstd;
  Gain gain;
  AnyVector bias;
  float eps, share;         // share: 1 / cols
  bool sends_ahead, stays;  // of kernels that take rows ahead, as their plan has it
  int64_t in_flight;        // of others: RowPlan's
};

// near + rest is the mean: near is so close to it that v - near loses nothing, however far from 0 the row lies.
struct Moments {
  float near, rest, rstd;
  __device__ __forceinline__ bool is_far() const { return is_far_from_0(near, rstd); }
  template <class Norm, bool kInOneStep>
  __device__ __forceinline__ float normalised(float v) const {
    if constexpr (!Norm::kCentred) return v * rstd;
    if constexpr (kInOneStep) return fmaf(v, rstd, -fmaf(near, rstd, rest * rstd));
    return fmaf(v - near, rstd, -(rest * rstd));
  }
};

// What is known about a row or a part of it. Centred: where near its mean lies, what that is off by in sum, the sum of
// squares about it, and of how many elements; else the sum of squares.
template <class Norm>
using NormFacts = RowValues<Norm::kCentred ? 4 : 1>;

// Sums about a value, of n elements: of what they are off by, and of its square. Whether the mean lies so far from it that the
// variance is less than a quarter of the mean square, and would lose more than two bits: there are outliers.
__device__ __forceinline__ bool loses_bits(float sum, float squares, float n) {
  return sum * sum > 0.75f * n * squares;
}

// Whether a thread's sums of a row's elements and of their squares are exact where its elements are alike: 8 bits each.
template <class Norm, class T>
inline constexpr bool kSumsAreExact = std::is_same_v<T, bf16> && !Norm::kHasResidual;

// A value near the mean of this thread's part: that of its first vector, no small share of the part, so that what lies apart
// from it makes the variance large.
template <class Tile, class T, class V>
__device__ __forceinline__ float near_of(const Columns<Tile, T>& columns, const V& v) {
  return columns.lane * Tile::template kVec<T> < columns.cols ? total(v(0, 0)) * (1.0f / Tile::template kVec<T>) : 0.0f;
}

// Of this thread's part.
template <class Tile, class T, class V>
__device__ __forceinline__ float squares_of(const Columns<Tile, T>& columns, const V& v) {
  float squares = 0;
  columns.each([&](int c, int i) {
    const auto value = v(c, i);
#pragma unroll
    for (int j = 0; j < Tile::template kVec<T>; ++j) squares = fmaf(value[j], value[j], squares);
  });
  return squares;
}

// Adds up v - near and its square, of this thread's part.
template <class Tile, class T, class V>
__device__ __forceinline__ void add_about(const Columns<Tile, T>& columns, const V& v, float near, float& sum,
                                          float& squares) {
  constexpr int kVec = Tile::template kVec<T>;
  columns.each([&](int c, int i) {
    const auto value = v(c, i);
    const auto apart = floats<kVec>([&](int j) { return value[j] - near; });
#pragma unroll
    for (int j = 0; j < kVec; ++j) squares = fmaf(apart[j], apart[j], squares);
    sum += total(apart);
  });
}

// sum / n, rounded once; share: 1 / n or nearly that.
__device__ __forceinline__ float mean_of(float sum, float n, float share) {
  const float mean = sum * share;
  return fmaf(fmaf(-n, mean, sum), share, mean);
}

// Of this warp's part. Centred: first about a value of each thread's own, then about the warp's mean, from which a thread's
// is as far off as the variance allows (Chan, Golub and LeVeque, Algorithms for computing the sample variance, 1983).
template <class Norm, class Tile, class T, class V>
__device__ __forceinline__ NormFacts<Norm> facts_of(const typename Tile::Group& group, const Columns<Tile, T>& columns,
                                                    const V& v) {
  if constexpr (!Norm::kCentred) {
    float squares[1] = {squares_of(columns, v)};
    group.template reduce_in_warp<Add>(squares);
    return {{squares[0]}};
  } else {
    constexpr bool kIsExact = kSumsAreExact<Norm, T>;
    const float n = float(columns.count()), all = float(columns.count_in_warp());
    const float share = __frcp_rn(fmaxf(n, 1.0f)), share_of_all = __frcp_rn(fmaxf(all, 1.0f));
    float own = kIsExact ? 0.0f : near_of(columns, v), sum = 0, squares = 0;
    add_about(columns, v, own, sum, squares);
    if constexpr (kIsExact)
      if (!(squares < __builtin_huge_valf())) {
        own = near_of(columns, v), sum = squares = 0;
        add_about(columns, v, own, sum, squares);
      }
    const float mean = sum * share;
    squares =
        fmaf(-mean, fmaf(-n, mean, sum), fmaf(-sum, mean, squares));  // about own + mean, however that was rounded

    float whole[1] = {fmaf(n, own, sum)};
    group.template reduce_in_warp<Add>(whole);
    const float near = mean_of(whole[0], all, share_of_all), apart = fmaf(n, own - near, sum);
    float about[2] = {fmaf(apart * share, apart, squares), apart};
    if constexpr (!kIsExact) {
      group.template reduce_in_warp<Add>(about);
      return {{near, about[1], about[0], all}};
    } else {
      float alone[1] = {about[0]};
      group.template reduce_in_warp<Add>(alone);
      return {{near, 0, alone[0], all}};
    }
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
        if (again || !__any_sync(0xffffffffu, loses_bits(sums[0], sums[1], sums[2]))) break;
        near += sums[0] / sums[2];
      }
      return {{near, sums[0], sums[1], sums[2]}};
    }
  }
};

template <class Norm>
__device__ __forceinline__ Moments moments_of(const NormFacts<Norm>& row, float share, float eps) {
  if constexpr (!Norm::kCentred) {
    return {0, 0, __frsqrt_rn(row.at[0] * share + eps)};
  } else {
    const float rest = row.at[1] * share;
    return {row.at[0], rest, __frsqrt_rn(Max{}(row.at[2] * share - rest * rest, 0.0f) + eps)};
  }
}

// Of a row that is looked at twice: the squares are about its mean. What that loses by rounding counts only where elements
// have as many bits as it.
template <class Norm, class Tile, class T, class V>
__device__ __forceinline__ Moments moments_of(typename Tile::Group& group, const Columns<Tile, T>& columns, float share,
                                              float eps, const V& v) {
  if constexpr (!Norm::kCentred) {
    return moments_of<Norm>({{sum(group, squares_of(columns, v))}}, share, eps);
  } else {
    const float n = float(columns.cols);
    float whole = 0, rest = 0, squares = 0;
    columns.each([&](int c, int i) { whole += total(v(c, i)); });
    const float near = mean_of(sum(group, whole), n, share);
    add_about(columns, v, near, rest, squares);
    if constexpr (sizeof(T) < sizeof(float) && !Norm::kHasResidual)
      return moments_of<Norm>({{near, 0, sum(group, squares), n}}, share, eps);
    float about[2] = {rest, squares};
    group.template reduce<Add>(about);
    return moments_of<Norm>({{near, about[0], about[1], n}}, share, eps);
  }
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
// No bias adds 0.
struct BiasOrZero {
  AnyVector vector;
  template <int N>
  __device__ __forceinline__ Floats<N> load(int c) const {
    return vector.data ? vector.template load<N>(c) : floats<N>([](int) { return 0.0f; });
  }
};
struct AnyBias {
  BiasOrZero vector;
  template <int N>
  __device__ __forceinline__ Floats<N> scaled(const Floats<N>& x, const Floats<N>& gain, int c, int) const {
    return cuda::scaled(x, gain, vector.template load<N>(c));
  }
};
// Kept for all rows of a block.
template <class Tile, class T, bool kIsShared>
class HeldBias : public NormVector<Tile, T, kIsShared> {
 public:
  static constexpr int kVec = Tile::template kVec<T>;
  __device__ __forceinline__ HeldBias(const Columns<Tile, T>& columns, const AnyVector& bias, void* shared)
      : NormVector<Tile, T, kIsShared>(columns, BiasOrZero{bias}, shared) {}
  __device__ __forceinline__ Floats<kVec> scaled(const Floats<kVec>& x, const Floats<kVec>& gain, int, int i) const {
    return cuda::scaled(x, gain, (*this)(i));
  }
};

// f(gain, bias), their dtype looked at once where they share one that Gain::visit() knows.
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
      if constexpr (sizeof(T) < sizeof(float))
        if (a.bias.dtype == dtype_of<T>) return typed(T{});
    }
    if (a.bias.data) return f([&](int c, int) { return a.gain.template load<N>(c); }, AnyBias{{a.bias}});
  }
  a.gain.template visit<T, N>([&](const auto& gain) { f(by_column(gain), NoBias{}); });
}

// gain(c, i) and bias.scaled(y, gain, c, i) are of the vector at column c, this thread's i-th.
template <class Norm, bool kInOneStep, bool kMayStay, class Tile, class T, class V, class G, class B>
__device__ __forceinline__ void write_row(const NormForwardArgs<T>& a, const Columns<Tile, T>& columns, int64_t r, T* y,
                                          T* residual_out, const Moments& m, const V& v, const G& gain, const B& bias) {
  constexpr int kVec = Tile::template kVec<T>;
  if constexpr (!Norm::kHasResidual)  // rare, and no business of the loop below
    if (residual_out) columns.each([&](int c, int i) { store<Tile>(residual_out, c, v(c, i)); });
  columns.each([&](int c, int i) {
    const auto value = v(c, i), weight = gain(c, i);
    if constexpr (Norm::kHasResidual)
      if (residual_out) store<Tile>(residual_out, c, value);
    auto normal = floats<kVec>([&](int j) { return m.template normalised<Norm, kInOneStep>(value[j]); });
    if constexpr (Norm::kRounds) normal = rounded<T>(normal);
    store<Tile>(y, c, bias.scaled(normal, weight, c, i), kMayStay && a.stays);
  });
  if (columns.lane != 0) return;
  if (a.rstd.data) *a.rstd[r] = m.rstd;
  if constexpr (Norm::kCentred)
    if (a.mean.data) *a.mean[r] = m.near + m.rest;
}

template <class Norm, class Tile, class T>
__global__ void __launch_bounds__(Tile::kMostThreads, (Norm::kHasResidual ? 512 : 1024) / Tile::kMostThreads)
    norm_forward_kernel(const NormForwardArgs<T> a) {
  follow_stream();
  typename Tile::Group group;
  const Columns<Tile, T> columns(group, a.x.cols);
  for (int64_t r = group.first_row(); r < a.x.count; r += group.row_stride()) {
    if constexpr (Tile::Group::kIsBlock && Tile::kVectors == 4 && !Norm::kHasResidual)
      if (columns.lane == 0 && a.in_flight > 0 && r + a.in_flight < a.x.count)
        send_for_once(a.x[r + a.in_flight], columns.cols * int(sizeof(T)));
    const KeptSum<Tile, T, Norm::kHasResidual> sum(columns, a.x[r], Norm::kHasResidual ? a.residual[r] : nullptr);
    const auto v = [&](int c, int i) {
      if constexpr (Norm::kHasResidual && Norm::kRounds)
        return rounded<T>(sum(c, i));
      else
        return sum(c, i);
    };
    const Moments moments = moments_of<Norm>(group, columns, a.share, a.eps, v);
    T* const residual_out = a.residual_out.data ? a.residual_out[r] : nullptr;
    const auto write = [&]<bool kInOneStep>(const auto& gain, const auto& bias) {
      write_row<Norm, kInOneStep, false>(a, columns, r, a.y[r], residual_out, moments, v, gain, bias);
    };
    constexpr int kVec = Tile::template kVec<T>;
    if (kMayTakeOneStep<Norm, T> && moments.is_far())
      write.template operator()<false>([&](int c, int) { return a.gain.template load<kVec>(c); }, AnyBias{{a.bias}});
    else
      visit_affine<Norm, kVec>(a, [&](const auto& gain, const auto& bias) {
        write.template operator()<kMayTakeOneStep<Norm, T>>(gain, bias);
      });
    if constexpr (Tile::kVectors == 8) break;  // there is no tensor of more such rows than a grid has blocks
  }
}

// For rows taken in turn. kMayStay: what it writes, in the caches. kBiasIsShared: in shared memory, as T, which it is
// exactly.
template <class Norm, class Tile, class T, int kStages, bool kMayStay, bool kBiasIsShared = false>
__global__ void __launch_bounds__(Tile::kMostThreads, 1) norm_forward_ahead_kernel(const NormForwardArgs<T> a) {
  constexpr int kTensors = 1 + Norm::kHasResidual;
  follow_stream();
  typename Tile::Group group;
  const Columns<Tile, T> columns(group, a.x.cols);
  RowsAhead<Tile, T, kStages, kTensors> ahead(columns, 0, a.sends_ahead);
  const HeldBias<Tile, T, kBiasIsShared> bias(columns, a.bias, ahead.end());
  AllReduce<typename Tile::Group, Norm::kCentred ? 4 : 1, MergeFacts<Norm>> facts(group, bias.end(), {});
  const NormVector<Tile, T, false> gain(columns, a.gain, nullptr);
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
  for_rows_ahead(
      turns, columns, ahead, facts,
      [&](int turn) {
        RowSources<T, kTensors> from{{sure(x[turn])}};
        if constexpr (Norm::kHasResidual) from.at[1] = sure(residual[turn]);
        return from;
      },
      [&](int, int stage) { return facts_of<Norm>(group, columns, row_at(stage)); },
      [&](const auto& row) { return moments_of<Norm>(row(), a.share, a.eps); },
      [&](int turn, int stage, const Moments& m) {
        const auto write = [&]<bool kInOneStep>(const auto& bias) {
          write_row<Norm, kInOneStep, kMayStay>(
              a, columns, turns.row(turn), y[turn], has_residual_out ? residual_out[turn] : nullptr, m, row_at(stage),
              [&](int, int i) { return gain(i); }, bias);
        };
        in_steps(kMayTakeOneStep<Norm, T> && !m.is_far(), [&]<bool kInOneStep>() {
          if constexpr (Norm::kCentred)
            write.template operator()<kInOneStep>(bias);
          else
            write.template operator()<kInOneStep>(NoBias{});
        });
      });
}

}  // namespace tc::cuda
