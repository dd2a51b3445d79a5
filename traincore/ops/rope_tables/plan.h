// The scratch of rope_tables, and what its numbers come to.
#pragma once
#include "traincore/core/arena.h"
#include "traincore/core/view.h"
#include "traincore/ops/rope_tables/rope_tables.h"

namespace tc::ops::rope_tables {

using Args = tcx_rope_tables_args;

// Pairs of a row: the width of whichever output is given.
inline int64_t half_of(const Args& a) {
  const tc_tensor& any = given(a.cos) ? a.cos : given(a.sin) ? a.sin : a.inv_freq;
  return any.shape[any.rank - 1];
}

void scaled_frequencies(const Args& a, int64_t half, double* inv_freq);  // [half]
double amplitude_of(const Args& a);

struct TablesScratch {
  double* inv_freq;  // [half]
};
inline TablesScratch carve(const Args& a, Arena& arena) { return {arena.take<double>(half_of(a))}; }

}  // namespace tc::ops::rope_tables
