// exp, log, tanh, sigmoid and the normal distribution on float lanes, for the SIMD target this file is being compiled for.
//
// Errors are in units in the last place of the exact result, over every float (tests/cpu_math_test.cpp measures them).
// NaN gives NaN and infinities give their limits; subnormal arguments and results are kept. Every function is evaluated
// lane by lane, so a value does not depend on its place in a row. Targets without FMA round products, and so may differ
// from the others within the bound; the constants are split so that the bounds hold there too.
#if defined(TRAINCORE_CPU_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRAINCORE_CPU_MATH_INL_H_
#undef TRAINCORE_CPU_MATH_INL_H_
#else
#define TRAINCORE_CPU_MATH_INL_H_
#endif

#include <limits>

#include "traincore/cpu/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tc::HWY_NAMESPACE {

// ln 2 = kLn2High + kLn2Low, the high part short enough that its product with any exponent is exact.
constexpr float kLn2High = 0x1.62e4p-1f;
constexpr float kLn2Low = 0x1.7f7d1cp-20f;

// min(v, bound) and max(v, bound) that keep NaN. x86 returns the second operand when either is NaN.
HWY_INLINE V at_most(V v, V bound) {
  if constexpr (HWY_TARGET <= HWY_AVX2) return hn::Min(bound, v);
  return hn::IfThenElse(hn::Gt(v, bound), bound, v);
}
HWY_INLINE V at_least(V v, V bound) {
  if constexpr (HWY_TARGET <= HWY_AVX2) return hn::Max(bound, v);
  return hn::IfThenElse(hn::Lt(v, bound), bound, v);
}

// c0 + c1 x + c2 x^2 + ..., by Horner's rule.
HWY_INLINE V polynomial(V, float c0) { return set(c0); }
template <class... C>
HWY_INLINE V polynomial(V x, float c0, C... c) {
  return hn::MulAdd(polynomial(x, c...), x, set(c0));
}

// x = k ln 2 + r with integer k and |r| <= ln 2 / 2. The low bits of `biased` are k + kBias.
struct ExpReduction {
  hn::Vec<U32> biased;
  V r;
};
template <int kBias>
HWY_INLINE ExpReduction reduce_exp(V x) {
  const V shift = set(0x1.8p23f + kBias);  // a float this large has an ulp of 1, so adding it rounds to an integer
  const V shifted = hn::MulAdd(x, set(0x1.715476p0f), shift);
  const V k = hn::Sub(shifted, shift);
  const V r = hn::NegMulAdd(k, set(kLn2Low), hn::NegMulAdd(k, set(kLn2High), x));
  return {hn::BitCast(U32(), shifted), r};
}

// 2^k for the low bits k + 127.
HWY_INLINE V power_of_two(hn::Vec<U32> biased) { return hn::BitCast(F32(), hn::ShiftLeft<23>(biased)); }

// e^r - 1 for |r| <= ln 2 / 2: minimax, 2^-28.
HWY_INLINE V expm1_reduced(V r) {
  const V q = polynomial(r, 0x1.fffffcp-2f, 0x1.555492p-3f, 0x1.5558f2p-5f, 0x1.123a2p-7f, 0x1.6a23dp-10f);
  return hn::MulAdd(hn::Mul(r, r), q, r);
}

// e^x where the result is known to be a normal number: -87 < x < 88.
HWY_INLINE V exp_normal(V x) {
  const ExpReduction reduced = reduce_exp<127>(x);
  const V scale = power_of_two(reduced.biased);
  return hn::MulAdd(expm1_reduced(reduced.r), scale, scale);
}

// e^x, 1.1 ulp. Overflows to inf, underflows through the subnormals to 0.
HWY_INLINE V exp(V x) {
  // 2^k is applied as two factors, so that neither leaves the range of normal numbers and only the last product rounds.
  const ExpReduction reduced = reduce_exp<254>(at_most(at_least(x, set(-104.0f)), set(89.0f)));
  const auto half = hn::ShiftRight<1>(reduced.biased);
  const V first = power_of_two(half), second = power_of_two(hn::Sub(reduced.biased, half));
  return hn::Mul(hn::MulAdd(expm1_reduced(reduced.r), first, first), second);
}

// e^x for x <= 0 and for positive x up to 43, 1.1 ulp. Underflows through the subnormals to 0.
HWY_INLINE V exp_negative(V x) {
  const ExpReduction reduced = reduce_exp<127 + 64>(at_least(x, set(-104.0f)));
  const V scale = power_of_two(reduced.biased);  // 2^64 too large, and so a normal number
  return hn::Mul(hn::MulAdd(expm1_reduced(reduced.r), scale, scale), set(0x1p-64f));
}

