// Device code: the maximum of a row and the sum of its exponentials, for softmax and the losses over classes.
#pragma once
#include "traincore/cuda/math.cuh"
#include "traincore/cuda/row_sums.cuh"
#include "traincore/cuda/rows.cuh"

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

// The largest element; a NaN wins.
template <class T, int N>
__device__ __forceinline__ float largest(const Pack<T, N>& pack) {
  if constexpr (sizeof(T) == 2 && N > 1) {
    const auto* const pairs = reinterpret_cast<const uint32_t*>(&pack.raw);
    uint32_t most = pairs[0];
#pragma unroll
    for (int i = 1; i < N / 2; ++i) {
      if constexpr (dtype_of<T> == TC_DTYPE_BF16)
        asm("max.NaN.bf16x2 %0, %0, %1;" : "+r"(most) : "r"(pairs[i]));
      else
        asm("max.NaN.f16x2 %0, %0, %1;" : "+r"(most) : "r"(pairs[i]));
    }
    const auto last = Pack<T, 2>{most}.f32();
    return Max{}(last[0], last[1]);
  } else {
    const auto x = pack.f32();
    float most = x[0];
#pragma unroll
    for (int i = 1; i < N; ++i) most = Max{}(most, x[i]);
    return most;
  }
}

// What a row's elements stand for: gain value(x), which grows with x.
struct Plain {
  static constexpr float gain = 1;
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
    auto terms = floats<kVec>([&](int j) { return exp_for<T>(fmaf(u.value(values[j]), u.gain, -shift)); });
#pragma unroll
    for (int half = kVec / 2; half > 0; half /= 2)
#pragma unroll
      for (int j = 0; j < half; ++j) terms[j] += terms[j + half];
    sums[0] += terms[0];
  };
  columns.each([&](int c, int v) {
    const auto pack = x.pack(c, v);
    if constexpr (kIsKept) {
      top = Max{}(top, largest(pack));
    } else {
      const float here = Max{}(top, u.gain * u.value(largest(pack)));
      if (here > top) sums[0] *= exp_for<T>(top - here);
      top = here;
      add_exponentials(pack, here == -kInfinity ? 0.0f : here);
    }
  });
  SoftmaxStats s{max(group, top), 0, 0};
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

}  // namespace tc::cuda
