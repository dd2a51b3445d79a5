// Turns a run-time dtype or number into a compile-time one: the only switch in the library.
#pragma once
#include <initializer_list>

#include "traincore/core/error.h"
#include "traincore/core/numeric.h"

namespace tc {

[[noreturn]] TC_TOOL_API void unsupported_dtype(int32_t got, std::initializer_list<int32_t> known);
[[noreturn]] TC_TOOL_API void unsupported_value(const char* what, int64_t got, std::initializer_list<int64_t> known);

template <class... Ts>
struct Types {};
using FloatTypes = Types<float, bf16, f16>;
using IndexTypes = Types<int32_t, int64_t>;

// Calls body.template operator()<T>() for the T in Ts whose dtype is `dtype`.
template <class... Ts, class F>
TC_ALWAYS_INLINE void with_type(Types<Ts...>, int32_t dtype, F&& body) {
  const bool found = ((dtype == dtype_of<Ts> && (body.template operator()<Ts>(), true)) || ...);
  if (!found) unsupported_dtype(dtype, {dtype_of<Ts>...});
}

// Calls body.template operator()<V>() for the V in Vs that equals `value`.
template <auto... Vs, class F>
TC_ALWAYS_INLINE void with_value(const char* what, int64_t value, F&& body) {
  const bool found = ((value == int64_t(Vs) && (body.template operator()<Vs>(), true)) || ...);
  if (!found) unsupported_value(what, value, {int64_t(Vs)...});
}

}  // namespace tc