// Natural logarithm, 1.2 ulp. log(+-0) = -inf, NaN below 0.
HWY_INLINE V log(V x) {
  const I32 i;
  const V infinity = set(std::numeric_limits<float>::infinity());
  const auto tiny = hn::Lt(x, set(std::numeric_limits<float>::min()));
  const auto bits = hn::BitCast(i, hn::IfThenElse(tiny, hn::Mul(x, set(0x1p25f)), x));
  // x = 2^k (1 + f) with sqrt(1/2) <= 1 + f < sqrt(2).
  const auto k = hn::ShiftRight<23>(hn::Sub(bits, hn::Set(i, 0x3f3504f3)));
  const V f = hn::Sub(hn::BitCast(F32(), hn::Sub(bits, hn::ShiftLeft<23>(k))), set(1.0f));
  const V exponent = hn::Add(hn::ConvertTo(F32(), k), hn::IfThenElseZero(tiny, set(-25.0f)));
  // log(1 + f) = f - f^2/2 + f^3 p(f), small terms first: minimax, 2^-27.
  const V p = polynomial(f, 0x1.555554p-2f, -0x1.000226p-2f, 0x1.99a008p-3f, -0x1.547244p-3f, 0x1.22da1ep-3f,
                         -0x1.0d8542p-3f, 0x1.055b68p-3f, -0x1.38b578p-4f);
  const V f2 = hn::Mul(f, f);
  const V cubic = hn::MulAdd(hn::Mul(f, f2), p, hn::Mul(exponent, set(kLn2Low)));
  const V log1p = hn::Add(hn::NegMulAdd(set(0.5f), f2, cubic), f);
  const V finite = hn::MulAdd(exponent, set(kLn2High), log1p);
  const V positive = hn::IfThenElse(hn::Lt(x, infinity), finite, x);
  const V rest =
      hn::IfThenElse(hn::Eq(x, hn::Zero(F32())), hn::Neg(infinity), set(std::numeric_limits<float>::quiet_NaN()));
  return hn::IfThenElse(hn::Gt(x, hn::Zero(F32())), positive, rest);
}

// tanh x, 1.6 ulp. Exactly +-1 from |x| = 9.02 on.
HWY_INLINE V tanh(V x) {
  const V magnitude = hn::Abs(x);
  // |x| < 0.2775: |x| + |x|^3 p(x^2), minimax, 2^-27.
  const V x2 = hn::Mul(x, x);
  const V p = polynomial(x2, -0x1.5554e2p-2f, 0x1.10c9a8p-3f, -0x1.a0b91p-5f);
  const V inner = hn::MulAdd(magnitude, hn::Mul(x2, p), magnitude);
  // |x| >= 0.2775: t / (t + 2) with t = e^(2|x|) - 1.
  const ExpReduction reduced = reduce_exp<127>(at_most(hn::Add(magnitude, magnitude), set(20.0f)));
  const V scale = power_of_two(reduced.biased);
  const V t = hn::MulAdd(expm1_reduced(reduced.r), scale, hn::Sub(scale, set(1.0f)));
  const V outer = hn::Div(t, hn::Add(t, set(2.0f)));
  return hn::CopySign(hn::IfThenElse(hn::Lt(magnitude, set(0.2775f)), inner, outer), x);
}

// 1 / (1 + e^-x), 2.5 ulp, from e^-|x| alone, so that nothing overflows and the left tail is not lost.
HWY_INLINE V sigmoid(V x) {
  const V one = set(1.0f);
  const V e = exp_negative(hn::Neg(hn::Abs(x)));
  return hn::Div(hn::IfThenElse(hn::Lt(x, hn::Zero(F32())), e, one), hn::Add(one, e));
}

// x^2 - square, where square is x^2 rounded.
HWY_INLINE V lost_by_squaring(V x, V square) {
#if HWY_NATIVE_FMA
  return hn::MulSub(x, x, square);
#else
  const V high = hn::And(x, hn::BitCast(F32(), hn::Set(U32(), 0xfffff000u))), low = hn::Sub(x, high);
  const V cross = hn::Mul(hn::Add(high, high), low);
  return hn::Add(hn::Add(hn::Sub(hn::Mul(high, high), square), cross), hn::Mul(low, low));
#endif
}

// The standard normal distribution at |x| <= 15: exp(-x^2 / 2), and the cumulative distribution (1 + erf(x / sqrt 2)) / 2,
// 7 ulp in both tails.
struct NormalDistribution {
  V bell, cdf;
  HWY_INLINE explicit NormalDistribution(V x) {
    const V magnitude = hn::Abs(x), square = hn::Mul(x, x);
    const V rounded = exp_negative(hn::Mul(square, set(-0.5f)));
    bell = hn::NegMulAdd(hn::Mul(rounded, set(0.5f)), lost_by_squaring(x, square), rounded);
    // cdf(-|x|) / bell = t p(t), minimax, 2^-24.9.
    const V t = hn::Div(set(1.0f), hn::MulAdd(magnitude, set(0.35f), set(1.0f)));
    const V p = polynomial(t, 0x1.1df1c6p-3f, 0x1.1e70c6p-3f, 0x1.eac99ep-4f, 0x1.b05844p-4f, -0x1.7c5408p-6f,
                           0x1.464a38p-3f, -0x1.05fb06p-2f, 0x1.26fa0cp-3f, -0x1.ddb9a4p-6f);
    const V tail = hn::Mul(bell, hn::Mul(t, p));
    cdf = hn::IfNegativeThenElse(x, tail, hn::Sub(set(1.0f), tail));
  }
};

}  // namespace tc::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // TRAINCORE_CPU_MATH_INL_H_
