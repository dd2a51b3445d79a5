// Device code: the maximum of a row and the sum of its exponentials, for softmax and the losses over classes.
#pragma once
#include "traincore/cuda/math.cuh"
#include "traincore/cuda/rows_held.cuh"

namespace tc::cuda {

struct SoftmaxStats {
  float max, sum;  // of u, of exp(u - shift())
  float shifted;   // sum of u - max, where it was asked for
  // What is subtracted before exponentials are taken: of a row of -inf alone nothing, so that its sum is 0 and not NaN.
  __device__ __forceinline__ float shift() const { return max == -kInfinity ? 0.0f : max; }
  // A NaN or +inf in the row makes the sum NaN, and with it all that is computed from it.
  __device__ __forceinline__ float inverse_sum() const { return sum == 0 ? 0.0f : 1.0f / sum; }
  __device__ __forceinline__ float log_sum() const { return sum == 0 ? 0.0f : logf(sum); }
};

// The largest of the elements added; a NaN wins. -inf where there are none. Those of 16 bits are compared in pairs.
template <class T, int N>
class Largest {
 public:
  __device__ __forceinline__ void add(const Pack<T, N>& pack) {
    if constexpr (kIsPaired) {
      const auto* const pairs = reinterpret_cast<const uint32_t*>(&pack.raw);
#pragma unroll
      for (int i = 0; i < N / 2; ++i) {
        if constexpr (dtype_of<T> == TC_DTYPE_BF16)
          asm("max.NaN.bf16x2 %0, %0, %1;" : "+r"(most_) : "r"(pairs[i]));
        else
          asm("max.NaN.f16x2 %0, %0, %1;" : "+r"(most_) : "r"(pairs[i]));
      }
    } else {
      const auto x = pack.f32();
#pragma unroll
      for (int i = 0; i < N; ++i) most_ = Max{}(most_, x[i]);
    }
  }
  __device__ __forceinline__ float operator()() const {
    if constexpr (kIsPaired) {
      const auto last = Pack<T, 2>{most_}.f32();
      return Max{}(last[0], last[1]);
    } else {
      return most_;
    }
  }

 private:
  static constexpr bool kIsPaired = sizeof(T) == 2 && N > 1;
  static constexpr uint32_t kNone = dtype_of<T> == TC_DTYPE_BF16 ? 0xff80ff80u : 0xfc00fc00u;  // two of -inf
  std::conditional_t<kIsPaired, uint32_t, float> most_ = none();
  static constexpr __device__ auto none() {
    if constexpr (kIsPaired)
      return kNone;
    else
      return -kInfinity;
  }
};
template <class T, int N>
__device__ __forceinline__ float largest(const Pack<T, N>& pack) {
  Largest<T, N> largest;
  largest.add(pack);
  return largest();
}

// What a row's elements stand for: gain value(x), which grows with x.
struct Plain {
  static constexpr float gain = 1;
  static constexpr bool kIsBounded = false;  // value(-inf) is -inf
  __device__ __forceinline__ float value(float x) const { return x; }
};

// Statistics of the row u(x(c, v)), u = gain value(). A row that is kept is looked at twice, any other is read once, with
// the sum rescaled where a thread finds a new maximum; `wants_shifted` costs one more look.
template <class Tile, class T, class U, class X>
__device__ __forceinline__ SoftmaxStats softmax_stats(typename Tile::Group& group, const Columns<Tile, T>& columns,
                                                      bool wants_shifted, const U& u, const X& x) {
  constexpr int kVec = Tile::template kVec<T>;
  constexpr bool kIsKept = Tile::kVectors > 0;
  float top = -kInfinity,
        sums[2] = {0, 0};  // top: of x, or of u where rows are read again; of exponentials; of u - max
  const auto add_exponentials = [&](const Pack<T, kVec>& pack, float shift) {
    const auto values = pack.f32();
    const auto terms = floats<kVec>([&](int j) { return exp_for<T>(fmaf(u.value(values[j]), u.gain, -shift)); });
    sums[0] += total(terms);
  };
  Largest<T, kVec> most;
  columns.each([&](int c, int v) {
    const auto pack = x.pack(c, v);
    if constexpr (kIsKept) {
      most.add(pack);
    } else {
      const float here = Max{}(top, u.gain * u.value(largest(pack)));
      if (here > top) sums[0] *= exp_for<T>(top - here);
      top = here;
      add_exponentials(pack, here == -kInfinity ? 0.0f : here);
    }
  });
  SoftmaxStats s{max(group, kIsKept ? most() : top), 0, 0};
  if constexpr (kIsKept) s.max = u.gain * u.value(s.max);
  const float shift = s.shift();
  if (wants_shifted)
    columns.each([&](int c, int v) {
      const auto values = x(c, v);
#pragma unroll
      for (int j = 0; j < kVec; ++j) sums[1] += fmaf(u.value(values[j]), u.gain, -s.max);
    });
  if constexpr (kIsKept)
    columns.each([&](int c, int v) { add_exponentials(x.pack(c, v), shift); });
  else
    sums[0] *= exp_for<T>(top - shift);
  group.template reduce<Add>(sums);
  s.sum = sums[0], s.shifted = sums[1];
  return s;
}

// e^(gain value - gain top), for a result that is stored as T, in as few instructions as there can be: of 16 bits the
// exponent is taken to base 2 in one step. What that rounds away of gain top is the same for every element of the row.
template <class T>
class ExpBelow {
 public:
  __device__ __forceinline__ ExpBelow(float gain, float top)
      : scale_(gain * kBase), shift_(top == -kInfinity ? 0.0f : top * scale_) {}
  __device__ __forceinline__ float operator()(float value) const { return power(fmaf(value, scale_, -shift_)); }
  // e^(gain top - gain other's top), as the two rounded them.
  __device__ __forceinline__ float below(const ExpBelow& other) const { return power(shift_ - other.shift_); }
  // The logarithm of what a true sum of e^(gain value - gain top) is of a sum of these.
  __device__ __forceinline__ float correction(float top) const {
    return top == -kInfinity ? 0.0f : -fmaf(top, scale_, -shift_) * (1.0f / kBase);
  }

