// What every backend of linear cross entropy asks of a call's arguments.
#pragma once
#include "traincore/core/view.h"
#include "traincore/ops/linear_cross_entropy/linear_cross_entropy.h"

namespace tc::ops::linear_cross_entropy {

struct Extents {
  int64_t rows, width, classes;
};
template <class A>
Extents extents_of(const A& a) {
  return {element_count(a.target), a.weight.shape[1], a.weight.shape[0]};
}

template <class A>
bool wants_gradients(const A& a) {
  return given(a.dhidden) || given(a.dweight) || given(a.dbias);
}

// Elements of a scratch matrix; too many is a number that the arena refuses.
inline int64_t product(int64_t rows, int64_t cols) {
  int64_t p;
  return __builtin_mul_overflow(rows, cols, &p) ? INT64_MAX : p;
}

}  // namespace tc::ops::linear_cross_entropy
