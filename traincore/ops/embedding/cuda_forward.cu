// The gather on the GPU: a warp copies a piece of a row, bit for bit. All rows have their first piece copied, then all
// their second, so that blocks beside each other read different rows of the table.
#include "traincore/cuda/indices.cuh"
#include "traincore/cuda/launch.h"
#include "traincore/cuda/row_launch.h"
#include "traincore/ops/embedding/embedding.h"

namespace tc::ops::embedding {
namespace {

using namespace tc::cuda;  // NOLINT(google-build-using-namespace): the vocabulary of GPU kernels

constexpr int kThreads = 256, kWarp = 32, kVectors = 4;  // of a block; of a warp; that a thread copies

// Rows of dim elements of 2 or 4 bytes.
template <class E>
struct ForwardArgs {
  AnyIndices ids;
  Rows<const E> weight;
  Rows<E> y;
  int64_t vocab, pieces;  // of a row, kWarp * kVectors vectors each
  uint32_t* errors;
};

// The row of an id outside the table is NaN.
template <class E, class V>
__device__ __forceinline__ void copy_piece(const ForwardArgs<E>& a, int64_t r, int64_t first) {
  constexpr int kVec = sizeof(V) / sizeof(E);
  const int64_t id = a.ids[r], count = a.y.cols / kVec;
  const bool is_known = id >= 0 && id < a.vocab;
  if (!is_known && a.errors && first == 0) atomicOr(a.errors, uint32_t{TC_BAD_ID});
  const V* const from = reinterpret_cast<const V*>(a.weight[is_known ? id : 0]);
  V* const to = reinterpret_cast<V*>(a.y[r]);
  V nan;
  memset(&nan, 0xff, sizeof nan);
  V values[kVectors];
#pragma unroll
  for (int v = 0; v < kVectors; ++v)
    if (first + v * kWarp < count) values[v] = is_known ? from[first + v * kWarp] : nan;
#pragma unroll
  for (int v = 0; v < kVectors; ++v)
    if (first + v * kWarp < count) __stcs(to + first + v * kWarp, values[v]);
}

template <class E, class V>
__global__ void __launch_bounds__(kThreads) forward_kernel(const ForwardArgs<E> a) {
  constexpr int kWarps = kThreads / kWarp;
  const int64_t count = a.y.count * a.pieces;
  for (int64_t piece = int64_t(blockIdx.x) * kWarps + threadIdx.x / kWarp; piece < count;
       piece += int64_t(gridDim.x) * kWarps)
    copy_piece<E, V>(a, piece % a.y.count, piece / a.y.count * (kWarp * kVectors) + threadIdx.x % kWarp);
}

template <class E, class V>
void forward(const tcx_embedding_forward_args& a, const tc_exec& exec) {
  constexpr int64_t kPerPiece = kWarp * kVectors * int64_t{sizeof(V) / sizeof(E)};
  const auto y = rows_of<E>(a.y);
  const ForwardArgs<E> args{AnyIndices(a.ids), rows_of<const E>(a.weight),           y,
                            a.weight.shape[0], (y.cols + kPerPiece - 1) / kPerPiece, exec.device_errors};
  launch<forward_kernel<E, V>>("embedding_forward", {blocks_for(y.count * args.pieces, kThreads / kWarp), kThreads},
                               exec, args);
}

template <class E>
void forward_of(const tcx_embedding_forward_args& a, const tc_exec& exec) {
  if (fits_vectors(a.weight) && fits_vectors(a.y))
    forward<E, uint4>(a, exec);
  else
    forward<E, E>(a, exec);
}

}  // namespace

void forward_cuda(const tcx_embedding_forward_args& a, const tc_exec& exec) {
  const DeviceGuard device(a.weight);
  if (tc_dtype_size(a.weight.dtype) == 4)
    forward_of<uint32_t>(a, exec);
  else
    forward_of<uint16_t>(a, exec);
}

}  // namespace tc::ops::embedding
