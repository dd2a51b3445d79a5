// Tables of cos and sin on the GPU. The frequencies come from the host among the kernel's parameters, some hundred a
// launch; angles, cos and sin are in double.
#include <algorithm>
#include <vector>

#include "traincore/cuda/elements.cuh"
#include "traincore/cuda/elements.h"
#include "traincore/cuda/indices.cuh"
#include "traincore/cuda/launch.h"
#include "traincore/ops/rope_tables/plan.h"

namespace tc::ops::rope_tables {
namespace {

using namespace tc::cuda;  // NOLINT(google-build-using-namespace): the vocabulary of GPU kernels

constexpr int kPairs = 256;  // of a launch: a kernel's parameters have 4 KB

struct TablesArgs {
  AnyTable cos, sin;
  AnyIndices positions;
  bool has_positions;
  float* inv_freq;
  double amplitude;
  int64_t rows, first, count;  // pairs first .. first + count - 1 of every row
  double frequencies[kPairs];
};

__global__ void __launch_bounds__(kItemThreads) tables_kernel(const __grid_constant__ TablesArgs a) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x, thread = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (a.inv_freq && thread < a.count) a.inv_freq[a.first + thread] = float(a.frequencies[thread]);
  for (int64_t i = thread; i < a.rows * a.count; i += step) {
    const int64_t row = i / a.count, pair = i % a.count;
    double sin, cos;
    sincos(double(a.has_positions ? a.positions[row] : row) * a.frequencies[pair], &sin, &cos);
    if (a.cos.rows.data) a.cos.store(row, a.first + pair, float(a.amplitude * cos));
    if (a.sin.rows.data) a.sin.store(row, a.first + pair, float(a.amplitude * sin));
  }
}

}  // namespace

void run_cuda(const Args& a, const tc_exec& exec) {
  const tc_tensor& any = given(a.cos) ? a.cos : given(a.sin) ? a.sin : a.inv_freq;
  const DeviceGuard device(any);
  const int64_t half = half_of(a);
  std::vector<double> frequencies(static_cast<size_t>(half));
  scaled_frequencies(a, half, frequencies.data());
  TablesArgs args{AnyTable(a.cos),
                  AnyTable(a.sin),
                  AnyIndices(a.positions),
                  given(a.positions),
                  static_cast<float*>(a.inv_freq.data),
                  amplitude_of(a),
                  given(a.cos) || given(a.sin) ? element_count(any) / half : 0,
                  0,
                  0,
                  {}};
  for (args.first = 0; args.first < half; args.first += args.count) {
    args.count = std::min<int64_t>(half - args.first, kPairs);
    std::copy_n(frequencies.data() + args.first, args.count, args.frequencies);
    const int64_t items = std::max<int64_t>(args.rows, 1) * args.count;
    launch<tables_kernel>("rope_tables", {blocks_for(items, kItemThreads), kItemThreads}, exec, args);
  }
}

}  // namespace tc::ops::rope_tables
