// The maximum and the sum of exponentials of a row, for the SIMD target this file is being compiled for.
#if defined(TRAINCORE_CPU_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRAINCORE_CPU_SOFTMAX_INL_H_
#undef TRAINCORE_CPU_SOFTMAX_INL_H_
#else
#define TRAINCORE_CPU_SOFTMAX_INL_H_
#endif

#include <cmath>

#include "traincore/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tc::HWY_NAMESPACE {

// What a softmax needs to know of a row u. -inf elements count as nothing, even where they are all there is.
struct SoftmaxStats {
  float max = -std::numeric_limits<float>::infinity();  // NaN if an element is
  float shift = 0;                                      // subtracted before exp: max, or 0 where max is -inf
  double sum = 0;      // of exp(u - shift): 0 if every element is -inf, NaN if one is NaN or +inf
  double shifted = 0;  // sum of u - shift

  // A new maximum after `count` elements.
  void raise(float new_max, int64_t count) {
    const double old = shift;
    if (!std::isnan(max)) max = new_max;
    shift = max == -std::numeric_limits<float>::infinity() ? 0 : max;
    if (sum > 0) sum *= std::exp(old - shift);
    shifted += static_cast<double>(count) * (old - shift);
  }
  float inverse_sum() const { return static_cast<float>(sum == 0 ? 0 : 1 / sum); }
  double log_sum() const { return sum == 0 ? 0 : std::log(sum); }
};

// Of u(x) for the n elements of a row in memory, in one traversal of it: a block is read twice, the second time from
// the L1 cache. `u` maps a vector to a vector and must not decrease. The order of the sums depends on n and on the
// vector width alone.
template <class T, class U>
HWY_INLINE HWY_FLATTEN SoftmaxStats softmax_stats(const T* x, int64_t n, U&& u) {
  constexpr int64_t kBlock = 4096;
  SoftmaxStats stats;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const T* const block = x + begin;
    const int64_t size = std::min(kBlock, n - begin);
    const float largest = max_row(size, [&](auto at) HWY_ATTR { return at.load(block); });
    const float max = hn::GetLane(u(set(largest)));
    if (!(max <= stats.max)) stats.raise(max, begin);
    const V shift = set(stats.shift);
    const auto sums = sums_row<2>(size, [&](auto at) HWY_ATTR HWY_FLATTEN {
      const V shifted = hn::Sub(u(at.load(block)), shift);
      return std::array<V, 2>{exp(shifted), shifted};
    });
    stats.sum += sums[0];
    stats.shifted += sums[1];
  }
  return stats;
}

}  // namespace tc::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // TRAINCORE_CPU_SOFTMAX_INL_H_
