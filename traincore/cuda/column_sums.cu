#include "traincore/cuda/column_sums.h"

#include "traincore/cuda/launch.h"
#include "traincore/cuda/overlap.cuh"
#include "traincore/cuda/vec.cuh"

namespace tc::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kAtOnce = 8;                                     // slabs that a thread waits for together
constexpr int64_t kManyColumns = int64_t{132} * kThreads / 8;  // as many as keep an H200 busy at 8 threads each

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

// Every kParts-th slab of one column.
template <int kParts>
__device__ __forceinline__ float sum_of_part(const Args& a, const float* slabs, int part) {
  float total = 0;
  for (int64_t first = part; first < a.slabs; first += kParts * kAtOnce) {
    float x[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int64_t s = first + i * kParts;
      x[i] = s < a.slabs ? slabs[s * a.cols] : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) total += x[i];
  }
  return total;
}

// A block sums kThreads / kParts columns, each by kParts threads.
template <int kParts>
__global__ void __launch_bounds__(kThreads) column_sums_kernel(const Args a) {
  constexpr int kColumns = kThreads / kParts;
  __shared__ float parts[kParts][kColumns + 1];
  wait_for_stream();
  const Sum sum = a.sums[blockIdx.x / a.tiles];
  const int column = int(threadIdx.x) % kColumns, part = int(threadIdx.x) / kColumns;
  const int64_t c = int64_t(blockIdx.x % a.tiles) * kColumns + column;
  float x = c < a.cols ? sum_of_part<kParts>(a, sum.slabs + c, part) : 0.0f;
#pragma unroll
  for (int others = kParts / 2; others > 0; others /= 2) {
    if (part < 2 * others) parts[part][column] = x;
    __syncthreads();
    if (part < others) x += parts[part + others][column];
  }
  if (part != 0 || c >= a.cols) return;
  if (a.accumulate) x += static_cast<float*>(sum.out)[c];
  store_as(sum.out, sum.dtype, c, x);
}

}  // namespace

void sum_columns(std::initializer_list<ColumnSum> sums, int64_t slabs, int64_t cols, bool accumulate,
                 const tc_exec& exec) {
  Args args{{}, slabs, cols, 0, accumulate};
  int count = 0;
  for (const ColumnSum& s : sums)
    if (s.slabs) args.sums[count++] = {s.slabs, s.out->data, s.out->dtype};
  const auto with_parts = [&]<int kParts>() {
    args.tiles = (cols * kParts + kThreads - 1) / kThreads;
    launch<column_sums_kernel<kParts>>(
        "column_sums", {.blocks = count * args.tiles, .threads = kThreads, .overlaps = true}, exec, args);
  };
  if (slabs <= 2 * kAtOnce) return with_parts.template operator()<1>();
  if (slabs <= 8 * 2 * kAtOnce && cols > kManyColumns) return with_parts.template operator()<8>();
  with_parts.template operator()<64>();
}

}  // namespace tc::cuda
