// Device code: the activations of tc_activation_t on one f32, as exact as results that are stored as T can hold.
//
//   const Activation<TC_ACTIVATION_SILU, T> act(x);
//   act.value()          act(x)
//   act.times_slope(g)   g act'(x), sharing with value() whatever both need
//
// No intermediate overflows: values and slopes are finite wherever the true ones are, -inf gives the limit, NaN gives
// NaN. A bound on x below is where the factor beside it has long underflowed to 0.
#pragma once
#include "traincore/core/types.h"
#include "traincore/cuda/math.cuh"

namespace tc::cuda {

// As min and max, but a NaN stays.
__device__ __forceinline__ float at_most(float x, float bound) {
  float y;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(x), "f"(bound));
  return y;
}
__device__ __forceinline__ float at_least(float x, float bound) {
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(x), "f"(bound));
  return y;
}

// 1 / x for x from 1 to some thousand. f32: correctly rounded. 16 bits: rcp.approx, 1 ulp of f32.
template <class T>
__device__ __forceinline__ float reciprocal_for(float x) {
  if constexpr (sizeof(T) == 4) return __frcp_rn(x);
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// sigmoid(z) and 1 - sigmoid(z), both tails with full relative accuracy.
template <class T>
struct Logistic {
  float s, rest;
  __device__ __forceinline__ explicit Logistic(float z) {
    const float e = exp_for<T>(-fabsf(z));
    const float large = reciprocal_for<T>(1.0f + e), small = e * large;
    s = z < 0 ? small : large;
    rest = z < 0 ? large : small;
  }
};

// The normal distribution's cdf at x and its density there.
template <class T>
struct NormalLaw {
  float cdf, density;
  __device__ __forceinline__ explicit NormalLaw(float x) {
    density = exp_for<T>(x * x * -0.5f) * 0x1.988454p-2f;  // 1 / sqrt(2 pi)
    if constexpr (sizeof(T) == 4) {
      cdf = fmaf(erff(x * 0x1.6a09e6p-1f), 0.5f, 0.5f);
    } else {  // Abramowitz and Stegun 26.2.17, off by 7.5e-8 at most
      const float t = reciprocal_for<T>(fmaf(fabsf(x), 0.2316419f, 1.0f));
      float tail = fmaf(t, 1.330274429f, -1.821255978f);
      tail = fmaf(t, tail, 1.781477937f);
      tail = fmaf(t, tail, -0.356563782f);
      tail = density * (t * fmaf(t, tail, 0.319381530f));
      cdf = x < 0 ? tail : 1.0f - tail;
    }
  }
};

template <int kKind, class T>
struct Activation;

// x sigmoid(k x).
template <class T>
struct Swish {
  float k, x, inner;  // x bounded below, and on both sides
  Logistic<T> gate;
  __device__ __forceinline__ Swish(float raw, float k_)
      : k(k_), x(at_least(raw, -120 / k_)), inner(at_most(x, 120 / k_)), gate(inner * k_) {}
  __device__ __forceinline__ float value() const { return x * gate.s; }
  __device__ __forceinline__ float times_slope(float g) const {
    return g * fmaf(inner * k * gate.rest, gate.s, gate.s);
  }
};

template <class T>
struct Activation<TC_ACTIVATION_SILU, T> : Swish<T> {
  __device__ __forceinline__ explicit Activation(float x) : Swish<T>(x, 1.0f) {}
};

template <class T>
struct Activation<TC_ACTIVATION_QUICK_GELU, T> : Swish<T> {
  __device__ __forceinline__ explicit Activation(float x) : Swish<T>(x, 1.702f) {}
};

template <class T>
struct Activation<TC_ACTIVATION_SIGMOID, T> {
  Logistic<T> gate;
  __device__ __forceinline__ explicit Activation(float x) : gate(x) {}
  __device__ __forceinline__ float value() const { return gate.s; }
  __device__ __forceinline__ float times_slope(float g) const { return g * (gate.s * gate.rest); }
};

// (1 + tanh(u)) / 2 = sigmoid(2 u), which does not cancel for negative u; 2 u = x (kLinear + kCubic x^2).
template <class T>
struct Activation<TC_ACTIVATION_GELU_TANH, T> {
  static constexpr float kLinear = 0x1.988454p+0f;  // 2 sqrt(2 / pi)
  static constexpr float kCubic = 0x1.2444f2p-4f;   // 0.044715 * 2 sqrt(2 / pi)
  float x, inner, square;
  Logistic<T> gate;
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

template <class T>
struct Activation<TC_ACTIVATION_GELU_ERF, T> {
  float x, inner;
  NormalLaw<T> law;
  __device__ __forceinline__ explicit Activation(float raw)
      : x(at_least(raw, -15.0f)), inner(at_most(x, 15.0f)), law(inner) {}
  __device__ __forceinline__ float value() const { return x * law.cdf; }
  __device__ __forceinline__ float times_slope(float g) const { return g * fmaf(inner, law.density, law.cdf); }
};

template <class T>
struct Activation<TC_ACTIVATION_RELU, T> {
  float x;
  __device__ __forceinline__ explicit Activation(float raw) : x(raw) {}
  __device__ __forceinline__ float value() const { return at_least(x, 0.0f); }
  __device__ __forceinline__ float times_slope(float g) const { return x <= 0 ? 0.0f : g; }
};

template <class T>
struct Activation<TC_ACTIVATION_RELU2, T> {
  float x;
  __device__ __forceinline__ explicit Activation(float raw) : x(raw) {}
  __device__ __forceinline__ float value() const {
    const float r = at_least(x, 0.0f);
    return r * r;
  }
  // 2 x, finite wherever x is.
  __device__ __forceinline__ float times_slope(float g) const {
    constexpr float kMost = 0x1.fep127f;
    if (x <= 0) return 0.0f;
    const float slope = x + x;
    return g * (slope > kMost && !isinf(x) ? kMost : slope);
  }
};

// tanh' = 4 sigmoid(2 x) sigmoid(-2 x): 1 - tanh^2 would lose the tails.
template <class T>
struct Activation<TC_ACTIVATION_TANH, T> {
  float x;
  __device__ __forceinline__ explicit Activation(float raw) : x(raw) {}
  __device__ __forceinline__ float value() const { return tanhf(x); }
  __device__ __forceinline__ float times_slope(float g) const {
    const Logistic<T> gate(x + x);
    return g * (4.0f * (gate.s * gate.rest));
  }
};

// f(Activation<kind> of type) for the kind known at compile time, or, where kKind is NONE, for `kind`.
template <class Act>
struct ActivationType {
  using type = Act;
};
template <int kKind, class T, class F>
__device__ __forceinline__ void with_activation([[maybe_unused]] int32_t kind, F&& f) {
  if constexpr (kKind != TC_ACTIVATION_NONE) {
    f(ActivationType<Activation<kKind, T>>{});
  } else {
    switch (kind) {
      case TC_ACTIVATION_SILU:
        return f(ActivationType<Activation<TC_ACTIVATION_SILU, T>>{});
      case TC_ACTIVATION_SIGMOID:
        return f(ActivationType<Activation<TC_ACTIVATION_SIGMOID, T>>{});
      case TC_ACTIVATION_GELU_TANH:
        return f(ActivationType<Activation<TC_ACTIVATION_GELU_TANH, T>>{});
      case TC_ACTIVATION_GELU_ERF:
        return f(ActivationType<Activation<TC_ACTIVATION_GELU_ERF, T>>{});
      case TC_ACTIVATION_QUICK_GELU:
        return f(ActivationType<Activation<TC_ACTIVATION_QUICK_GELU, T>>{});
      case TC_ACTIVATION_RELU:
        return f(ActivationType<Activation<TC_ACTIVATION_RELU, T>>{});
      case TC_ACTIVATION_RELU2:
        return f(ActivationType<Activation<TC_ACTIVATION_RELU2, T>>{});
      default:
        return f(ActivationType<Activation<TC_ACTIVATION_TANH, T>>{});
    }
  }
}

}  // namespace tc::cuda
