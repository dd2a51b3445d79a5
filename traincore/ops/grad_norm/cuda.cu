// The norm of many gradients and their clipping on the GPU. Squares and sums are f64: a part a block, then one block adds
// the parts in order.
#include "traincore/core/arena.h"
#include "traincore/core/dispatch.h"
#include "traincore/cuda/launch.h"
#include "traincore/cuda/reduce.cuh"
#include "traincore/cuda/tensor_batch.h"
#include "traincore/cuda/vec.cuh"
#include "traincore/ops/grad_norm/grad_norm.h"

namespace tc::ops::grad_norm {
namespace {

using namespace tc::cuda;  // NOLINT(google-build-using-namespace): the vocabulary of GPU kernels

constexpr int kThreads = 256, kFinishThreads = 1024;
constexpr int kNormElements = 16384, kNormVectors = 8;  // of a block; that a thread has in flight
constexpr int kClipVectors = 2;
constexpr int kClipElements = kThreads * kClipVectors * 8;

struct Part {
  double squares;
  int64_t nonfinite;
};

// f(pack) for this thread's part of `count` elements at p, kVec at a time; kBatch packs are loaded before the first is
// used.
template <class T, int kVec, int kBatch, class F>
__device__ __forceinline__ void for_packs(const T* p, int count, F&& f) {
  const int vectors = count / kVec;
  for (int first = threadIdx.x; first < vectors; first += kBatch * kThreads) {
    Pack<T, kVec> packs[kBatch];
#pragma unroll
    for (int v = 0; v < kBatch; ++v)
      if (first + v * kThreads < vectors) packs[v] = Pack<T, kVec>::load(p + (first + v * kThreads) * kVec);
#pragma unroll
    for (int v = 0; v < kBatch; ++v)
      if (first + v * kThreads < vectors) f(packs[v], (first + v * kThreads) * kVec);
  }
}
// The same for any address and count: f takes packs of two widths.
template <class T, int kBatch, class F>
__device__ __forceinline__ void for_elements(const T* p, int count, F&& f) {
  const int wide = reinterpret_cast<uintptr_t>(p) % 16 == 0 ? count / kWide<T> * kWide<T> : 0;
  for_packs<T, kWide<T>, kBatch>(p, wide, f);
  for_packs<T, 1, 1>(p + wide, count - wide, [&](const Pack<T, 1>& pack, int at) { f(pack, wide + at); });
}

// f(pointer to this block's elements, their number), typed.
template <int kElements, class F>
__device__ __forceinline__ void visit(const TensorBatch& batch, F&& f) {
  const TensorBatch::Tensor& t = batch.tensor();
  const int64_t first = int64_t(int(blockIdx.x) - t.first_block) * kElements;
  const int count = int(min(int64_t(kElements), t.elements - first));
  if (t.dtype == TC_DTYPE_F32)
    f(static_cast<float*>(t.data) + first, count);
  else if (t.dtype == TC_DTYPE_BF16)
    f(static_cast<bf16*>(t.data) + first, count);
  else
    f(static_cast<f16*>(t.data) + first, count);
}

// The square of an f32 is exact in f64, and no sum of them overflows: only elements that are not finite make it so.
__global__ void __launch_bounds__(kThreads) squares_kernel(const __grid_constant__ TensorBatch batch, Part* parts) {
  Part mine{0, 0};
  visit<kNormElements>(batch, [&]<class T>(const T* p, int count) {
    double sums[2] = {0, 0};
    for_elements<T, kNormVectors>(p, count, [&]<int N>(const Pack<T, N>& pack, int) {
      const auto x = pack.f32();
#pragma unroll
      for (int j = 0; j < N; ++j) sums[j % 2] = fma(double(x[j]), double(x[j]), sums[j % 2]);
    });
    mine.squares = sums[0] + sums[1];
    if (isfinite(mine.squares)) return;
    for_elements<T, 1>(p, count, [&]<int N>(const Pack<T, N>& pack, int) {
      const auto x = pack.f32();
#pragma unroll
      for (int j = 0; j < N; ++j) mine.nonfinite += !isfinite(x[j]);
    });
  });
  mine = {block_sum(mine.squares), block_sum(mine.nonfinite)};
  if (threadIdx.x == 0) parts[batch.first_block + blockIdx.x] = mine;
}

struct FinishArgs {
  const Part* parts;
  int64_t count;
  double max_norm, scale;
  float *norm, *clip;
  void* nonfinite;
  int32_t nonfinite_dtype;
};

__global__ void __launch_bounds__(kFinishThreads) finish_kernel(const FinishArgs a) {
  Part all{0, 0};
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < a.count; i += kFinishThreads) {
    all.squares += a.parts[i].squares;
    all.nonfinite += a.parts[i].nonfinite;
  }
  all = {block_sum(all.squares), block_sum(all.nonfinite)};
  if (threadIdx.x != 0) return;
  const double norm = a.scale * sqrt(all.squares), ratio = a.max_norm / (norm + 1e-6);
  *a.norm = float(norm);
  if (a.clip) *a.clip = float(a.scale * (ratio >= 1 ? 1 : ratio));
  if (!a.nonfinite) return;
  if (a.nonfinite_dtype == TC_DTYPE_F32)
    *static_cast<float*>(a.nonfinite) = float(all.nonfinite);
  else
    *static_cast<int64_t*>(a.nonfinite) = all.nonfinite;
}

__global__ void __launch_bounds__(kThreads) clip_kernel(const __grid_constant__ TensorBatch batch, const float* clip) {
  const float factor = *clip;
  if (factor == 1) return;
  visit<kClipElements>(batch, [&]<class T>(T* p, int count) {
    for_elements<T, kClipVectors>(p, count, [&]<int N>(const Pack<T, N>& pack, int at) {
      const auto x = pack.f32();
      Pack<T, N>::from(floats<N>([&](int j) { return factor * x[j]; })).store(p + at);
    });
  });
}

int64_t norm_blocks(const tcx_grad_norm_args& a) {
  return for_tensor_batches(a.grads, a.grads_count, kNormElements, [](const TensorBatch&) {});
}

}  // namespace

size_t norm_cuda_workspace(const tcx_grad_norm_args& a, const tc_exec&) {
  Arena counting;
  counting.take<Part>(norm_blocks(a));
  return counting.used();
}

void norm_cuda(const tcx_grad_norm_args& a, const tc_exec& exec) {
  const DeviceGuard device(a.norm);
  Arena arena(exec.workspace);
  Part* const parts = arena.take<Part>(norm_blocks(a));
  const int64_t count = for_tensor_batches(a.grads, a.grads_count, kNormElements, [&](const TensorBatch& batch) {
    launch<squares_kernel>("grad_norm_squares", {batch.blocks, kThreads}, exec, batch, parts);
  });
  launch<finish_kernel>("grad_norm", {1, kFinishThreads}, exec,
                        FinishArgs{parts, count, a.max_norm, a.scale, static_cast<float*>(a.norm.data),
                                   static_cast<float*>(a.clip.data), a.nonfinite.data, a.nonfinite.dtype});
}

void clip_cuda(const tcx_clip_args& a, const tc_exec& exec) {
  const DeviceGuard device(a.clip);
  for_tensor_batches(a.grads, a.grads_count, kClipElements, [&](const TensorBatch& batch) {
    launch<clip_kernel>("clip", {batch.blocks, kThreads}, exec, batch, static_cast<const float*>(a.clip.data));
  });
}

}  // namespace tc::ops::grad_norm
