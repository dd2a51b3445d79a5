// The scatter-add on the GPU, turned around: rows are sorted by id, then each row of dweight that is named sums the rows of
// dy that name it, in their order. Runs of one id are cut into chunks that are summed first, so that a frequent id keeps no
// warp busy alone.
#include <algorithm>

#include "traincore/core/arena.h"
#include "traincore/core/dispatch.h"
#include "traincore/cuda/overlap.cuh"
#include "traincore/cuda/row_launch.h"
#include "traincore/cuda/vec.cuh"
#include "traincore/ops/embedding/cuda_sort.h"
#include "traincore/ops/embedding/cuda_unnamed.cuh"
#include "traincore/ops/embedding/embedding.h"

namespace tc::ops::embedding {
namespace {

using namespace tc::cuda;  // NOLINT(google-build-using-namespace): the vocabulary of GPU kernels

constexpr int kWarp = 32, kWarps = 4, kThreads = kWarp * kWarps;  // kWarps: of a block
constexpr int kChunk = 64;                                        // sorted rows
constexpr int kWideVec = 4;  // columns of a vector: 16 bytes of f32, so that a warp writes whole sectors of dweight
constexpr int kVectors = 4;  // of a thread, a warp apart
constexpr int kBlocks = 5;   // of an SM at least
// Rows of 16 bits that are on their way to a thread at once: where a run is short, where one is long, and where all are.
constexpr int kAhead = 2, kAheadOfLong = 4, kAheadOfChunk = 8;
constexpr int kPlaces = 8;  // of a warp, of those that the runs which it sums begin at
constexpr uint32_t kAll = 0xffffffffu;

template <class T>
struct SumArgs {
  Rows<const T> dy;
  Rows<std::byte> dweight;
  const Key* sorted;
  float* chunks;  // [rows / kChunk, dim]: sums of the chunks that are of one id
  int64_t vocab;
  int64_t pieces;  // of a row, a warp's kVectors vectors a thread each
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
  // Adds the rows row(0), row(1), .. row(count - 1), in this order; kAhead of 16 bits, or as many bytes, are on their way to
  // a thread at once.
  template <class E, int kAhead, class F>
  __device__ __forceinline__ void add(int count, F&& row) {
    constexpr int kRowsAhead = kAhead * 2 / int(sizeof(E));
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
  // To places at, at + 1, ..: the id of the lane's, -1 before the first, vocab after the last.
  __device__ __forceinline__ int64_t move_to(const SumArgs<T>& a, int64_t at) {
    const int64_t place = at + threadIdx.x % kWarp;
    const bool is_there = place >= 0 && place < a.dy.count;
    const Key key = is_there ? a.sorted[place] : Key{place < 0 ? -1 : a.vocab, 0};
    at_ = at;
    row_ = is_there ? a.dy[key.row] : nullptr;
    return key.id;
  }
  // Adds those of lanes [begin, end).
  template <int kAhead, int kVec>
  __device__ __forceinline__ void add_lanes(int begin, int end, Piece<kVec>& piece) const {
    piece.template add<T, kAhead>(end - begin, [&](int i) {
      return reinterpret_cast<const T*>(__shfl_sync(kAll, reinterpret_cast<uint64_t>(row_), begin + i));
    });
  }
  // Adds those of places [begin, end).
  template <int kAhead, int kVec>
  __device__ __forceinline__ void add(const SumArgs<T>& a, int64_t begin, int64_t end, Piece<kVec>& piece) {
#pragma unroll 1
    while (begin < end) {
      if (begin >= at_ + kWarp) move_to(a, begin);
      const int first = int(begin - at_), last = int(min(end - at_, int64_t{kWarp}));
      add_lanes<kAhead>(first, last, piece);
      begin += last - first;
    }
  }

 private:
  int64_t at_;
  const T* row_;
};

template <class T>
__device__ __forceinline__ bool is_one_id(const SumArgs<T>& a, int64_t chunk) {
  const int64_t id = a.sorted[chunk * kChunk].id;
  return id < a.vocab && a.sorted[chunk * kChunk + kChunk - 1].id == id;
}

template <class T, int kVec>
__global__ void __launch_bounds__(kThreads) chunks_kernel(const __grid_constant__ SumArgs<T> a) {
  let_next_begin();
  wait_for_stream();
  const int64_t count = a.dy.count / kChunk * a.pieces;
  for (int64_t item = int64_t(blockIdx.x) * kWarps + threadIdx.x / kWarp; item < count;
       item += int64_t(gridDim.x) * kWarps) {
    const int64_t chunk = item / a.pieces;
    if (!is_one_id(a, chunk)) continue;
    Piece<kVec> piece(int(item % a.pieces), int(a.dy.cols));
    Window<T> window;
    window.move_to(a, chunk * kChunk);
    window.template add<kAheadOfChunk>(a, chunk * kChunk, (chunk + 1) * kChunk, piece);
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
      piece.template add<float, kAheadOfLong>(int(last - first),
                                              [&](int i) { return a.chunks + (first + i) * a.dy.cols; });
      begin = last * kChunk;
    } else {
      const int64_t stop = begin < first * kChunk && first < last ? first * kChunk : end;
      window.template add<kAheadOfLong>(a, begin, stop, piece);
      begin = stop;
    }
  }
}

// The first place from `at` on whose row has a greater id.
template <class T>
__device__ __forceinline__ int64_t end_of_run(const SumArgs<T>& a, int64_t id, int64_t at) {
  for (int64_t count = a.dy.count - at; count > 0;) {
    const int64_t half = count / 2;
    const bool is_inside = a.sorted[at + half].id <= id;
    at += is_inside ? half + 1 : 0;
    count = is_inside ? count - half - 1 : half;
  }
  return at;
}

template <class T, int kVec>
__device__ __forceinline__ void store_sum(const SumArgs<T>& a, int64_t id, Piece<kVec>& piece) {
  std::byte* const row = a.dweight[id];
  piece.each([&](int v, int column) {
    if (a.accumulate) add_to(piece.sum[v], Pack<float, kVec>::load_once(reinterpret_cast<float*>(row) + column).f32());
    store(row, a.dtype, column, piece.sum[v]);
  });
}

// The runs that begin at places first .. first + kPlaces - 1. A warp looks at the place before them and at as many after
// as it has lanes for; only the last run can go on beyond.
template <class T, int kVec>
__device__ __forceinline__ void sum_runs(const SumArgs<T>& a, int64_t first, int number) {
  const int lane = int(threadIdx.x) % kWarp;
  Window<T> window;
  const int64_t id = window.move_to(a, first - 1), before = __shfl_up_sync(kAll, id, 1);
  const uint32_t begins = __ballot_sync(kAll, lane > 0 && id != before);
  uint32_t rest = __ballot_sync(kAll, lane > 0 && lane <= kPlaces && id != before && id < a.vocab);
#pragma unroll 1
  for (; rest != 0; rest &= rest - 1) {
    const int from = __ffs(int(rest)) - 1;
    const uint32_t later = begins & (~1u << from);
    const int64_t of_run = __shfl_sync(kAll, id, from);
    Piece<kVec> piece(number, int(a.dy.cols));
    if (later)
      window.template add_lanes<kAhead>(from, __ffs(int(later)) - 1, piece);
    else
      add_run(a, first - 1 + from, end_of_run(a, of_run, first - 1 + kWarp), window, piece);
    store_sum(a, of_run, piece);
  }
}

template <class T, int kVec>
__global__ void __launch_bounds__(kThreads, kBlocks) sum_kernel(const __grid_constant__ SumArgs<T> a) {
  let_next_begin();
  wait_for_stream();
  const int64_t count = (a.dy.count + kPlaces - 1) / kPlaces * a.pieces;
  for (int64_t item = int64_t(blockIdx.x) * kWarps + threadIdx.x / kWarp; item < count;
       item += int64_t(gridDim.x) * kWarps) {
    const int64_t group = count <= UINT32_MAX ? int64_t(uint32_t(item) / uint32_t(a.pieces)) : item / a.pieces;
    sum_runs<T, kVec>(a, group * kPlaces, int(item - group * a.pieces));
  }
}

SortPlan plan_of(const tcx_embedding_backward_args& a) { return {element_count(a.ids), a.dweight.shape[0]}; }

struct Parts {
  SortScratch sort;
  uint8_t* named;
  float* chunks;
};
Parts carve(const tcx_embedding_backward_args& a, Arena& arena) {
  return {carve_sort(plan_of(a), arena), arena.take<uint8_t>(Unnamed::marks(a.dweight.shape[0])),
          arena.take<float>(element_count(a.ids) / kChunk * a.dweight.shape[1])};
}

// dweight by bytes.
Rows<std::byte> bytes_of(const tc_tensor& dweight) {
  auto rows = rows_of<std::byte>(dweight);
  const auto size = static_cast<int64_t>(tc_dtype_size(dweight.dtype));
  for (int i = 0; i < rows.rank; ++i) rows.stride[i] *= size;
  rows.cols *= size;
  return rows;
}

Unnamed unnamed_of(const tcx_embedding_backward_args& a, const Parts& parts) {
  constexpr int64_t kPiece = Unnamed::kWarp * Unnamed::kVectors;
  const auto rows = bytes_of(a.dweight);
  const int32_t unit = fits_vectors(a.dweight) ? 16 : static_cast<int32_t>(tc_dtype_size(a.dweight.dtype));
  const int64_t units = rows.cols / unit;
  return {.dweight = rows,
          .named = a.accumulate ? nullptr : parts.named,
          .vocab = a.dweight.shape[0],
          .units = units,
          .pieces = (units + kPiece - 1) / kPiece,
          .unit = unit};
}

template <class T, int kVec>
void sum(const tcx_embedding_backward_args& a, const Parts& parts, const tc_exec& exec) {
  constexpr int64_t kColumns = Piece<kVec>::kColumns;
  const SumArgs<T> args{.dy = rows_of<const T>(a.dy),
                        .dweight = bytes_of(a.dweight),
                        .sorted = parts.sort.sorted,
                        .chunks = parts.chunks,
                        .vocab = a.dweight.shape[0],
                        .pieces = (a.dweight.shape[1] + kColumns - 1) / kColumns,
                        .dtype = a.dweight.dtype,
                        .accumulate = a.accumulate != 0};
  const auto grid = [&](int64_t items) {
    return Grid{.blocks = blocks_for(items * args.pieces, kWarps), .threads = kThreads, .overlaps = true};
  };
  launch<chunks_kernel<T, kVec>>("embedding_chunks", grid(args.dy.count / kChunk), exec, args);
  launch<sum_kernel<T, kVec>>("embedding_backward", grid((args.dy.count + kPlaces - 1) / kPlaces), exec, args);
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
  sort_rows(a.ids, a.dweight.shape[0], plan_of(a), parts.sort, unnamed_of(a, parts), exec);
  with_type(FloatTypes{}, a.dy.dtype, [&]<class T>() {
    if (fits_vectors(a.dy) && fits_vectors(a.dweight))
      sum<T, kWideVec>(a, parts, exec);
    else
      sum<T, 1>(a, parts, exec);
  });
}

}  // namespace tc::ops::embedding
