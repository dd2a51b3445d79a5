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

// The same runs: each is put after those before it.
__global__ void __launch_bounds__(kTargetThreads) valid_kernel(const LossOptions o, int64_t* list, int64_t* count) {
  __shared__ int warps[kTargetThreads / 32];
  const int64_t rows = o.target.count();
  const int64_t begin = rows * blockIdx.x / kTargetParts, end = rows * (blockIdx.x + 1) / kTargetParts;
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  int64_t at = 0;
  for (int part = 0; part < int(blockIdx.x); ++part) at += o.totals[part].count;
  for (int64_t first = begin; first < end; first += kTargetThreads) {
    const int64_t r = first + threadIdx.x;
    const bool is_valid = r < end && o.target[r] != o.ignore_index;
    const uint32_t votes = __ballot_sync(0xffffffffu, is_valid);
    if (lane == 0) warps[warp] = __popc(votes);
    __syncthreads();
    int before = __popc(votes & ((1u << lane) - 1)), all = 0;
#pragma unroll
    for (int w = 0; w < kTargetThreads / 32; ++w) {
      if (w < warp) before += warps[w];
      all += warps[w];
    }
    if (is_valid) list[at + before] = r;
    at += all;
    __syncthreads();  // everyone has read the warps' counts
  }
  if (blockIdx.x == kTargetParts - 1 && threadIdx.x == 0) *count = at;
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

void list_valid(const LossOptions& options, int64_t* rows, int64_t* count, const tc_exec& exec) {
  launch<valid_kernel>("valid_rows", {kTargetParts, kTargetThreads}, exec, options, rows, count);
}

void reduce_rows(const LossOptions& options, LossSum loss, LossSum z_loss_part, int64_t* valid_count,
                 const tc_exec& exec) {
  if (!loss.out && !z_loss_part.out && !valid_count) return;
  launch<sum_kernel>("loss_sum", {1, kSumThreads}, exec, SumArgs{options, {loss, z_loss_part}, valid_count});
}

}  // namespace tc::cuda
