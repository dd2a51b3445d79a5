// The scatter-add on the GPU, turned around: rows are sorted by id, then each row of dweight sums the rows of dy that
// name it, in their order. Runs of one id are cut into chunks that are summed first, so that a frequent id keeps no warp
// busy alone.
#include <algorithm>

#include "traincore/core/arena.h"
#include "traincore/core/dispatch.h"
#include "traincore/cuda/overlap.cuh"
#include "traincore/cuda/row_launch.h"
#include "traincore/cuda/vec.cuh"
#include "traincore/ops/embedding/cuda_sort.h"
#include "traincore/ops/embedding/embedding.h"

namespace tc::ops::embedding {
namespace {

using namespace tc::cuda;  // NOLINT(google-build-using-namespace): the vocabulary of GPU kernels

constexpr int kWarp = 32, kWarps = 8, kThreads = kWarp * kWarps;  // kWarps: of a block
constexpr int kChunk = 64;                                        // sorted rows
constexpr int kWideVec = 4;    // columns of a vector: 16 bytes of f32, so that a warp writes whole sectors of dweight
constexpr int kVectors = 4;    // of a thread, a warp apart
constexpr int kBlocks = 3;     // of an SM at least
constexpr int kRowsAhead = 2;  // on their way to a thread at once
constexpr int kIds = 4;        // of a warp: what is looked up about them comes at once
constexpr uint32_t kAll = 0xffffffffu;

template <class T>
struct SumArgs {
  Rows<const T> dy;
  Rows<std::byte> dweight;
  const Key* sorted;
  int64_t* starts;  // [vocab + 1]: the first sorted row of an id
  float* chunks;    // [rows / kChunk, dim]: sums of the chunks that are of one id
  int64_t vocab;
  int64_t pieces;         // of a row, a warp's kVectors vectors a thread each
  int64_t starts_blocks;  // of runs_kernel
  int32_t dtype;
  bool accumulate;
};

// A thread's part of a piece: vectors of kVec columns from c on, kStride apart.
template <int kVec>
struct Piece {
  static constexpr int kStride = kWarp * kVec, kColumns = kVectors * kStride;
  int c, cols;
  Floats<kVec> sum[kVectors];
  __device__ __forceinline__ Piece(int piece, int cols_)
      : c(piece * kColumns + int(threadIdx.x % kWarp) * kVec), cols(cols_), sum{} {}

  // f(v, column) for the vectors that the row has.
  template <class F>
  __device__ __forceinline__ void each(F&& f) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v)
      if (c < cols - v * kStride) f(v, c + v * kStride);
  }
  // Adds the rows row(0), row(1), .. row(count - 1), in this order.
  template <class E, class F>
  __device__ __forceinline__ void add(int count, F&& row) {
#pragma unroll 1
    for (int first = 0; first < count; first += kRowsAhead) {
      Pack<E, kVec> x[kRowsAhead][kVectors] = {};
#pragma unroll
      for (int r = 0; r < kRowsAhead; ++r) {
        if (first + r >= count) continue;
        const E* const from = row(first + r);
        each([&](int v, int column) { x[r][v] = Pack<E, kVec>::load_once(from + column); });
      }
#pragma unroll
      for (int r = 0; r < kRowsAhead; ++r)
        if (first + r < count) each([&](int v, int) { add_to(sum[v], x[r][v].f32()); });
    }
  }
};

// Rows of dy in their sorted order: those of places at, at + 1, .. are known, one a lane.
template <class T>
class Window {
 public:
  __device__ __forceinline__ Window(const SumArgs<T>& a, int64_t at) { move_to(a, at); }
  // Adds those of places [begin, end).
  template <int kVec>
  __device__ __forceinline__ void add(const SumArgs<T>& a, int64_t begin, int64_t end, Piece<kVec>& piece) {
#pragma unroll 1
    while (begin < end) {
      if (begin >= at_ + kWarp) move_to(a, begin);
      const int first = int(begin - at_), count = int(min(end, at_ + kWarp) - begin);
      piece.template add<T>(count, [&](int i) {
        return reinterpret_cast<const T*>(__shfl_sync(kAll, reinterpret_cast<uint64_t>(row_), first + i));
      });
      begin += count;
    }
  }