 private:
  static constexpr bool kIsBase2 = sizeof(T) < sizeof(float);
  static constexpr float kBase = kIsBase2 ? 1.4426950408889634f : 1.0f;
  static __device__ __forceinline__ float power(float x) {
    if constexpr (kIsBase2)
      return exp2_approx(x);
    else
      return exp_for<T>(x);
  }
  float scale_, shift_;
};

// What is known about a row or a part of it: its largest value, the sum of exponentials below that, and, where it is
// wanted, the sum of u - its u, of how many elements.
template <bool kWantsShifted>
inline constexpr int kSoftmaxFacts = kWantsShifted ? 4 : 2;
template <bool kWantsShifted>
using SoftmaxFacts = RowValues<kSoftmaxFacts<kWantsShifted>>;

// Looks at a row x, of which this warp has `in_warp` elements. held: what its elements stand for, or, where kHoldsExp,
// their exponentials below the warp's largest.
template <bool kHoldsExp, bool kWantsShifted, class T, class Group, class C, class U, class X, int kVec, int kVectors>
__device__ __forceinline__ SoftmaxFacts<kWantsShifted> softmax_facts(const Group& group, const C& columns, int in_warp,
                                                                     const U& u, const X& x,
                                                                     Floats<kVec> (&held)[kVectors]) {
  Largest<T, kVec> most;
  columns.look([&]<bool kIsInside>(int, int v) {
    const auto pack = x.template pack<kIsInside>(v);
    most.add(pack);
    const auto values = pack.f32();
    held[v] = floats<kVec>([&](int j) { return u.value(values[j]); });
  });
  float top[1] = {most()}, sums[1 + kWantsShifted] = {};
  group.template reduce_in_warp<Max>(top);
  if (in_warp > 0) top[0] = u.value(top[0]);
  if constexpr (kWantsShifted) {
    const float shift = top[0] == -kInfinity ? 0.0f : u.gain * top[0];
    columns.all([&](int c, int v) {
#pragma unroll
      for (int j = 0; j < kVec; ++j) sums[1] += columns.in_row(c, j) ? fmaf(held[v][j], u.gain, -shift) : 0.0f;
    });
  }
  const ExpBelow<T> exp(u.gain, top[0]);
  columns.all([&](int c, int v) {
    auto terms = floats<kVec>([&](int j) { return exp(held[v][j]); });
    if constexpr (kHoldsExp) held[v] = terms;
    if constexpr (U::kIsBounded)
#pragma unroll
      for (int j = 0; j < kVec; ++j) terms[j] = columns.in_row(c, j) ? terms[j] : 0.0f;
    sums[0] += total(terms);
  });
  group.template reduce_in_warp<Add>(sums);
  if constexpr (kWantsShifted)
    return {{top[0], sums[0], sums[1], float(in_warp)}};
  else
    return {{top[0], sums[0]}};
}

// Of the parts of a row.
template <class T, bool kWantsShifted>
struct MergeSoftmax {
  static constexpr int kFacts = kSoftmaxFacts<kWantsShifted>;
  float gain;
  __device__ __forceinline__ RowValues<kFacts> operator()(const Shares<kFacts>& parts) const {
    const float* const part = parts.mine.at;
    const auto shift = [this](float value) { return value == -kInfinity ? 0.0f : gain * value; };
    const float top = parts.max(part[0]);
    const float scale = ExpBelow<T>(gain, part[0]).below(ExpBelow<T>(gain, top));
    float sums[kFacts - 1] = {part[1] == 0 ? 0.0f : part[1] * scale};
    if constexpr (kWantsShifted) sums[1] = fmaf(part[3], shift(part[0]) - shift(top), part[2]), sums[2] = part[3];
#pragma unroll
    for (float& sum : sums) sum = parts.is_there ? sum : 0.0f;
    parts.sum(sums);
    RowValues<kFacts> whole{{top}};
    memcpy(whole.at + 1, sums, sizeof sums);
    return whole;
  }
};

// What is known about a whole row.
template <class T>
struct SoftmaxRow {
  float top, gain, sum, shifted;  // sum: of exp()
  template <int kFacts>
  __device__ __forceinline__ SoftmaxRow(const RowValues<kFacts>& facts, float gain_)
      : top(facts.at[0]), gain(gain_), sum(facts.at[1]), shifted(kFacts > 2 ? facts.at[kFacts - 2] : 0.0f) {}
  // What an exponential below `its_top` is multiplied by, to be one of exp().
  __device__ __forceinline__ float factor(float its_top) const {
    return its_top == -kInfinity ? 0.0f : ExpBelow<T>(gain, its_top).below(exp());
  }
  __device__ __forceinline__ ExpBelow<T> exp() const { return {gain, top}; }
  __device__ __forceinline__ float max() const { return gain * top; }
  __device__ __forceinline__ float correction() const { return exp().correction(top); }  // of log(sum)
  __device__ __forceinline__ float log_sum() const { return logf(sum) + correction(); }
};

}  // namespace tc::cuda
