// Linear cross entropy on the GPU: rows on their way between the tensors and the operands of products.
#include <algorithm>
#include <type_traits>

#include "traincore/core/dispatch.h"
#include "traincore/cuda/elements.cuh"
#include "traincore/cuda/launch.h"
#include "traincore/cuda/row_shape.h"
#include "traincore/ops/linear_cross_entropy/cuda_steps.cuh"

namespace tc::ops::linear_cross_entropy {
namespace {

using namespace tc::cuda;  // NOLINT(google-build-using-namespace): the vocabulary of GPU kernels

constexpr int kThreads = 256;

template <class From, class To>
struct GatherArgs {
  Rows<const From> from;
  To* to;
  ChunkRows rows;
  int64_t line;
  int copies;
};
// A block a row.
template <class From, class To>
__global__ void __launch_bounds__(kThreads) gather_kernel(const __grid_constant__ GatherArgs<From, To> a) {
  const int64_t i = blockIdx.x, r = a.rows[i];
  const From* const from = r < 0 ? nullptr : a.from[r];
  for (int64_t c = threadIdx.x; c < a.from.cols; c += kThreads) {
    const To x = from_f32<To>(from ? to_f32(from[c]) : 0.0f);
    for (int copy = 0; copy < a.copies; ++copy) a.to[(copy * a.rows.size + i) * a.line + c] = x;
  }
}

template <class T>
struct ScatterArgs {
  const float* from;
  Rows<T> to;
  ChunkRows rows;
  const DxScale* scale;
  int64_t line;
  int parts;
};
// A block a row. The smallest part is first in the sum.
template <class T>
__global__ void __launch_bounds__(kThreads) scatter_kernel(const __grid_constant__ ScatterArgs<T> a) {
  const int64_t i = blockIdx.x, r = a.rows[i];
  if (r < 0) return;
  T* const to = a.to[r];
  const float factor = a.scale ? a.scale->inverse : 1.0f;
  for (int64_t c = threadIdx.x; c < a.to.cols; c += kThreads) {
    float sum = 0;
    for (int part = a.parts - 1; part >= 0; --part) sum += a.from[(part * a.rows.size + i) * a.line + c];
    to[c] = from_f32<T>(sum * factor);
  }
}

struct ConvertArgs {
  AnyTable from, to;
  int64_t pieces;  // of a row, each a vector a thread
  bool accumulate;
};
template <int kVec>
__global__ void __launch_bounds__(kThreads) convert_kernel(const __grid_constant__ ConvertArgs a) {
  const int64_t count = a.from.rows.count * a.pieces;
  for (int64_t piece = blockIdx.x; piece < count; piece += gridDim.x) {
    const int64_t r = piece / a.pieces, c = ((piece % a.pieces) * kThreads + threadIdx.x) * kVec;
    if (c >= a.from.rows.cols) continue;
    auto x = a.from.load<kVec>(r, c);
    if (a.accumulate) add_to(x, a.to.load<kVec>(r, c));
    if constexpr (kVec == 1)
      a.to.store(r, c, x[0]);
    else
      store_as(a.to.at(r, c), a.to.dtype, 0, x);
  }
}

struct ClearArgs {
  LossOptions options;
  RowOutputs outputs;
};
__global__ void __launch_bounds__(kThreads) clear_values_kernel(const __grid_constant__ ClearArgs a) {
  const int64_t rows = a.options.target.count();
  for (int64_t r = int64_t(blockIdx.x) * kThreads + threadIdx.x; r < rows; r += int64_t(gridDim.x) * kThreads) {
    if (a.options.target[r] != a.options.ignore_index) continue;
    a.outputs.store(r, {0, 0, 0, 0});
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    clear_rows_kernel(const __grid_constant__ LossOptions o, const __grid_constant__ Rows<T> rows) {
  for (int64_t r = blockIdx.x; r < rows.count; r += gridDim.x) {
    if (o.target[r] != o.ignore_index) continue;
    T* const row = rows[r];
    for (int64_t c = threadIdx.x; c < rows.cols; c += kThreads) row[c] = from_f32<T>(0.0f);
  }
}

}  // namespace

void gather_hidden(const tc_tensor& hidden, const ChunkRows& rows, int32_t dtype, void* to, int64_t line, int copies,
                   const tc_exec& exec) {
  with_type(FloatTypes{}, hidden.dtype, [&]<class From>() {
    const auto gather = [&]<class To>() {
      const GatherArgs<From, To> args{rows_of<const From>(hidden), static_cast<To*>(to), rows, line, copies};
      launch<gather_kernel<From, To>>("linear_cross_entropy_gather", {rows.size, kThreads}, exec, args);
    };
    if (dtype == hidden.dtype) return gather.template operator()<From>();
    gather.template operator()<float>();
  });
}

void scatter_dhidden(const float* from, int64_t line, int parts, const ChunkRows& rows, const DxScale* scale,
                     const tc_tensor& dhidden, const tc_exec& exec) {
  with_type(FloatTypes{}, dhidden.dtype, [&]<class T>() {
    const ScatterArgs<T> args{from, rows_of<T>(dhidden), rows, scale, line, parts};
    launch<scatter_kernel<T>>("linear_cross_entropy_scatter", {rows.size, kThreads}, exec, args);
  });
}

void convert(const tc_tensor& from, const tc_tensor& to, bool accumulate, const tc_exec& exec) {
  ConvertArgs args{AnyTable(from), AnyTable(to), 0, accumulate};
  with_value<1, 4>("vector", fits_vectors(from) && fits_vectors(to) ? 4 : 1, [&]<int kVec>() {
    args.pieces = (args.from.rows.cols + kThreads * kVec - 1) / (kThreads * kVec);
    launch<convert_kernel<kVec>>("linear_cross_entropy_convert",
                                 {blocks_for(args.from.rows.count * args.pieces, 1), kThreads}, exec, args);
  });
}

void clear_ignored(const LossOptions& options, const RowOutputs& outputs, const tc_exec& exec) {
  launch<clear_values_kernel>("linear_cross_entropy_clear", {blocks_for(options.target.count(), kThreads), kThreads},
                              exec, ClearArgs{options, outputs});
}
void clear_ignored(const LossOptions& options, const tc_tensor& dhidden, const tc_exec& exec) {
  with_type(FloatTypes{}, dhidden.dtype, [&]<class T>() {
    launch<clear_rows_kernel<T>>("linear_cross_entropy_clear", {blocks_for(options.target.count(), 1), kThreads}, exec,
                                 options, rows_of<T>(dhidden));
  });
}

}  // namespace tc::ops::linear_cross_entropy
