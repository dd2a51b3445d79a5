#include "traincore/testing/values.h"

#include <cmath>
#include <cstring>

#include "traincore/core/view.h"

namespace tc::testing {

double get(const void* p, int32_t dtype) {
  switch (dtype) {
    case TC_DTYPE_F32:
      return *static_cast<const float*>(p);
    case TC_DTYPE_BF16:
      return float(*static_cast<const bf16*>(p));
    case TC_DTYPE_F16:
      return float(*static_cast<const f16*>(p));
    case TC_DTYPE_F64:
      return *static_cast<const double*>(p);
    case TC_DTYPE_I64:
      return static_cast<double>(*static_cast<const int64_t*>(p));
    case TC_DTYPE_I32:
      return *static_cast<const int32_t*>(p);
    case TC_DTYPE_I16:
      return *static_cast<const int16_t*>(p);
    case TC_DTYPE_I8:
      return *static_cast<const int8_t*>(p);
    default:
      return *static_cast<const uint8_t*>(p);
  }
}

void set(void* p, int32_t dtype, double v) {
  switch (dtype) {
    case TC_DTYPE_F32:
      *static_cast<float*>(p) = static_cast<float>(v);
      break;
    case TC_DTYPE_BF16:
      *static_cast<bf16*>(p) = bf16(static_cast<float>(v));
      break;
    case TC_DTYPE_F16:
      *static_cast<f16*>(p) = f16(static_cast<float>(v));
      break;
    case TC_DTYPE_F64:
      *static_cast<double*>(p) = v;
      break;
    case TC_DTYPE_I64:
      *static_cast<int64_t*>(p) = static_cast<int64_t>(v);
      break;
    case TC_DTYPE_I32:
      *static_cast<int32_t*>(p) = static_cast<int32_t>(v);
      break;
    case TC_DTYPE_I16:
      *static_cast<int16_t*>(p) = static_cast<int16_t>(v);
      break;
    case TC_DTYPE_I8:
      *static_cast<int8_t*>(p) = static_cast<int8_t>(v);
      break;
    default:
      *static_cast<uint8_t*>(p) = static_cast<uint8_t>(v);
      break;
  }
}

double rounded(double value, int32_t dtype) {
  alignas(8) unsigned char cell[8];
  set(cell, dtype, value);
  return get(cell, dtype);
}

bool is_float(int32_t d) { return d == TC_DTYPE_F32 || d == TC_DTYPE_BF16 || d == TC_DTYPE_F16 || d == TC_DTYPE_F64; }

double ulp(int32_t dtype, double magnitude) {
  const int digits = dtype == TC_DTYPE_F64 ? 53 : dtype == TC_DTYPE_F32 ? 24 : dtype == TC_DTYPE_F16 ? 11 : 8;
  const int lowest = dtype == TC_DTYPE_F64 ? -1074 : dtype == TC_DTYPE_F32 ? -149 : dtype == TC_DTYPE_F16 ? -24 : -133;
  if (!(magnitude > 0)) return std::ldexp(1.0, lowest);
  return std::ldexp(1.0, std::max(std::ilogb(magnitude) - digits + 1, lowest));
}

void for_each_element(const tc_tensor& t, FunctionRef<void(void*, int64_t)> visit) {
  if (element_count(t) == 0) return;
  const auto size = static_cast<int64_t>(tc_dtype_size(t.dtype));
  const int leading = t.rank ? t.rank - 1 : 0;
  const int64_t cols = t.rank ? t.shape[t.rank - 1] : 1, step = t.rank && cols > 1 ? t.stride[t.rank - 1] : 0;
  int64_t index[TC_MAX_RANK] = {}, n = 0;
  while (true) {
    auto* row = static_cast<std::byte*>(t.data);
    for (int i = 0; i < leading; ++i) row += index[i] * (t.shape[i] > 1 ? t.stride[i] : 0) * size;
    for (int64_t c = 0; c < cols; ++c) visit(row + c * step * size, n++);
    int i = leading - 1;
    for (; i >= 0 && ++index[i] == t.shape[i]; --i) index[i] = 0;
    if (i < 0) return;
  }
}

std::vector<double> read_all(const tc_tensor& t) {
  std::vector<double> values(static_cast<size_t>(element_count(t)));
  for_each_element(t, [&](const void* p, int64_t i) { values[static_cast<size_t>(i)] = get(p, t.dtype); });
  return values;
}

void write_all(const tc_tensor& t, const std::vector<double>& values) {
  for_each_element(t, [&](void* p, int64_t i) { set(p, t.dtype, values[static_cast<size_t>(i)]); });
}

void copy_all(const tc_tensor& from, const tc_tensor& to) {
  if (from.dtype == to.dtype && values_of<char>(from).dense() && values_of<char>(to).dense())
    std::memcpy(to.data, from.data, static_cast<size_t>(element_count(from)) * tc_dtype_size(from.dtype));
  else
    write_all(to, read_all(from));
}

}  // namespace tc::testing
