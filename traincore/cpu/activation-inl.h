// The activations of tc_activation_t on float lanes, for the SIMD target this file is being compiled for.
//
//   const Activation<TC_ACTIVATION_SILU> act(x);
//   act.value()          act(x)
//   act.times_slope(g)   g act'(x), sharing with value() whatever both need
//
// No intermediate overflows: values and slopes are finite wherever the true ones are, -inf gives the limit, NaN gives
// NaN. A bound on x below is where the factor beside it has long underflowed to 0.
#if defined(TRAINCORE_CPU_ACTIVATION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRAINCORE_CPU_ACTIVATION_INL_H_
#undef TRAINCORE_CPU_ACTIVATION_INL_H_
#else
#define TRAINCORE_CPU_ACTIVATION_INL_H_
#endif

#include "traincore/core/dispatch.h"
#include "traincore/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tc::HWY_NAMESPACE {

template <int kKind>
struct Activation;

// -|z|
HWY_INLINE V negative_magnitude(V z) { return hn::Or(z, hn::SignBit(F32())); }

// sigmoid(z) and 1 - sigmoid(z), both tails with full relative accuracy.
struct Logistic {
  V z, e;
  HWY_INLINE explicit Logistic(V z_) : z(z_), e(exp_negative(negative_magnitude(z_))) {}
  // v sigmoid(z)
  HWY_INLINE V times(V v) const {
    const V large = hn::Div(v, hn::Add(set(1.0f), e));
    return hn::IfNegativeThenElse(z, hn::Mul(e, large), large);
  }
  struct Both {
    V s, rest;
  };
  HWY_INLINE Both both() const {
    const V large = hn::Div(set(1.0f), hn::Add(set(1.0f), e)), small = hn::Mul(e, large);
    return {hn::IfNegativeThenElse(z, small, large), hn::IfNegativeThenElse(z, large, small)};
  }
};

// x sigmoid(k x).
struct Swish {
  float k;
  V x, inner;  // x bounded below, and on both sides
  Logistic gate;
  HWY_INLINE Swish(V raw, float k_)
      : k(k_), x(at_least(raw, set(-120 / k_))), inner(at_most(x, set(120 / k_))), gate(hn::Mul(inner, set(k))) {}
  HWY_INLINE V value() const { return gate.times(x); }
  HWY_INLINE V times_slope(V g) const {
    const auto [s, rest] = gate.both();
    return hn::Mul(g, hn::MulAdd(hn::Mul(hn::Mul(inner, set(k)), rest), s, s));
  }
};

template <>
struct Activation<TC_ACTIVATION_SILU> : Swish {
  HWY_INLINE explicit Activation(V x) : Swish(x, 1.0f) {}
};

template <>
struct Activation<TC_ACTIVATION_QUICK_GELU> : Swish {
  HWY_INLINE explicit Activation(V x) : Swish(x, 1.702f) {}
};

template <>
struct Activation<TC_ACTIVATION_SIGMOID> {
  Logistic gate;
  HWY_INLINE explicit Activation(V x) : gate(x) {}
  HWY_INLINE V value() const { return gate.times(set(1.0f)); }
  HWY_INLINE V times_slope(V g) const {
    const auto [s, rest] = gate.both();
    return hn::Mul(g, hn::Mul(s, rest));
  }
};