 private:
  __device__ __forceinline__ void move_to(const SumArgs<T>& a, int64_t at) {
    const int64_t place = at + threadIdx.x % kWarp;
    at_ = at;
    row_ = place < a.dy.count ? a.dy[a.sorted[place].row] : nullptr;
  }
  int64_t at_;
  const T* row_;
};

// How many sorted rows have a lesser id.
template <class T>
__device__ __forceinline__ int64_t count_less(const SumArgs<T>& a, int64_t id) {
  int64_t low = 0, count = a.dy.count;
  while (count > 0) {
    const int64_t half = count / 2;
    const bool is_less = a.sorted[low + half].id < id;
    low += is_less ? half + 1 : 0;
    count = is_less ? count - half - 1 : half;
  }
  return low;
}

template <class T>
__device__ __forceinline__ bool is_one_id(const SumArgs<T>& a, int64_t chunk) {
  const int64_t id = a.sorted[chunk * kChunk].id;
  return id < a.vocab && a.sorted[chunk * kChunk + kChunk - 1].id == id;
}

// What is needed of the runs of one id: where they start, and the sums of their chunks.
template <class T, int kVec>
__global__ void __launch_bounds__(kThreads) runs_kernel(const __grid_constant__ SumArgs<T> a) {
  let_next_begin();
  wait_for_stream();
  if (blockIdx.x < a.starts_blocks) {
    for (int64_t id = int64_t(blockIdx.x) * kThreads + threadIdx.x; id <= a.vocab; id += a.starts_blocks * kThreads)
      a.starts[id] = count_less(a, id);
    return;
  }
  const int64_t block = blockIdx.x - a.starts_blocks, blocks = gridDim.x - a.starts_blocks;
  const int64_t count = a.dy.count / kChunk * a.pieces;
  for (int64_t item = block * kWarps + threadIdx.x / kWarp; item < count; item += blocks * kWarps) {
    const int64_t chunk = item / a.pieces;
    if (!is_one_id(a, chunk)) continue;
    Piece<kVec> piece(int(item % a.pieces), int(a.dy.cols));
    Window<T>(a, chunk * kChunk).add(a, chunk * kChunk, (chunk + 1) * kChunk, piece);
    piece.each(
        [&](int v, int column) { Pack<float, kVec>::from(piece.sum[v]).store(a.chunks + chunk * a.dy.cols + column); });
  }
}

template <int kVec>
__device__ __forceinline__ void store(std::byte* row, int32_t dtype, int64_t column, const Floats<kVec>& x) {
  if (dtype == TC_DTYPE_F32)
    Pack<float, kVec>::from(x).store_once(reinterpret_cast<float*>(row) + column);
  else if (dtype == TC_DTYPE_BF16)
    Pack<bf16, kVec>::from(x).store_once(reinterpret_cast<bf16*>(row) + column);
  else
    Pack<f16, kVec>::from(x).store_once(reinterpret_cast<f16*>(row) + column);
}

// Adds the rows of places [begin, end): whole chunks by their sums, what is before and after them row by row.
template <class T, int kVec>
__device__ __forceinline__ void add_run(const SumArgs<T>& a, int64_t begin, int64_t end, Window<T>& window,
                                        Piece<kVec>& piece) {
  const int64_t first = (begin + kChunk - 1) / kChunk, last = end / kChunk;  // the whole chunks
  while (begin < end) {
    if (begin == first * kChunk && first < last) {
      piece.template add<float>(int(last - first), [&](int i) { return a.chunks + (first + i) * a.dy.cols; });
      begin = last * kChunk;
    } else {
      const int64_t stop = begin < first * kChunk && first < last ? first * kChunk : end;
      window.add(a, begin, stop, piece);
      begin = stop;
    }
  }
}

// Ids first_id .. first_id + kIds - 1.
template <class T, int kVec>
__device__ __forceinline__ void sum_ids(const SumArgs<T>& a, int64_t first_id, int number) {
  const int64_t start = a.starts[min(first_id + min(int(threadIdx.x) % kWarp, kIds), a.vocab)];
  Window<T> window(a, __shfl_sync(kAll, start, 0));
#pragma unroll 1
  for (int i = 0; i < kIds && first_id + i < a.vocab; ++i) {
    const int64_t begin = __shfl_sync(kAll, start, i), end = __shfl_sync(kAll, start, i + 1);
    if (a.accumulate && begin == end) continue;
    Piece<kVec> piece(number, int(a.dy.cols));
    add_run(a, begin, end, window, piece);
    std::byte* const row = a.dweight[first_id + i];
    piece.each([&](int v, int column) {
      if (a.accumulate)
        add_to(piece.sum[v], Pack<float, kVec>::load_once(reinterpret_cast<float*>(row) + column).f32());
      store(row, a.dtype, column, piece.sum[v]);
    });
  }
}

