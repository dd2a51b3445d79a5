// norm_gemv on the GPU: matrices that are read the same way share a launch, rows go in groups of kFewRows.
#include "traincore/core/arena.h"
#include "traincore/cuda/launch.h"
#include "traincore/cuda/row_shape.h"
#include "traincore/ops/norm_gemv/plan.h"
// After plan.h.
#include "traincore/ops/norm_gemv/cuda_gemv.cuh"

namespace tc::ops::norm_gemv {
namespace {

using Args = tcx_norm_gemv_args;

GpuNorm norm_of(const Args& a) {
  const int64_t k = AnyRows(a.x).cols();
  const auto is_aligned = [](const tc_tensor& t) { return reinterpret_cast<uintptr_t>(t.data) % 16 == 0; };
  return {cuda::AnyTable(a.x),
          {{a.weight.data, a.weight.dtype}, static_cast<float>(a.weight_offset)},
          {a.bias.data, a.bias.dtype},
          0,
          0,
          static_cast<int32_t>(k),
          static_cast<float>(a.eps),
          a.norm == TC_NORM_LAYER,
          cuda::fits_vectors(a.x) && k % kGpuNormWide == 0 && is_aligned(a.weight) && is_aligned(a.bias)};
}

// The sums of several parts of k, for one launch at a time.
float* carve_sums(const Args& a, const cuda::DeviceInfo& device, Arena& arena) {
  int64_t most = 0;
  const GpuProducts products = gpu_products(a);
  for (int i = 0; i < products.count && a.transpose_w; ++i) {
    const GpuProduct& p = products.list[i];
    if (!plan_tiles(p, true, device).serves && plan_dots(p, device).parts > 1)
      most = std::max(most, p.rows * (p.outputs[0] + p.outputs[1] + p.outputs[2]));
  }
  return arena.take<float>(most);
}

void run(const GpuProduct& product, bool transposed, const GpuNorm& norm, float* sums, const cuda::DeviceInfo& device,
         const tc_exec& exec) {
  const auto matrix = [&](int i) -> GpuMatrix {
    if (product.outputs[i] == 0) return {nullptr, 0, 0, cuda::AnyTable(tc_tensor{})};
    const Matrix& m = product.matrices[i];
    return {m.w->data, m.w->stride[0], product.outputs[i], cuda::AnyTable(*m.y)};
  };
  GemvArgs args{norm, {matrix(0), matrix(1), matrix(2)}, sums};
  args.norm.is_wide &= reads_x_together(norm.x.dtype, product.dtype);
  if (const TilesPlan tiles = plan_tiles(product, transposed, device); tiles.serves)
    run_tiles(args, tiles, transposed, product.dtype, exec);
  else if (transposed)
    run_dots(args, plan_dots(product, device), product.dtype, product.width, exec);
  else
    run_strips(args, plan_strips(product, device), product.dtype, product.width, exec);
}

}  // namespace

size_t norm_gemv_cuda_workspace(const Args& a, const tc_exec&) {
  Arena counting;
  carve_sums(a, cuda::device_info(a.x.device_index), counting);
  return counting.used();
}

void norm_gemv_cuda(const Args& a, const tc_exec& exec) {
  const cuda::DeviceGuard device(a.x);
  const int64_t rows = rows_in(a.x);
  Arena arena(exec.workspace);
  float* const sums = carve_sums(a, device.info(), arena);
  GpuProducts products = gpu_products(a);
  GpuNorm norm = norm_of(a);
  for (; norm.first < rows; norm.first += kFewRows) {
    norm.rows = static_cast<int32_t>(std::min(rows - norm.first, kFewRows));
    for (int i = 0; i < products.count; ++i) {
      products.list[i].rows = norm.rows;
      run(products.list[i], a.transpose_w != 0, norm, sums, device.info(), exec);
    }
  }
}

}  // namespace tc::ops::norm_gemv
