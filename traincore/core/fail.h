// Refusing with one formatted sentence: op, argument, what it got, what it wanted. Inside the library only.
#pragma once
#include <fmt/core.h>

#include "traincore/core/error.h"

namespace tc {

[[noreturn]] TC_TOOL_API void vfail(tc_status_t code, fmt::string_view format, fmt::format_args args);

template <class... A>
[[noreturn]] void fail(tc_status_t code, fmt::format_string<A...> format, A&&... args) {
  vfail(code, format, fmt::make_format_args(args...));
}

template <class... A>
void require(bool ok, fmt::format_string<A...> format, A&&... args) {
  if (!ok) fail(TC_ERR_INVALID_ARG, format, std::forward<A>(args)...);
}

}  // namespace tc
