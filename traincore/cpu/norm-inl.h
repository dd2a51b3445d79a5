// What kernels of normalised rows share, for the SIMD target this file is being compiled for.
#if defined(TRAINCORE_CPU_NORM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRAINCORE_CPU_NORM_INL_H_
#undef TRAINCORE_CPU_NORM_INL_H_
#else
#define TRAINCORE_CPU_NORM_INL_H_
#endif

#include <cmath>

#include "traincore/cpu/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tc::HWY_NAMESPACE {

// One row's v = x (+ residual): summed in f32, then rounded to Row (float: not at all).
template <class T, class Row = float>
struct NormRow {
  using Storage = T;
  const T* x;
  const T* residual;
  template <class At>
  HWY_INLINE V operator()(At at) const {
    return residual ? rounded<Row>(hn::Add(at.load(x), at.load(residual))) : at.load(x);
  }
};

// 1 / sqrt(mean(v^2) + eps) of one row.
template <class Row>
HWY_INLINE float rms_rstd(const Row& v, int64_t cols, float eps) {
  const float squares = sum_row(cols, [=](auto at) HWY_ATTR {
    const V value = v(at);
    return hn::Mul(value, value);
  });
  return 1.0f / std::sqrt(squares / static_cast<float>(cols) + eps);
}

// One row's mean in two parts, near + rest, and its population variance. `near` is so close to the mean that what is left
// after subtracting it is exact or nearly so, however far from 0 the row lies.
struct Moments {
  float near, rest, variance;
  float mean() const { return near + rest; }
  float rstd(float eps) const { return 1.0f / std::sqrt(variance + eps); }
  // (v - mean) rstd
  HWY_INLINE V normalise(V v, float rstd) const {
    return hn::MulSub(hn::Sub(v, set(near)), set(rstd), set(rest * rstd));
  }
};
template <class Row>
HWY_INLINE Moments moments_about(const Row& v, int64_t cols, float near) {
  const auto n = static_cast<float>(cols);
  const auto [sum, squares] = sums_row<2>(cols, [=](auto at) HWY_ATTR {
    const V c = hn::Sub(v(at), set(near));
    return std::array<V, 2>{c, hn::Mul(c, c)};
  });
  const float rest = sum / n;
  return {near, rest, std::max(squares / n - rest * rest, 0.0f)};
}
// About the mean of the row's first elements, which is near enough unless it is further off than the row is wide; then
// about the mean itself.
template <class Row>
HWY_INLINE Moments moments_of(const Row& v, int64_t cols) {
  constexpr int64_t kFirst = 64;
  const int64_t first = std::min(cols, kFirst);
  const float guess = sum_row(first, [=](auto at) HWY_ATTR { return v(at); }) / static_cast<float>(first);
  // As few bits as the elements have: with more, each of many differences would lose the same ones, and so would their sum.
  const auto about = [&](float near)
                         HWY_ATTR { return moments_about(v, cols, static_cast<float>(typename Row::Storage(near))); };
  const Moments moments = about(guess);
  return moments.rest * moments.rest <= moments.variance ? moments : about(moments.mean());
}

}  // namespace tc::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // TRAINCORE_CPU_NORM_INL_H_