template <class T, int kVec>
__global__ void __launch_bounds__(kThreads, kBlocks) sum_kernel(const __grid_constant__ SumArgs<T> a) {
  let_next_begin();
  wait_for_stream();
  const int64_t count = (a.vocab + kIds - 1) / kIds * a.pieces;
  for (int64_t item = int64_t(blockIdx.x) * kWarps + threadIdx.x / kWarp; item < count;
       item += int64_t(gridDim.x) * kWarps) {
    const int64_t group = count <= UINT32_MAX ? int64_t(uint32_t(item) / uint32_t(a.pieces)) : item / a.pieces;
    sum_ids<T, kVec>(a, group * kIds, int(item - group * a.pieces));
  }
}

SortPlan plan_of(const tcx_embedding_backward_args& a) { return {element_count(a.ids), a.dweight.shape[0]}; }

struct Parts {
  SortScratch sort;
  int64_t* starts;
  float* chunks;
};
Parts carve(const tcx_embedding_backward_args& a, Arena& arena) {
  return {carve_sort(plan_of(a), arena), arena.take<int64_t>(a.dweight.shape[0] + 1),
          arena.take<float>(element_count(a.ids) / kChunk * a.dweight.shape[1])};
}

template <class T, int kVec>
void sum(const tcx_embedding_backward_args& a, const Parts& parts, const tc_exec& exec) {
  constexpr int64_t kColumns = Piece<kVec>::kColumns, kMostStartsBlocks = 1 << 20;
  const int64_t vocab = a.dweight.shape[0];
  SumArgs<T> args{.dy = rows_of<const T>(a.dy),
                  .dweight = rows_of<std::byte>(a.dweight),
                  .sorted = parts.sort.sorted,
                  .starts = parts.starts,
                  .chunks = parts.chunks,
                  .vocab = vocab,
                  .pieces = (a.dweight.shape[1] + kColumns - 1) / kColumns,
                  .starts_blocks = std::min(blocks_for(vocab + 1, kThreads), kMostStartsBlocks),
                  .dtype = a.dweight.dtype,
                  .accumulate = a.accumulate != 0};
  for (int i = 0; i < args.dweight.rank; ++i)
    args.dweight.stride[i] *= static_cast<int64_t>(tc_dtype_size(a.dweight.dtype));
  const int64_t chunks_blocks = std::min(blocks_for(args.dy.count / kChunk * args.pieces, kWarps), int64_t{1} << 30);
  const auto grid = [](int64_t blocks) { return Grid{.blocks = blocks, .threads = kThreads, .overlaps = true}; };
  launch<runs_kernel<T, kVec>>("embedding_runs", grid(args.starts_blocks + chunks_blocks), exec, args);
  launch<sum_kernel<T, kVec>>("embedding_backward", grid(blocks_for((vocab + kIds - 1) / kIds * args.pieces, kWarps)),
                              exec, args);
}

}  // namespace

size_t backward_cuda_workspace(const tcx_embedding_backward_args& a, const tc_exec&) {
  Arena counting;
  carve(a, counting);
  return counting.used();
}

void backward_cuda(const tcx_embedding_backward_args& a, const tc_exec& exec) {
  const DeviceGuard device(a.dy);
  require_cols("embedding_backward", "dweight", a.dweight.shape[1]);
  Arena arena(exec.workspace);
  const Parts parts = carve(a, arena);
  sort_rows(a.ids, a.dweight.shape[0], plan_of(a), parts.sort, exec);
  with_type(FloatTypes{}, a.dy.dtype, [&]<class T>() {
    if (fits_vectors(a.dy) && fits_vectors(a.dweight))
      sum<T, kWideVec>(a, parts, exec);
    else
      sum<T, 1>(a, parts, exec);
  });
}

}  // namespace tc::ops::embedding
