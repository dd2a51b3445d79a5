// The second stage of every sum over rows: slabs of partial sums, added in order into a parameter gradient.
#pragma once
#include <initializer_list>

#include "traincore/core/types.h"

namespace tc::cuda {

// out[c] (+)= sum over s of slabs[s * cols + c]. A NULL slabs is skipped: that gradient was not asked for.
struct ColumnSum {
  const float* slabs;
  const tc_tensor* out;
};

// One launch, at most two sums.
void sum_columns(std::initializer_list<ColumnSum> sums, int64_t slabs, int64_t cols, bool accumulate,
                 const tc_exec& exec);

}  // namespace tc::cuda