// (1 + tanh(u)) / 2 = sigmoid(2 u), which does not cancel for negative u; 2 u = x (kLinear + kCubic x^2). From 10 on,
// value and slope are x and 1 to the last bit, wherever x is bounded; at -10 the curve is still 1e-37 from 0.
template <>
struct Activation<TC_ACTIVATION_GELU_TANH> {
  static constexpr float kLinear = 0x1.988454p+0f;  // 2 sqrt(2 / pi)
  static constexpr float kCubic = 0x1.2444f2p-4f;   // 0.044715 * 2 sqrt(2 / pi)
  V x, inner, square;
  Logistic gate;
  HWY_INLINE explicit Activation(V raw)
      : x(at_least(raw, set(-12.0f))),
        inner(at_most(x, set(12.0f))),
        square(hn::Mul(inner, inner)),
        gate(hn::Mul(inner, hn::MulAdd(square, set(kCubic), set(kLinear)))) {}
  HWY_INLINE V value() const { return gate.times(x); }
  HWY_INLINE V times_slope(V g) const {
    const auto [s, rest] = gate.both();
    const V bend = hn::Mul(hn::Mul(inner, hn::MulAdd(square, set(3 * kCubic), set(kLinear))), rest);
    return hn::Mul(g, hn::MulAdd(bend, s, s));
  }
};

// x cdf(x), with the cumulative normal distribution; its slope is cdf + x density.
template <>
struct Activation<TC_ACTIVATION_GELU_ERF> {
  V x, inner;
  NormalDistribution at;
  HWY_INLINE explicit Activation(V raw) : x(at_least(raw, set(-15.0f))), inner(at_most(x, set(15.0f))), at(inner) {}
  HWY_INLINE V value() const { return hn::Mul(x, at.cdf); }
  HWY_INLINE V times_slope(V g) const {
    const V density = hn::Mul(at.bell, set(0x1.988454p-2f));  // 1 / sqrt(2 pi)
    return hn::Mul(g, hn::MulAdd(inner, density, at.cdf));
  }
};

template <>
struct Activation<TC_ACTIVATION_RELU> {
  V x;
  HWY_INLINE explicit Activation(V raw) : x(raw) {}
  HWY_INLINE V value() const { return at_least(x, hn::Zero(F32())); }
  HWY_INLINE V times_slope(V g) const { return hn::IfThenZeroElse(hn::Le(x, hn::Zero(F32())), g); }
};

template <>
struct Activation<TC_ACTIVATION_RELU2> {
  V x;
  HWY_INLINE explicit Activation(V raw) : x(raw) {}
  HWY_INLINE V value() const {
    const V r = at_least(x, hn::Zero(F32()));
    return hn::Mul(r, r);
  }
  // 2 x, but no more for a finite x than the largest number that f32 and bf16 both hold.
  HWY_INLINE V times_slope(V g) const {
    const V slope = hn::Add(x, x);
    const V bounded = hn::IfThenElse(hn::IsInf(x), slope, at_most(slope, set(0x1.fep127f)));
    return hn::IfThenZeroElse(hn::Le(x, hn::Zero(F32())), hn::Mul(g, bounded));
  }
};

// tanh' = 4 sigmoid(2 x) sigmoid(-2 x): 1 - tanh^2 would lose the tails.
template <>
struct Activation<TC_ACTIVATION_TANH> {
  V x;
  HWY_INLINE explicit Activation(V raw) : x(raw) {}
  HWY_INLINE V value() const { return tanh(x); }
  HWY_INLINE V times_slope(V g) const {
    const auto [s, rest] = Logistic(hn::Add(x, x)).both();
    return hn::Mul(g, hn::Mul(set(4.0f), hn::Mul(s, rest)));
  }
};

// Calls body.template operator()<Activation<kind>>() for a kind other than TC_ACTIVATION_NONE.
template <class F>
HWY_INLINE void with_activation(int32_t kind, F&& body) {
  with_value<TC_ACTIVATION_SILU, TC_ACTIVATION_SIGMOID, TC_ACTIVATION_GELU_TANH, TC_ACTIVATION_GELU_ERF,
             TC_ACTIVATION_QUICK_GELU, TC_ACTIVATION_RELU, TC_ACTIVATION_RELU2, TC_ACTIVATION_TANH>(
      "activation", kind, [&]<auto kKind>() { body.template operator()<Activation<kKind>>(); });
}

}  // namespace tc::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // TRAINCORE_CPU_ACTIVATION_INL_H_
