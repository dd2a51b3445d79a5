// Device code: the maximum of a row and the sum of its exponentials, for softmax and the losses over classes.
#pragma once
#include "traincore/cuda/math.cuh"
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

// Statistics of the row u(c, v) -> Floats. A row that is kept is looked at twice, any other is read once, with the sum
// rescaled where a thread finds a new maximum; `wants_shifted` costs one more look.
template <class Tile, class T, class F>
__device__ __forceinline__ SoftmaxStats softmax_stats(typename Tile::Group& group, const Columns<Tile, T>& columns,
                                                      bool wants_shifted, F&& u) {
  constexpr int kVec = Tile::template kVec<T>;
  constexpr bool kIsKept = Tile::kVectors > 0;
  float top = -kInfinity, sums[2] = {0, 0};  // of exponentials; of u - max
  columns.each([&](int c, int v) {
    const auto x = u(c, v);
    float here = top;
#pragma unroll
    for (int j = 0; j < kVec; ++j) here = Max{}(here, x[j]);
    if constexpr (!kIsKept) {
      if (here > top) sums[0] *= exp_for<T>(top - here);
      const float shift = here == -kInfinity ? 0.0f : here;
#pragma unroll
      for (int j = 0; j < kVec; ++j) sums[0] += exp_for<T>(x[j] - shift);
    }
    top = here;
  });
  SoftmaxStats s{max(group, top), 0, 0};
  if (wants_shifted)
    columns.each([&](int c, int v) {
      const auto x = u(c, v);
#pragma unroll
      for (int j = 0; j < kVec; ++j) sums[1] += x[j] - s.max;
    });
  if constexpr (kIsKept)
    columns.each([&](int c, int v) {
      const auto x = u(c, v);
#pragma unroll
      for (int j = 0; j < kVec; ++j) sums[0] += exp_for<T>(x[j] - s.shift());
    });
  else
    sums[0] *= exp_for<T>(top - s.shift());
  group.template reduce<Add>(sums);
  s.sum = sums[0], s.shifted = sums[1];
  return s;
}

}  // namespace tc::cuda
