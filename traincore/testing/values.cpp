#include "traincore/testing/values.h"

#include <cmath>
#include <cstring>

#include "traincore/core/dispatch.h"
#include "traincore/core/view.h"

namespace tc::testing {

namespace {

using Stored = Types<float, bf16, f16, double, int64_t, int32_t, int16_t, int8_t, uint8_t>;

// body.template operator()<T>() for the T that the dtype is stored as; a bool is a byte that may hold any poison.
template <class F>
void with_stored(int32_t dtype, F&& body) {
  with_type(Stored{}, dtype == TC_DTYPE_BOOL ? int32_t{TC_DTYPE_U8} : dtype, body);
}

template <class T>
constexpr bool is_narrow_float = std::is_same_v<T, bf16> || std::is_same_v<T, f16>;

template <class T>
double widened(T v) {
  if constexpr (is_narrow_float<T>)
    return static_cast<float>(v);
  else
    return static_cast<double>(v);
}

template <class T>
T narrowed(double v) {
  if constexpr (is_narrow_float<T>)
    return T(static_cast<float>(v));
  else
    return static_cast<T>(v);
}

}  // namespace

double rounded(double value, int32_t dtype) {
  with_stored(dtype, [&]<class T>() { value = widened(narrowed<T>(value)); });
  return value;
}

bool is_float(int32_t d) { return d == TC_DTYPE_F32 || d == TC_DTYPE_BF16 || d == TC_DTYPE_F16 || d == TC_DTYPE_F64; }

double ulp(int32_t dtype, double magnitude) {
  const int digits = dtype == TC_DTYPE_F64 ? 53 : dtype == TC_DTYPE_F32 ? 24 : dtype == TC_DTYPE_F16 ? 11 : 8;
  const int lowest = dtype == TC_DTYPE_F64 ? -1074 : dtype == TC_DTYPE_F32 ? -149 : dtype == TC_DTYPE_F16 ? -24 : -133;
  if (!(magnitude > 0)) return std::ldexp(1.0, lowest);
  return std::ldexp(1.0, std::max(std::ilogb(magnitude) - digits + 1, lowest));
}

void for_each_row(const tc_tensor& t, FunctionRef<void(std::byte*, int64_t, int64_t)> visit) {
  if (element_count(t) == 0) return;
  const auto size = static_cast<int64_t>(tc_dtype_size(t.dtype));
  const int leading = t.rank ? t.rank - 1 : 0;
  const int64_t cols = t.rank ? t.shape[t.rank - 1] : 1, step = cols > 1 ? t.stride[t.rank - 1] : 1;
  int64_t index[TC_MAX_RANK] = {};
  while (true) {
    auto* row = static_cast<std::byte*>(t.data);
    for (int i = 0; i < leading; ++i) row += index[i] * (t.shape[i] > 1 ? t.stride[i] : 0) * size;
    visit(row, cols, step * size);
    int i = leading - 1;
    for (; i >= 0 && ++index[i] == t.shape[i]; --i) index[i] = 0;
    if (i < 0) return;
  }
}

std::vector<double> read_all(const tc_tensor& t) {
  std::vector<double> values(static_cast<size_t>(element_count(t)));
  double* next = values.data();
  with_stored(t.dtype, [&]<class T>() {
    for_each_row(t, [&](const std::byte* p, int64_t count, int64_t step) {
      for (int64_t i = 0; i < count; ++i) *next++ = widened(*reinterpret_cast<const T*>(p + i * step));
    });
  });
  return values;
}

void write_all(const tc_tensor& t, std::span<const double> values) {
  size_t next = 0;
  with_stored(t.dtype, [&]<class T>() {
    for_each_row(t, [&](std::byte* p, int64_t count, int64_t step) {
      for (int64_t i = 0; i < count; ++i) {
        *reinterpret_cast<T*>(p + i * step) = narrowed<T>(values[next]);
        if (++next == values.size()) next = 0;
      }
    });
  });
}

void copy_all(const tc_tensor& from, const tc_tensor& to) {
  if (from.dtype == to.dtype && is_dense(from) && is_dense(to))
    std::memcpy(to.data, from.data, static_cast<size_t>(element_count(from)) * tc_dtype_size(from.dtype));
  else
    write_all(to, read_all(from));
}

}  // namespace tc::testing
