// The rows of dy sorted by id: a stable radix sort in the caller's workspace. The first pass's digits are counted by a
// kernel of its own; every pass counts the next one's as it moves the keys. Counts are integers: their atomics have one
// result. The first pass marks the ids that are named, and beside the last one other blocks zero the rows of the rest.
#include "traincore/ops/embedding/cuda_sort.h"

#include <algorithm>
#include <utility>

#include "traincore/cuda/indices.cuh"
#include "traincore/cuda/launch.h"
#include "traincore/cuda/overlap.cuh"
#include "traincore/ops/embedding/cuda_unnamed.cuh"

namespace tc::ops::embedding {
namespace {

using namespace tc::cuda;  // NOLINT(google-build-using-namespace): the vocabulary of GPU kernels

constexpr int kWarp = 32, kThreads = SortPlan::kMostDigits, kWarps = kThreads / kWarp;
constexpr int kRounds = (1 << SortPlan::kLeastTileBits) / kThreads;  // keys of a thread at a time
constexpr uint32_t kAll = 0xffffffffu;

struct SortArgs {
  AnyIndices ids;
  int64_t vocab;
  SortPlan plan;
  const Key* from;  // NULL in the first pass: the ids in their order
  Key* to;
  uint32_t *counts, *next_counts;  // of this pass; of the next, NULL in the last
  int32_t pass;
  Unnamed unnamed;
  uint32_t* errors;

  __device__ __forceinline__ int digit(int64_t id, int of_pass) const {
    return int(id >> (of_pass * plan.digit_bits)) & ((1 << plan.digit_bits) - 1);
  }
  __device__ __forceinline__ bool is_known(int64_t id) const { return id >= 0 && id < vocab; }
  __device__ __forceinline__ Key key(int64_t at) const {
    if (from) return from[at];
    const int64_t id = ids[at];
    return {is_known(id) ? id : vocab, at};
  }
  __device__ __forceinline__ int64_t tile_begin() const { return int64_t(blockIdx.x) << plan.tile_bits; }
  __device__ __forceinline__ int64_t tile_end() const {
    return min(plan.rows, int64_t(blockIdx.x + 1) << plan.tile_bits);
  }
};

__global__ void __launch_bounds__(kThreads) count_kernel(const __grid_constant__ SortArgs a) {
  __shared__ uint32_t count[SortPlan::kMostDigits];
  const int64_t of_tile = int64_t(blockIdx.x) * SortPlan::kMostDigits + threadIdx.x;
  let_next_begin();
  count[threadIdx.x] = 0;
  wait_for_stream();
  for (int pass = 1; pass < a.plan.passes; ++pass) a.counts[pass * a.plan.tiles * SortPlan::kMostDigits + of_tile] = 0;
  a.unnamed.clear_marks(int64_t(blockIdx.x) * kThreads + threadIdx.x, int64_t(gridDim.x) * kThreads);
  __syncthreads();
#pragma unroll 2
  for (int64_t i = a.tile_begin() + threadIdx.x; i < a.tile_end(); i += kThreads) {
    const int64_t id = a.ids[i];
    const bool is_known = a.is_known(id);
    if (!is_known && a.errors) atomicOr(a.errors, uint32_t{TC_BAD_ID});
    atomicAdd(&count[a.digit(is_known ? id : a.vocab, 0)], 1u);
  }
  __syncthreads();
  a.counts[of_tile] = count[threadIdx.x];
}

// The sum over the threads of the block before this one.
__device__ __forceinline__ int64_t sum_before(int64_t x) {
  __shared__ int64_t of_warp[kWarps];
  const int lane = int(threadIdx.x) % kWarp, warp = int(threadIdx.x) / kWarp;
  int64_t sum = x;
#pragma unroll
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const int64_t other = __shfl_up_sync(kAll, sum, distance);
    if (lane >= distance) sum += other;
  }
  if (lane == kWarp - 1) of_warp[warp] = sum;
  __syncthreads();
  for (int w = 0; w < warp; ++w) sum += of_warp[w];
  return sum - x;
}

// Where the first key goes that this block has of digit threadIdx.x.
__device__ __forceinline__ int64_t first_place(const SortArgs& a) {
  constexpr int kTiles = 32;  // whose counts are on their way at once
  const bool has_digit = threadIdx.x < 1u << a.plan.digit_bits;
  int64_t before = 0, all = 0;
#pragma unroll 1
  for (int first = 0; has_digit && first < a.plan.tiles; first += kTiles) {
    uint32_t count[kTiles];
#pragma unroll
    for (int i = 0; i < kTiles; ++i)
      count[i] = first + i < a.plan.tiles ? a.counts[int64_t(first + i) * SortPlan::kMostDigits + threadIdx.x] : 0;
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      before += first + i < int(blockIdx.x) ? count[i] : 0;
      all += count[i];
    }
  }
  return sum_before(all) + before;
}

