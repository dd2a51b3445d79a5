#include "traincore/cuda/column_sums.h"

#include "traincore/cuda/launch.h"
#include "traincore/cuda/vec.cuh"

namespace tc::cuda {
namespace {

constexpr int kColumns = 32, kParts = 32;  // of a block: a thread sums every kParts-th slab of one column

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

__global__ void __launch_bounds__(kColumns* kParts) column_sums_kernel(const Args a) {
  __shared__ float parts[kParts][kColumns + 1];
  const int lane = int(threadIdx.x) % kColumns, part = int(threadIdx.x) / kColumns;
  const Sum sum = a.sums[blockIdx.x / a.tiles];
  const int64_t c = int64_t(blockIdx.x % a.tiles) * kColumns + lane;
  float x = 0;
  if (c < a.cols)
    for (int64_t s = part; s < a.slabs; s += kParts) x += sum.slabs[s * a.cols + c];
  parts[part][lane] = x;
  __syncthreads();
  if (part != 0 || c >= a.cols) return;
  for (int p = 1; p < kParts; ++p) x += parts[p][lane];
  if (a.accumulate) x += static_cast<float*>(sum.out)[c];
  store_as(sum.out, sum.dtype, c, x);
}

}  // namespace

void sum_columns(std::initializer_list<ColumnSum> sums, int64_t slabs, int64_t cols, bool accumulate,
                 const tc_exec& exec) {
  Args args{{}, slabs, cols, (cols + kColumns - 1) / kColumns, accumulate};
  int count = 0;
  for (const ColumnSum& s : sums)
    if (s.slabs) args.sums[count++] = {s.slabs, s.out->data, s.out->dtype};
  launch<column_sums_kernel>("column_sums", {count * args.tiles, kColumns * kParts}, exec, args);
}

}  // namespace tc::cuda
