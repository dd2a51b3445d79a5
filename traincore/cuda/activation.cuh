// Device code: the activations of tc_activation_t on one f32.
//
//   const Activation<TC_ACTIVATION_SILU> act(x);
//   act.value()          act(x)
//   act.times_slope(g)   g act'(x), sharing with value() whatever both need
//
// No intermediate overflows: values and slopes are finite wherever the true ones are, -inf gives the limit, NaN gives
// NaN. A bound on x below is where the factor beside it has long underflowed to 0.
#pragma once
#include "traincore/core/types.h"

namespace tc::cuda {

// As min and max, but a NaN stays.
__device__ __forceinline__ float at_most(float x, float bound) { return x > bound ? bound : x; }
__device__ __forceinline__ float at_least(float x, float bound) { return x < bound ? bound : x; }

// 1 / x for x in [1, 2], which needs none of the care that division takes: rounded right but for rare last bits.
__device__ __forceinline__ float reciprocal_of_1_to_2(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return fmaf(y, fmaf(-x, y, 1.0f), y);
}

// sigmoid(z) and 1 - sigmoid(z), both tails with full relative accuracy.
struct Logistic {
  float s, rest;
  __device__ __forceinline__ explicit Logistic(float z) {
    const float e = expf(-fabsf(z));
    const float large = reciprocal_of_1_to_2(1.0f + e), small = e * large;
    s = z < 0 ? small : large;
    rest = z < 0 ? large : small;
  }
};

template <int kKind>
struct Activation;

// x sigmoid(k x).
struct Swish {
  float k, x, inner;  // x bounded below, and on both sides
  Logistic gate;
  __device__ __forceinline__ Swish(float raw, float k_)
      : k(k_), x(at_least(raw, -120 / k_)), inner(at_most(x, 120 / k_)), gate(inner * k_) {}
  __device__ __forceinline__ float value() const { return x * gate.s; }
  __device__ __forceinline__ float times_slope(float g) const {
    return g * fmaf(inner * k * gate.rest, gate.s, gate.s);
  }
};

template <>
struct Activation<TC_ACTIVATION_SILU> : Swish {
  __device__ __forceinline__ explicit Activation(float x) : Swish(x, 1.0f) {}
};

template <>
struct Activation<TC_ACTIVATION_QUICK_GELU> : Swish {
  __device__ __forceinline__ explicit Activation(float x) : Swish(x, 1.702f) {}
};

template <>
struct Activation<TC_ACTIVATION_SIGMOID> {
  Logistic gate;
  __device__ __forceinline__ explicit Activation(float x) : gate(x) {}
  __device__ __forceinline__ float value() const { return gate.s; }
  __device__ __forceinline__ float times_slope(float g) const { return g * (gate.s * gate.rest); }
};

// (1 + tanh(u)) / 2 = sigmoid(2 u), which does not cancel for negative u; 2 u = x (kLinear + kCubic x^2).
template <>
struct Activation<TC_ACTIVATION_GELU_TANH> {
  static constexpr float kLinear = 0x1.988454p+0f;  // 2 sqrt(2 / pi)
  static constexpr float kCubic = 0x1.2444f2p-4f;   // 0.044715 * 2 sqrt(2 / pi)
  float x, inner, square;
  Logistic gate;
  __device__ __forceinline__ explicit Activation(float raw)
      : x(at_least(raw, -12.0f)),
        inner(at_most(x, 12.0f)),
        square(inner * inner),
        gate(inner * fmaf(square, kCubic, kLinear)) {}
  __device__ __forceinline__ float value() const { return x * gate.s; }
  __device__ __forceinline__ float times_slope(float g) const {
    return g * fmaf(inner * fmaf(square, 3 * kCubic, kLinear) * gate.rest, gate.s, gate.s);
  }
};

// x cdf(x), with the normal distribution's cdf = (1 + erf(x / sqrt(2))) / 2.
template <>
struct Activation<TC_ACTIVATION_GELU_ERF> {
  float x, inner, cdf;
  __device__ __forceinline__ explicit Activation(float raw)
      : x(at_least(raw, -15.0f)), inner(at_most(x, 15.0f)), cdf(fmaf(erff(inner * 0x1.6a09e6p-1f), 0.5f, 0.5f)) {}
  __device__ __forceinline__ float value() const { return x * cdf; }
  __device__ __forceinline__ float times_slope(float g) const {
    const float density = expf(inner * inner * -0.5f) * 0x1.988454p-2f;  // 1 / sqrt(2 pi)
    return g * fmaf(inner, density, cdf);
  }
};

template <>
struct Activation<TC_ACTIVATION_RELU> {
  float x;
  __device__ __forceinline__ explicit Activation(float raw) : x(raw) {}
  __device__ __forceinline__ float value() const { return at_least(x, 0.0f); }
  __device__ __forceinline__ float times_slope(float g) const { return x <= 0 ? 0.0f : g; }
};

template <>
struct Activation<TC_ACTIVATION_RELU2> {
  float x;
  __device__ __forceinline__ explicit Activation(float raw) : x(raw) {}
  __device__ __forceinline__ float value() const {
    const float r = at_least(x, 0.0f);
    return r * r;
  }
  __device__ __forceinline__ float times_slope(float g) const { return x <= 0 ? 0.0f : (g + g) * x; }
};

// tanh' = 4 sigmoid(2 x) sigmoid(-2 x): 1 - tanh^2 would lose the tails.
template <>
struct Activation<TC_ACTIVATION_TANH> {
  float x;
  __device__ __forceinline__ explicit Activation(float raw) : x(raw) {}
  __device__ __forceinline__ float value() const { return tanhf(x); }
  __device__ __forceinline__ float times_slope(float g) const {
    const Logistic gate(x + x);
    return g * (4.0f * (gate.s * gate.rest));
  }
};

// f(Activation<kind> of type) for the kind known at compile time, or, where kKind is NONE, for `kind`.
template <class Act>
struct ActivationType {
  using type = Act;
};
template <int kKind, class F>
__device__ __forceinline__ void with_activation([[maybe_unused]] int32_t kind, F&& f) {
  if constexpr (kKind != TC_ACTIVATION_NONE) {
    f(ActivationType<Activation<kKind>>{});
  } else {
    switch (kind) {
      case TC_ACTIVATION_SILU:
        return f(ActivationType<Activation<TC_ACTIVATION_SILU>>{});
      case TC_ACTIVATION_SIGMOID:
        return f(ActivationType<Activation<TC_ACTIVATION_SIGMOID>>{});
      case TC_ACTIVATION_GELU_TANH:
        return f(ActivationType<Activation<TC_ACTIVATION_GELU_TANH>>{});
      case TC_ACTIVATION_GELU_ERF:
        return f(ActivationType<Activation<TC_ACTIVATION_GELU_ERF>>{});
      case TC_ACTIVATION_QUICK_GELU:
        return f(ActivationType<Activation<TC_ACTIVATION_QUICK_GELU>>{});
      case TC_ACTIVATION_RELU:
        return f(ActivationType<Activation<TC_ACTIVATION_RELU>>{});
      case TC_ACTIVATION_RELU2:
        return f(ActivationType<Activation<TC_ACTIVATION_RELU2>>{});
      default:
        return f(ActivationType<Activation<TC_ACTIVATION_TANH>>{});
    }
  }
}

}  // namespace tc::cuda
