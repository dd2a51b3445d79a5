// From a call's kind and width to the kernel template that serves it.
#pragma once
#include "traincore/core/dispatch.h"
#include "traincore/ops/activation/activation.h"

namespace tc::ops::activation {

// Calls body.template operator()<width, kind>(). Vectors have a kernel per kind. Single elements, the fallback, share one
// that looks at the kind while it runs and is given the kind NONE; so do vectors under TC_STRICT, because that one takes
// no approximate instruction whatever the dtype.
template <int kVec, class F>
void with_width_and_kind(int32_t width, int32_t kind, const tc_exec& exec, F&& body) {
  if (width == 1) return body.template operator()<1, TC_ACTIVATION_NONE>();
  if (exec.precision == TC_STRICT) return body.template operator()<kVec, TC_ACTIVATION_NONE>();
  with_value<TC_ACTIVATION_SILU, TC_ACTIVATION_SIGMOID, TC_ACTIVATION_GELU_TANH, TC_ACTIVATION_GELU_ERF,
             TC_ACTIVATION_QUICK_GELU, TC_ACTIVATION_RELU, TC_ACTIVATION_RELU2, TC_ACTIVATION_TANH>(
      "activation", kind, [&]<auto kKind>() { body.template operator()<kVec, kKind>(); });
}

}  // namespace tc::ops::activation