struct Keys {
  Key at[kRounds];
};
// Of a warp's run of kRounds * kWarp keys, which starts at `first`.
__device__ __forceinline__ Keys keys_from(const SortArgs& a, int64_t first) {
  Keys keys;
#pragma unroll
  for (int r = 0; r < kRounds; ++r) {
    const int64_t i = first + r * kWarp + threadIdx.x % kWarp;
    keys.at[r] = i < a.tile_end() ? a.key(i) : Key{-1, -1};
  }
  return keys;
}

// How many keys of the same digit the warp has before each of a thread's; then `counts` has how many it has in all.
__device__ __forceinline__ void rank_in_warp(const int (&digits)[kRounds], uint32_t* counts,
                                             uint32_t (&ranks)[kRounds]) {
  const int lane = int(threadIdx.x) % kWarp;
  for (int d = lane; d < SortPlan::kMostDigits; d += kWarp) counts[d] = 0;
  __syncwarp();
#pragma unroll
  for (int r = 0; r < kRounds; ++r) {
    const uint32_t peers = __match_any_sync(kAll, digits[r]), before = peers & ((1u << lane) - 1);
    if (digits[r] >= 0) ranks[r] = counts[digits[r]] + __popc(before);
    __syncwarp();
    if (digits[r] >= 0 && before == 0) counts[digits[r]] += __popc(peers);
    __syncwarp();
  }
}

// Done by the blocks that have no tile.
__device__ __forceinline__ void zero_unnamed(const SortArgs& a) {
  const int64_t block = blockIdx.x - a.plan.tiles, blocks = gridDim.x - a.plan.tiles;
  for (int64_t item = block * kWarps + threadIdx.x / kWarp; item < a.unnamed.items(); item += blocks * kWarps)
    a.unnamed.zero(item);
}

__global__ void __launch_bounds__(kThreads) scatter_kernel(const __grid_constant__ SortArgs a) {
  __shared__ int64_t places[SortPlan::kMostDigits];           // of the next key of a digit
  __shared__ uint32_t counts[kWarps][SortPlan::kMostDigits];  // of a warp's keys; then of those of the warps before it
  let_next_begin();
  wait_for_stream();
  if (blockIdx.x >= a.plan.tiles) return zero_unnamed(a);
  const int warp = int(threadIdx.x) / kWarp;
  int64_t first = a.tile_begin() + warp * kRounds * kWarp;
  Keys keys = keys_from(a, first);
  places[threadIdx.x] = first_place(a);
  uint32_t taken = 0;  // places of digit threadIdx.x
  for (; first - warp * kRounds * kWarp < a.tile_end(); first += kRounds * kThreads) {
    int digits[kRounds];
    uint32_t ranks[kRounds];
    if (a.pass == 0)
      for (const Key& key : keys.at) a.unnamed.mark(key.id);
#pragma unroll
    for (int r = 0; r < kRounds; ++r) digits[r] = keys.at[r].row < 0 ? -1 : a.digit(keys.at[r].id, a.pass);
    rank_in_warp(digits, counts[warp], ranks);
    __syncthreads();
    places[threadIdx.x] += std::exchange(taken, 0u);
#pragma unroll
    for (int w = 0; w < kWarps; ++w) taken += std::exchange(counts[w][threadIdx.x], taken);
    __syncthreads();
#pragma unroll
    for (int r = 0; r < kRounds; ++r) {
      if (digits[r] < 0) continue;
      const int64_t place = places[digits[r]] + counts[warp][digits[r]] + ranks[r];
      a.to[place] = keys.at[r];
      if (a.next_counts)
        atomicAdd(
            &a.next_counts[(place >> a.plan.tile_bits) * SortPlan::kMostDigits + a.digit(keys.at[r].id, a.pass + 1)],
            1u);
    }
    keys = keys_from(a, first + kRounds * kThreads);
    __syncwarp();
  }
}

}  // namespace

void sort_rows(const tc_tensor& ids, int64_t vocab, const SortPlan& plan, const SortScratch& scratch,
               const Unnamed& unnamed, const tc_exec& exec) {
  Grid grid{.blocks = plan.tiles, .threads = kThreads, .overlaps = true};
  const int64_t counts_of_pass = plan.tiles * SortPlan::kMostDigits;
  SortArgs args{AnyIndices(ids), vocab,          plan, nullptr, nullptr,
                scratch.counts,  scratch.counts, 0,    unnamed, exec.device_errors};
  launch<count_kernel>("embedding_count", grid, exec, args);
  for (; args.pass < plan.passes; ++args.pass) {
    const bool is_last = args.pass == plan.passes - 1;
    args.to = (plan.passes - args.pass) % 2 ? scratch.sorted : scratch.other;
    args.next_counts = is_last ? nullptr : args.counts + counts_of_pass;
    if (is_last) grid.blocks += std::min(blocks_for(unnamed.items(), kWarps), int64_t{1} << 30);
    launch<scatter_kernel>("embedding_sort", grid, exec, args);
    args.from = args.to;
    args.counts = args.next_counts;
  }
}

}  // namespace tc::ops::embedding
