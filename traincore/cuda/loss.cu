#include "traincore/cuda/loss.cuh"

#include "traincore/cuda/launch.h"
#include "traincore/cuda/reduce.cuh"

namespace tc::cuda {
namespace {

constexpr int kTargetThreads = 256, kSumThreads = 1024;

// A run of rows a block, cut by their number alone.
__global__ void __launch_bounds__(kTargetThreads) targets_kernel(const LossOptions o, TargetTotals* parts) {
  const int64_t rows = o.target.count();
  const int64_t begin = rows * blockIdx.x / kTargetParts, end = rows * (blockIdx.x + 1) / kTargetParts;
  TargetTotals mine{0, 0};
  for (int64_t r = begin + threadIdx.x; r < end; r += kTargetThreads) {
    const int64_t target = o.target[r];
    if (target == o.ignore_index) continue;
    ++mine.count;
    if (o.is_class(target)) mine.weight += o.weight(target);
  }
  mine = {block_sum(mine.weight), block_sum(mine.count)};
  if (threadIdx.x == 0) parts[blockIdx.x] = mine;
}

struct SumArgs {
  LossOptions options;
  LossSum sums[2];
  int64_t* valid_count;
};
// One block.
__global__ void __launch_bounds__(kSumThreads) sum_kernel(const SumArgs a) {
  const double inverse = inverse_normalizer(a.options);
  const int64_t rows = a.options.target.count();
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (!a.sums[i].out) continue;
    double sum = 0;
#pragma unroll 4
    for (int64_t r = threadIdx.x; r < rows; r += kSumThreads) sum += a.sums[i].rows[r];
    sum = block_sum(sum);
    if (threadIdx.x == 0) *a.sums[i].out = float(sum * inverse);
  }
  if (!a.valid_count || threadIdx.x >= kTargetParts) return;
  const int64_t count = total_of(a.options.totals).count;
  if (threadIdx.x == 0) *a.valid_count = count;
}

}  // namespace

void total_targets(const LossOptions& options, TargetTotals* parts, const tc_exec& exec) {
  launch<targets_kernel>("targets", {kTargetParts, kTargetThreads}, exec, options, parts);
}

void reduce_rows(const LossOptions& options, LossSum loss, LossSum z_loss_part, int64_t* valid_count,
                 const tc_exec& exec) {
  if (!loss.out && !z_loss_part.out && !valid_count) return;
  launch<sum_kernel>("loss_sum", {1, kSumThreads}, exec, SumArgs{options, {loss, z_loss_part}, valid_count});
}

}  // namespace tc::cuda
