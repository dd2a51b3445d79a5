#include "traincore/cuda/column_sums.h"

#include "traincore/core/dispatch.h"
#include "traincore/cuda/launch.h"
#include "traincore/cuda/overlap.cuh"
#include "traincore/cuda/vec.cuh"

namespace tc::cuda {
namespace {

constexpr int kThreads = 512;

struct Sum {
  const float* slabs;
  void* out;
  int32_t dtype;
};
struct Args {
  Sum sums[2];
  int64_t slabs, cols, tiles;
  bool accumulate;
};

// Every kParts-th slab of kWide columns.
template <int kParts, int kWide>
__device__ __forceinline__ Floats<kWide> sum_of_part(const Args& a, const float* slabs, int part) {
  const auto zero = floats<kWide>([](int) { return 0.0f; });
  auto total = zero;
  for (int64_t first = part; first < a.slabs; first += kParts * kSlabsAtOnce) {
    Floats<kWide> x[kSlabsAtOnce];
#pragma unroll
    for (int i = 0; i < kSlabsAtOnce; ++i) {
      const int64_t s = first + i * kParts;
      x[i] = s < a.slabs ? Pack<float, kWide>::load(slabs + s * a.cols).f32() : zero;
    }
#pragma unroll
    for (int i = 0; i < kSlabsAtOnce; ++i) add_to(total, x[i]);
  }
  return total;
}

// A block sums kThreads / kParts times kWide columns, each by kParts threads.
template <int kParts, int kWide>
__global__ void __launch_bounds__(kThreads) column_sums_kernel(const Args a) {
  constexpr int kColumns = kThreads / kParts;
  __shared__ Floats<kWide> parts[kParts][kColumns];
  wait_for_stream();
  const Sum sum = a.sums[blockIdx.x / a.tiles];
  const int column = int(threadIdx.x) % kColumns, part = int(threadIdx.x) / kColumns;
  const int64_t c = (int64_t(blockIdx.x % a.tiles) * kColumns + column) * kWide;
  auto x = floats<kWide>([](int) { return 0.0f; });
  if (c < a.cols) x = sum_of_part<kParts, kWide>(a, sum.slabs + c, part);
#pragma unroll
  for (int others = kParts / 2; others > 0; others /= 2) {
    if (part < 2 * others) parts[part][column] = x;
    __syncthreads();
    if (part < others) add_to(x, parts[part + others][column]);
  }
  if (part != 0 || c >= a.cols) return;
#pragma unroll
  for (int j = 0; j < kWide; ++j) {
    if (a.accumulate) x[j] += static_cast<float*>(sum.out)[c + j];
    store_as(sum.out, sum.dtype, c + j, x[j]);
  }
}

}  // namespace

void sum_columns(std::initializer_list<ColumnSum> sums, int64_t slabs, int64_t cols, bool accumulate,
                 const tc_exec& exec) {
  Args args{{}, slabs, cols, 0, accumulate};
  int count = 0;
  for (const ColumnSum& s : sums)
    if (s.slabs) args.sums[count++] = {s.slabs, s.out->data, s.out->dtype};
  int32_t parts = 0;
  for (const ColumnSumKernel& k : kColumnSumKernels)
    if (!parts && slabs <= k.most_slabs) parts = k.parts;
  with_value<1, 2, 16, 64>("parts", parts, [&]<int kParts>() {
    with_value<1, 4>("wide", cols % 4 == 0 ? 4 : 1, [&]<int kWide>() {
      args.tiles = (cols * kParts + kThreads * kWide - 1) / (kThreads * kWide);
      launch<column_sums_kernel<kParts, kWide>>(
          "column_sums", {.blocks = count * args.tiles, .threads = kThreads, .overlaps = true}, exec, args);
    });
  });
}

}  // namespace tc::cuda
