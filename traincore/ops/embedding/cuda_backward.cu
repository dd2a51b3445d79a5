// The scatter-add on the GPU, turned around: rows are sorted by id, then each row of dweight sums the rows of dy that name
// it, in their order. Runs of one id are cut into chunks that are summed first, so that a frequent id keeps no block busy
// alone.
#include "traincore/core/arena.h"
#include "traincore/core/dispatch.h"
#include "traincore/cuda/indices.cuh"
#include "traincore/cuda/row_launch.h"
#include "traincore/cuda/vec.cuh"
#include "traincore/ops/embedding/embedding.h"

namespace tc::ops::embedding {
namespace {

using namespace tc::cuda;  // NOLINT(google-build-using-namespace): the vocabulary of GPU kernels

constexpr int kSortThreads = 1024, kTile = 4096;  // rows that one block sorts
constexpr int kThreads = 256;
constexpr int kChunk = 64;  // sorted rows
constexpr int kIdsPerBlock = 4;

// A row under its id; a row whose id is not in the table comes after all others.
struct Key {
  int64_t id, row;
  __device__ __forceinline__ bool operator<(const Key& other) const {
    return id < other.id || (id == other.id && row < other.row);
  }
};

struct SortArgs {
  AnyIndices ids;
  int64_t vocab;
  Key* tiles;       // [rows], sorted by tiles
  Key* sorted;      // [rows]
  int64_t* starts;  // [vocab + 1]: the first sorted row of an id
  uint32_t* errors;
};

__global__ void __launch_bounds__(kSortThreads) sort_tiles_kernel(const SortArgs a) {
  extern __shared__ Key keys[];
  const int64_t first = int64_t(blockIdx.x) * kTile, rows = a.ids.count();
  const int count = int(min(int64_t(kTile), rows - first));
  int size = 2;  // the least power of two that holds them
  while (size < count) size *= 2;
  for (int i = threadIdx.x; i < size; i += kSortThreads) {
    keys[i] = {INT64_MAX, first + i};
    if (i >= count) continue;
    const int64_t id = a.ids[first + i];
    if (id >= 0 && id < a.vocab)
      keys[i].id = id;
    else if (a.errors)
      atomicOr(a.errors, uint32_t{TC_BAD_ID});
  }
  for (int run = 2; run <= size; run *= 2)
    for (int distance = run / 2; distance > 0; distance /= 2) {
      __syncthreads();
      for (int i = threadIdx.x; i < size / 2; i += kSortThreads) {
        const int low = i / distance * distance * 2 + i % distance, high = low + distance;
        const Key a_key = keys[low], b_key = keys[high];
        if ((b_key < a_key) == ((low & run) == 0)) keys[low] = b_key, keys[high] = a_key;
      }
    }
  __syncthreads();
  for (int i = threadIdx.x; i < count; i += kSortThreads) a.tiles[first + i] = keys[i];
}

// How many of `count` sorted keys are less than key.
__device__ __forceinline__ int64_t count_less(const Key* keys, int64_t count, const Key& key) {
  int64_t low = 0;
  while (count > 0) {
    const int64_t half = count / 2;
    const bool is_less = keys[low + half] < key;
    low += is_less ? half + 1 : 0;
    count = is_less ? count - half - 1 : half;
  }
  return low;
}

// A key's place is how many keys are less, over all tiles.
__global__ void __launch_bounds__(kThreads) merge_kernel(const SortArgs a) {
  const int64_t rows = a.ids.count();
  for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < rows; i += int64_t(gridDim.x) * kThreads) {
    const Key key = a.tiles[i];
    int64_t place = i % kTile;
    for (int64_t first = 0; first < rows; first += kTile)
      if (first != i - i % kTile) place += count_less(a.tiles + first, min(int64_t(kTile), rows - first), key);
    a.sorted[place] = key;
  }
}

__global__ void __launch_bounds__(kThreads) starts_kernel(const SortArgs a) {
  for (int64_t v = int64_t(blockIdx.x) * kThreads + threadIdx.x; v <= a.vocab; v += int64_t(gridDim.x) * kThreads)
    a.starts[v] = count_less(a.sorted, a.ids.count(), {v, -1});
}

template <class T>
struct SumArgs {
  Rows<const T> dy;
  Rows<std::byte> dweight;
  const Key* sorted;
  const int64_t* starts;
  float* chunks;  // [rows / kChunk, dim]: sums of the chunks that are of one id
  int64_t vocab, tiles;
  int32_t dtype;
  bool accumulate;
};

template <class T>
__device__ __forceinline__ bool is_one_id(const SumArgs<T>& a, int64_t chunk) {
  const int64_t id = a.sorted[chunk * kChunk].id;
  return id < a.vocab && a.sorted[chunk * kChunk + kChunk - 1].id == id;
}

template <class T, int kVec>
__global__ void __launch_bounds__(kThreads) chunks_kernel(const SumArgs<T> a) {
  const int64_t count = a.dy.count / kChunk * a.tiles;
  for (int64_t item = blockIdx.x; item < count; item += gridDim.x) {
    const int64_t chunk = item / a.tiles, c = (item % a.tiles * kThreads + threadIdx.x) * kVec;
    if (c >= a.dy.cols || !is_one_id(a, chunk)) continue;
    auto total = floats<kVec>([](int) { return 0.0f; });
#pragma unroll 8
    for (int i = 0; i < kChunk; ++i)
      add_to(total, Pack<T, kVec>::load(a.dy[a.sorted[chunk * kChunk + i].row] + c).f32());
#pragma unroll
    for (int j = 0; j < kVec; ++j) a.chunks[chunk * a.dy.cols + c + j] = total[j];
  }
}

// The sum over sorted rows [begin, end) of columns c .. c + kVec - 1.
template <class T, int kVec>
__device__ __forceinline__ Floats<kVec> sum_of_run(const SumArgs<T>& a, int64_t begin, int64_t end, int64_t c) {
  auto total = floats<kVec>([](int) { return 0.0f; });
  const auto add_rows = [&](int64_t from, int64_t to) {
#pragma unroll 4
    for (int64_t i = from; i < to; ++i) add_to(total, Pack<T, kVec>::load(a.dy[a.sorted[i].row] + c).f32());
  };
  const int64_t first = (begin + kChunk - 1) / kChunk, last = end / kChunk;  // the whole chunks
  if (first >= last) {
    add_rows(begin, end);
    return total;
  }
  add_rows(begin, first * kChunk);
#pragma unroll 4
  for (int64_t chunk = first; chunk < last; ++chunk) {
    const float* const sum = a.chunks + chunk * a.dy.cols + c;
    add_to(total, floats<kVec>([&](int j) { return sum[j]; }));
  }
  add_rows(last * kChunk, end);
  return total;
}

template <class T, int kVec>
__global__ void __launch_bounds__(kThreads) sum_kernel(const SumArgs<T> a) {
  for (int64_t first = int64_t(blockIdx.x) * kIdsPerBlock; first < a.vocab; first += int64_t(gridDim.x) * kIdsPerBlock)
    for (int64_t id = first; id < min(first + kIdsPerBlock, a.vocab); ++id) {
      const int64_t begin = a.starts[id], end = a.starts[id + 1];
      if (a.accumulate && begin == end) continue;
      std::byte* const row = a.dweight[id];
      for (int64_t c = int64_t(threadIdx.x) * kVec; c < a.dy.cols; c += kThreads * kVec) {
        auto total = sum_of_run<T, kVec>(a, begin, end, c);
        if (a.accumulate) add_to(total, AnyVector{row, TC_DTYPE_F32}.template load<kVec>(int(c)));
        store_as(row, a.dtype, int(c), total);
      }
    }
}

struct Parts {
  Key *tiles, *sorted;
  int64_t* starts;
  float* chunks;
};
Parts carve(const tcx_embedding_backward_args& a, Arena& arena) {
  const int64_t rows = element_count(a.ids);
  return {arena.take<Key>(rows), arena.take<Key>(rows), arena.take<int64_t>(a.dweight.shape[0] + 1),
          arena.take<float>(rows / kChunk * a.dweight.shape[1])};
}

void sort(const SortArgs& args, const tc_exec& exec) {
  const int64_t rows = args.ids.count();
  launch<sort_tiles_kernel>(
      "embedding_sort",
      {blocks_for(rows, kTile), kSortThreads, 1, static_cast<size_t>(rows < kTile ? rows + rows : kTile) * sizeof(Key)},
      exec, args);
  launch<merge_kernel>("embedding_merge", {blocks_for(rows, kThreads), kThreads}, exec, args);
  launch<starts_kernel>("embedding_starts", {blocks_for(args.vocab + 1, kThreads), kThreads}, exec, args);
}

template <class T, int kVec>
void sum(const tcx_embedding_backward_args& a, const Parts& parts, const tc_exec& exec) {
  SumArgs<T> args{rows_of<const T>(a.dy),
                  rows_of<std::byte>(a.dweight),
                  parts.sorted,
                  parts.starts,
                  parts.chunks,
                  a.dweight.shape[0],
                  0,
                  a.dweight.dtype,
                  a.accumulate != 0};
  for (int i = 0; i < args.dweight.rank; ++i)
    args.dweight.stride[i] *= static_cast<int64_t>(tc_dtype_size(a.dweight.dtype));
  args.tiles = (args.dy.cols + kThreads * kVec - 1) / (kThreads * kVec);
  launch<chunks_kernel<T, kVec>>("embedding_chunks", {blocks_for(args.dy.count / kChunk * args.tiles, 1), kThreads},
                                 exec, args);
  launch<sum_kernel<T, kVec>>("embedding_backward", {blocks_for(args.vocab, kIdsPerBlock), kThreads}, exec, args);
}

}  // namespace

size_t backward_cuda_workspace(const tcx_embedding_backward_args& a, const tc_exec&) {
  Arena counting;
  carve(a, counting);
  return counting.used();
}

void backward_cuda(const tcx_embedding_backward_args& a, const tc_exec& exec) {
  const DeviceGuard device(a.dy);
  if (a.dweight.shape[1] > INT32_MAX) too_wide(a.dweight.shape[1]);
  Arena arena(exec.workspace);
  const Parts parts = carve(a, arena);
  sort({AnyIndices(a.ids), a.dweight.shape[0], parts.tiles, parts.sorted, parts.starts, exec.device_errors}, exec);
  with_type(FloatTypes{}, a.dy.dtype, [&]<class T>() {
    if (fits_vectors(a.dy) && fits_vectors(a.dweight))
      sum<T, kWide<T>>(a, parts, exec);
    else
      sum<T, 1>(a, parts, exec);
  });
}

}  // namespace tc::ops::embedding
