// From a call's tensors to the RowShape that a plan is made of: pure.
#pragma once
#include <initializer_list>

#include "traincore/core/view.h"
#include "traincore/cuda/row_plan.h"

namespace tc::cuda {

// 16-byte accesses fit every row of t. An absent tensor fits.
inline bool fits_vectors(const tc_tensor& t) {
  const auto size = static_cast<int64_t>(tc_dtype_size(t.dtype));
  if (!given(t)) return true;
  bool fits = reinterpret_cast<uintptr_t>(t.data) % 16 == 0 && t.shape[t.rank - 1] * size % 16 == 0;
  for (int i = 0; i + 1 < t.rank; ++i) fits &= t.shape[i] <= 1 || t.stride[i] * size % 16 == 0;
  return fits;
}

// Every row of `a` starts as many bytes past a multiple of 16 as that of `b`, which has the same shape and dtype.
inline bool share_phase(const tc_tensor& a, const tc_tensor& b) {
  const auto size = static_cast<int64_t>(tc_dtype_size(a.dtype));
  bool same = reinterpret_cast<uintptr_t>(a.data) % 16 == reinterpret_cast<uintptr_t>(b.data) % 16;
  for (int i = 0; i + 1 < a.rank; ++i) same &= a.shape[i] <= 1 || (a.stride[i] - b.stride[i]) * size % 16 == 0;
  return same;
}

// `rows` are the full-size tensors, the first of which is there and named for refusals; `vectors` the [cols] ones of any
// dtype, whose wide loads need 16 bytes of alignment and no more.
inline RowShape row_shape(const char* op, const char* first, std::initializer_list<const tc_tensor*> rows,
                          std::initializer_list<const tc_tensor*> vectors) {
  const tc_tensor& x = **rows.begin();
  RowShape s;
  s.cols = x.shape[x.rank - 1];
  s.rows = s.cols ? element_count(x) / s.cols : 0;
  s.element_bytes = static_cast<int32_t>(tc_dtype_size(x.dtype));
  require_cols(op, first, s.cols);
  for (const tc_tensor* t : rows) {
    s.aligned &= fits_vectors(*t);
    s.mixed |= given(*t) && t->dtype != x.dtype;
  }
  if (s.mixed) s.element_bytes = sizeof(float);
  for (const tc_tensor* t : vectors) s.aligned &= reinterpret_cast<uintptr_t>(t->data) % 16 == 0;
  return s;
}

}  // namespace tc::cuda
