// The maximum and the sum of exponentials of a row, for the SIMD target this file is being compiled for.
#if defined(TRAINCORE_CPU_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRAINCORE_CPU_SOFTMAX_INL_H_
#undef TRAINCORE_CPU_SOFTMAX_INL_H_
#else
#define TRAINCORE_CPU_SOFTMAX_INL_H_
#endif

#include <cmath>

#include "traincore/core/arena.h"
#include "traincore/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tc::HWY_NAMESPACE {

// What a softmax needs to know of a row u. -inf elements count as nothing, even where they are all there is.
struct SoftmaxStats {
  float max = -std::numeric_limits<float>::infinity();  // NaN if an element is
  float shift = 0;                                      // subtracted before exp: max, or 0 where max is -inf
  double sum = 0;      // of exp(u - shift): 0 if every element is -inf, NaN if one is NaN or +inf
  double shifted = 0;  // sum of u - shift, where asked for

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

constexpr int64_t kSoftmaxBlock = 4096;

// The exponentials that softmax_stats evaluated for a row, kept for what is written from them: exp(u - shift), each block
// with the shift of its time. Rows too long for the second-level cache are not kept, and none of 0 columns.
class Exponentials {
 public:
  explicit Exponentials(int64_t cols)
      : blocks_(cols > kMost ? 0 : (cols + kSoftmaxBlock - 1) / kSoftmaxBlock),
        memory_(static_cast<size_t>(blocks_ * (kSoftmaxBlock + 1)) * sizeof(float)) {}
  bool kept() const { return blocks_ > 0; }
  float* values() const { return static_cast<float*>(memory_.data()); }
  float* shifts() const { return values() + blocks_ * kSoftmaxBlock; }

 private:
  static constexpr int64_t kMost = 1 << 16;
  int64_t blocks_;
  ThreadScratch memory_;
};

// Of u(x) for the n elements of a row in memory, in one traversal of it: a block is read twice, the second time from
// the L1 cache. `u` maps a vector to a vector and must not decrease. The order of the sums depends on n and on the
// vector width alone. `shifted` is 0 unless kShifted.
template <bool kShifted, class T, class U>
HWY_INLINE HWY_FLATTEN SoftmaxStats softmax_stats(const T* x, int64_t n, U&& u, const Exponentials& kept) {
  SoftmaxStats stats;
  for (int64_t begin = 0; begin < n; begin += kSoftmaxBlock) {
    const T* const block = x + begin;
    const int64_t size = std::min(kSoftmaxBlock, n - begin);
    const float largest = max_row(size, [&](auto at) HWY_ATTR { return at.load(block); });
    const float max = hn::GetLane(u(set(largest)));
    if (!(max <= stats.max)) stats.raise(max, begin);
    const V shift = set(stats.shift);
    float* const values = kept.kept() ? kept.values() + begin : nullptr;
    if (values) kept.shifts()[begin / kSoftmaxBlock] = stats.shift;
    const auto sums = sums_row<1 + int{kShifted}>(size, [=](auto at) HWY_ATTR HWY_FLATTEN {
      at.prefetch(block + kSoftmaxBlock);
      const V shifted = hn::Sub(u(at.load(block)), shift);
      const V e = exp_negative(shifted);
      if (values) at.store(values, e);
      if constexpr (kShifted)
        return std::array<V, 2>{e, shifted};
      else
        return std::array<V, 1>{e};
    });
    stats.sum += sums[0];
    if constexpr (kShifted) stats.shifted += sums[1];
  }
  return stats;
}

// y[i] = f(i, e) with e = exp(u(x[i]) - shift), for a row that softmax_stats was called for. y may be x.
template <class T, class U, class F>
HWY_INLINE HWY_FLATTEN void map_exponentials(const SoftmaxStats& stats, const Exponentials& kept, const T* x, int64_t n,
                                             U u, T* y, bool streamed, F f) {
  const V shift = set(stats.shift);
  if (!kept.kept()) {
    map_row(0, n, y, streamed,
            [=](auto at) HWY_ATTR HWY_FLATTEN { return f(at, exp_negative(hn::Sub(u(at.load(x)), shift))); });
    return;
  }
  for (int64_t begin = 0; begin < n; begin += kSoftmaxBlock) {
    // Shifts only rise, but for that of a row of nothing but -inf so far, whose exponentials are 0.
    const float then = kept.shifts()[begin / kSoftmaxBlock];
    const V scale = set(then == stats.shift ? 1.0f : std::min(1.0f, std::exp(then - stats.shift)));
    const float* const values = kept.values();
    map_row(begin, std::min(n, begin + kSoftmaxBlock), y, streamed,
            [=](auto at) HWY_ATTR HWY_FLATTEN { return f(at, hn::Mul(at.load(values), scale)); });
  }
}

}  // namespace tc::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // TRAINCORE_CPU_SOFTMAX_INL_H_
