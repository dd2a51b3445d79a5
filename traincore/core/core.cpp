// Names, versions and the last error.
#include <cstring>

#include "traincore/core/dispatch.h"
#include "traincore/core/fail.h"
#include "traincore/core/gpus.h"

#define TC_TEXT(x) #x
#define TC_VERSION_TEXT(a, b, c) TC_TEXT(a) "." TC_TEXT(b) "." TC_TEXT(c)

namespace tc {
namespace {

thread_local char last_error[1024];

}  // namespace

void set_last_error(const char* sentence) noexcept { std::strncpy(last_error, sentence, sizeof last_error - 1); }

void vfail(tc_status_t code, fmt::string_view format, fmt::format_args args) {
  throw Error(code, fmt::vformat(format, args));
}

void unsupported_dtype(int32_t got, std::initializer_list<int32_t> known) {
  std::string names;
  for (const int32_t d : known) names.append(names.empty() ? "" : ", ").append(tc_dtype_name(d));
  fail(TC_ERR_UNSUPPORTED_DTYPE, "dtype {} is not served here; these are: {}", tc_dtype_name(got), names);
}

void unsupported_value(const char* what, int64_t got, std::initializer_list<int64_t> known) {
  std::string values;
  for (const int64_t v : known) values.append(values.empty() ? "" : ", ").append(std::to_string(v));
  fail(TC_ERR_KERNEL_NOT_FOUND, "{} = {} is not served here; these are: {}", what, got, values);
}

}  // namespace tc

const char* tc_dtype_name(int32_t dtype) {
  switch (dtype) {
    case TC_DTYPE_F16:
      return "f16";
    case TC_DTYPE_BF16:
      return "bf16";
    case TC_DTYPE_F32:
      return "f32";
    case TC_DTYPE_I8:
      return "i8";
    case TC_DTYPE_I32:
      return "i32";
    case TC_DTYPE_F64:
      return "f64";
    case TC_DTYPE_I64:
      return "i64";
    case TC_DTYPE_U8:
      return "u8";
    case TC_DTYPE_BOOL:
      return "bool";
    case TC_DTYPE_I16:
      return "i16";
    default:
      return "?";
  }
}

const char* tc_status_string(int32_t status) {
  switch (status) {
#define TC_STATUS_CASE(name) \
  case name:                 \
    return #name;
    TC_STATUS_CASE(TC_OK)
    TC_STATUS_CASE(TC_ERR_NOT_INITIALIZED)
    TC_STATUS_CASE(TC_ERR_ALREADY_INITIALIZED)
    TC_STATUS_CASE(TC_ERR_NO_DEVICE)
    TC_STATUS_CASE(TC_ERR_UNSUPPORTED_FAMILY)
    TC_STATUS_CASE(TC_ERR_UNSUPPORTED_DTYPE)
    TC_STATUS_CASE(TC_ERR_INVALID_SHAPE)
    TC_STATUS_CASE(TC_ERR_INVALID_ARG)
    TC_STATUS_CASE(TC_ERR_ALLOC)
    TC_STATUS_CASE(TC_ERR_KERNEL_NOT_FOUND)
    TC_STATUS_CASE(TC_ERR_PIPELINE)
    TC_STATUS_CASE(TC_ERR_DISPATCH)
    TC_STATUS_CASE(TC_ERR_INTERNAL)
#undef TC_STATUS_CASE
    default:
      return "unknown status";
  }
}

const char* tc_last_error(void) { return tc::last_error; }

const char* tc_version(void) { return TC_VERSION_TEXT(TC_VERSION_MAJOR, TC_VERSION_MINOR, TC_VERSION_PATCH); }

#ifndef TC_WITH_CUDA  // with it: traincore/cuda/device.cpp
void tc::require_gpu(int) {
  fail(TC_ERR_NO_DEVICE, "the tensors are on a GPU, but this build serves only the CPU (it was built without CUDA)");
}
tc_status_t tc_read_errors(const tc_exec* exec, uint32_t* bits) {
  return tc::guard([&] {
    tc::require(bits != nullptr, "tc_read_errors: bits is NULL");
    tc::require(!exec || !exec->stream, "tc_read_errors: exec.stream is set, but this build has no CUDA; pass NULL");
    *bits = 0;
  });
}
#endif
