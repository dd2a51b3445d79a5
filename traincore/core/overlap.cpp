// Proofs that two strided tensors share no element, or that one tensor touches no element twice.
#include <cstdlib>

#include "traincore/core/schema.h"
#include "traincore/core/view.h"

namespace tc {
namespace {

// The bytes a tensor spans, counting only the dimensions whose stride is not a multiple of `modulus` (0: all of them).
ByteRange span_of(const tc_tensor& t, int64_t modulus) {
  const auto size = static_cast<int64_t>(tc_dtype_size(t.dtype));
  int64_t low = reinterpret_cast<intptr_t>(t.data), high = low + size;
  for (int i = 0; i < t.rank; ++i) {
    const int64_t step = t.stride[i] * size;
    if (t.shape[i] <= 1 || (modulus && step % modulus == 0)) continue;
    (step < 0 ? low : high) += (t.shape[i] - 1) * step;
  }
  return {low, high};
}

// Modulo `modulus` every element of a tensor lies in one window; two windows that are apart prove disjointness. It is
// what separates the halves of a packed tensor, or the heads of one projection.
bool apart_modulo(const tc_tensor& a, const tc_tensor& b, int64_t modulus) {
  const ByteRange x = span_of(a, modulus), y = span_of(b, modulus);
  const int64_t width_x = x.end - x.begin, width_y = y.end - y.begin;
  const int64_t gap = ((y.begin - x.begin) % modulus + modulus) % modulus;  // from the start of x to the start of y
  return gap >= width_x && modulus - gap >= width_y;
}

}  // namespace

ByteRange byte_range(const tc_tensor& t) { return span_of(t, 0); }

bool same_memory(const tc_tensor& a, const tc_tensor& b) {
  if (a.data != b.data || a.rank != b.rank || a.dtype != b.dtype) return false;
  for (int i = 0; i < a.rank; ++i)
    if (a.shape[i] != b.shape[i] || (a.shape[i] > 1 && a.stride[i] != b.stride[i])) return false;
  return true;
}

bool may_overlap(const tc_tensor& a, const tc_tensor& b) {
  if (element_count(a) == 0 || element_count(b) == 0) return false;
  const ByteRange x = byte_range(a), y = byte_range(b);
  if (x.end <= y.begin || y.end <= x.begin) return false;
  for (const tc_tensor* t : {&a, &b})
    for (int i = 0; i < t->rank; ++i) {
      const int64_t modulus = std::abs(t->stride[i]) * static_cast<int64_t>(tc_dtype_size(t->dtype));
      if (t->shape[i] > 1 && modulus > 0 && apart_modulo(a, b, modulus)) return false;
    }
  return true;
}

bool may_overlap_itself(const tc_tensor& t) {
  struct Axis {
    int64_t extent, stride;
  };
  Axis axes[TC_MAX_RANK];  // by stride, smallest first
  int count = 0;
  for (int i = 0; i < t.rank; ++i) {
    if (t.shape[i] == 0) return false;
    if (t.shape[i] == 1) continue;
    const Axis axis{t.shape[i], std::abs(t.stride[i])};
    int at = count++;
    for (; at > 0 && axes[at - 1].stride > axis.stride; --at) axes[at] = axes[at - 1];
    axes[at] = axis;
  }
  int64_t span = 1;
  for (int i = 0; i < count; ++i) {
    if (axes[i].stride < span) return true;
    span += (axes[i].extent - 1) * axes[i].stride;
  }
  return false;
}

}  // namespace tc
