// The second stage of every sum over rows: slabs of partial sums, added in order into a parameter gradient.
#pragma once
#include <cstdint>
#include <initializer_list>

#include "traincore/core/types.h"

namespace tc::cuda {

// Slabs that a thread waits for together: sixty-four threads wait once for the 528 of four blocks on every SM.
inline constexpr int kSlabsAtOnce = 9;
// The threads that share a column: the first kernel that takes so many slabs serves them. One thread and two wait once;
// sixteen leave blocks wide for the 66 slabs of clusters of two; sixty-four are for those of a block or more on every SM.
struct ColumnSumKernel {
  int64_t most_slabs;
  int32_t parts;
};
inline constexpr ColumnSumKernel kColumnSumKernels[] = {
    {kSlabsAtOnce, 1}, {2 * kSlabsAtOnce, 2}, {72, 16}, {INT64_MAX, 64}};

// out[c] (+)= sum over s of slabs[s * cols + c]. A NULL slabs is skipped: that gradient was not asked for.
struct ColumnSum {
  const float* slabs;
  const tc_tensor* out;
};

// One launch, at most two sums.
void sum_columns(std::initializer_list<ColumnSum> sums, int64_t slabs, int64_t cols, bool accumulate,
                 const tc_exec& exec);

}  // namespace tc::cuda
