#include "traincore/cpu/vector.h"

#include <algorithm>
#include <cstring>

#include "traincore/core/dispatch.h"
#include "traincore/core/view.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "traincore/cpu/vector.cpp"
#include "hwy/foreach_target.h"
//
#include "traincore/cpu/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tc::HWY_NAMESPACE {
namespace {

template <class From, class To>
void convert(const From* from, int64_t n, To* to) {
  map_row(0, n, to, false, [&](auto at) HWY_ATTR { return at.load(from); });
}

void widen_bf16(const bf16* from, int64_t n, float* to) { convert(from, n, to); }
void widen_f16(const f16* from, int64_t n, float* to) { convert(from, n, to); }
void narrow_bf16(const float* from, int64_t n, bf16* to) { convert(from, n, to); }
void narrow_f16(const float* from, int64_t n, f16* to) { convert(from, n, to); }
void stream_bytes(const uint8_t* from, size_t bytes, uint8_t* to) {
  const hn::ScalableTag<uint8_t> d;
  const size_t step = hn::Lanes(d);
  size_t i = std::min(bytes, -reinterpret_cast<uintptr_t>(to) % step);
  std::memcpy(to, from, i);
  for (; i + step <= bytes; i += step) hn::Stream(hn::LoadU(d, from + i), d, to + i);
  std::memcpy(to + i, from + i, bytes - i);
}
void add_f32(const float* from, int64_t n, float* to) {
  for_row(n, [&](auto at) HWY_ATTR { at.store(to, hn::Add(at.load(to), at.load(from))); });
}

}  // namespace
}  // namespace tc::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tc {
HWY_EXPORT(widen_bf16);
HWY_EXPORT(widen_f16);
HWY_EXPORT(narrow_bf16);
HWY_EXPORT(narrow_f16);
HWY_EXPORT(stream_bytes);
HWY_EXPORT(add_f32);

void stream(const void* from, size_t bytes, void* to) {
  HWY_DYNAMIC_DISPATCH(stream_bytes)(static_cast<const uint8_t*>(from), bytes, static_cast<uint8_t*>(to));
}

void widen(int32_t dtype, const void* from, int64_t n, float* to) {
  switch (dtype) {
    case TC_DTYPE_BF16:
      return HWY_DYNAMIC_DISPATCH(widen_bf16)(static_cast<const bf16*>(from), n, to);
    case TC_DTYPE_F16:
      return HWY_DYNAMIC_DISPATCH(widen_f16)(static_cast<const f16*>(from), n, to);
    case TC_DTYPE_F32:
      std::copy_n(static_cast<const float*>(from), n, to);
      return;
    default:
      unsupported_dtype(dtype, {TC_DTYPE_F32, TC_DTYPE_BF16, TC_DTYPE_F16});
  }
}

void narrow(int32_t dtype, const float* from, int64_t n, void* to) {
  switch (dtype) {
    case TC_DTYPE_BF16:
      return HWY_DYNAMIC_DISPATCH(narrow_bf16)(from, n, static_cast<bf16*>(to));
    case TC_DTYPE_F16:
      return HWY_DYNAMIC_DISPATCH(narrow_f16)(from, n, static_cast<f16*>(to));
    case TC_DTYPE_F32:
      std::copy_n(from, n, static_cast<float*>(to));
      return;
    default:
      unsupported_dtype(dtype, {TC_DTYPE_F32, TC_DTYPE_BF16, TC_DTYPE_F16});
  }
}

const float* as_f32(const tc_tensor& vector, float* scratch) {
  if (vector.dtype == TC_DTYPE_F32 || vector.data == nullptr) return static_cast<const float*>(vector.data);
  widen(vector.dtype, vector.data, element_count(vector), scratch);
  return scratch;
}

const float* as_f32(const tc_tensor& vector, double offset, float absent, int64_t n, float* scratch) {
  if (vector.data == nullptr) return std::fill_n(scratch, n, absent), scratch;
  if (offset == 0) return as_f32(vector, scratch);
  widen(vector.dtype, vector.data, n, scratch);
  for (int64_t i = 0; i < n; ++i) scratch[i] += static_cast<float>(offset);
  return scratch;
}

void store_as(const tc_tensor& vector, const float* values, bool accumulate) {
  const int64_t n = element_count(vector);
  if (accumulate) return HWY_DYNAMIC_DISPATCH(add_f32)(values, n, static_cast<float*>(vector.data));
  narrow(vector.dtype, values, n, vector.data);
}

void sum_vectors(float* vectors, int64_t count, int64_t n) {
  for (int64_t i = 1; i < count; ++i) HWY_DYNAMIC_DISPATCH(add_f32)(vectors + i * n, n, vectors);
}
}  // namespace tc
#endif
