// norm_gemv on the GPU: matrices that are read the same way share a launch, rows go in groups of kFewRows.
#include "traincore/core/arena.h"
#include "traincore/cuda/row_launch.h"
#include "traincore/ops/norm_gemv/cuda_gemv.cuh"

namespace tc::ops::norm_gemv {
namespace {

using Args = tcx_norm_gemv_args;

int32_t width_of(const tc_tensor& w) {
  constexpr int32_t kBytes = 16;
  return cuda::fits_vectors(w) ? kBytes / static_cast<int32_t>(tc_dtype_size(w.dtype)) : 1;
}

// Matrices of one dtype and one width of access; what a launch multiplies by.
struct Batch {
  std::array<Matrix, kMatrices> matrices;
  int count = 0;
  int32_t dtype = 0, width = 1;

  GpuProduct product(int64_t rows, int64_t k) const {
    GpuProduct p{rows, k, {}, width};
    for (int i = 0; i < count; ++i) p.outputs[i] = outputs_of(matrices[i]);
    return p;
  }
};
struct Batches {
  std::array<Batch, kMatrices> list;
  int count = 0;
};
Batches batches_of(const Args& a) {
  Batches batches;
  for (const Matrix& m : matrices(a)) {
    if (outputs_of(m) == 0) continue;
    const int32_t width = width_of(*m.w);
    int i = 0;
    while (i < batches.count && (batches.list[i].dtype != m.w->dtype || batches.list[i].width != width)) ++i;
    Batch& batch = batches.list[i];
    batches.count = std::max(batches.count, i + 1);
    batch.dtype = m.w->dtype, batch.width = width;
    batch.matrices[batch.count++] = m;
  }
  return batches;
}

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
          cuda::fits_vectors(a.x) && k % kNormWide == 0 && is_aligned(a.weight) && is_aligned(a.bias)};
}

// The sums of several parts of k, for one launch at a time.
float* carve_sums(const Args& a, const cuda::DeviceInfo& device, Arena& arena) {
  if (!a.transpose_w) return nullptr;
  const int64_t rows = std::min(rows_in(a.x), kFewRows), k = AnyRows(a.x).cols();
  int64_t most = 0;
  const Batches batches = batches_of(a);
  for (int b = 0; b < batches.count; ++b) {
    const GpuProduct product = batches.list[b].product(rows, k);
    if (plan_dots(product, device).parts > 1)
      most = std::max(most, rows * (product.outputs[0] + product.outputs[1] + product.outputs[2]));
  }
  return arena.take<float>(most);
}

void run(const Args& a, const Batch& batch, const GpuNorm& norm, float* sums, const cuda::DeviceInfo& device,
         const tc_exec& exec) {
  const auto matrix = [&](int i) -> GpuMatrix {
    if (i >= batch.count) return {nullptr, 0, 0, cuda::AnyTable(tc_tensor{})};
    const Matrix& m = batch.matrices[i];
    return {m.w->data, m.w->stride[0], outputs_of(m), cuda::AnyTable(*m.y)};
  };
  const GpuProducts products{norm, {matrix(0), matrix(1), matrix(2)}, sums};
  const GpuProduct product = batch.product(norm.rows, norm.k);
  if (a.transpose_w)
    run_dots(products, plan_dots(product, device), batch.dtype, batch.width, exec);
  else
    run_strips(products, plan_strips(product, device), batch.dtype, batch.width, exec);
}

}  // namespace

size_t norm_gemv_cuda_workspace(const Args& a, const tc_exec&) {
  Arena counting;
  carve_sums(a, cuda::device_info(a.x.device_index), counting);
  return counting.used();
}

void norm_gemv_cuda(const Args& a, const tc_exec& exec) {
  const cuda::DeviceGuard device(a.x);
  const int64_t rows = rows_in(a.x), k = AnyRows(a.x).cols();
  if (k > INT32_MAX / 2) cuda::too_wide(k);
  Arena arena(exec.workspace);
  float* const sums = carve_sums(a, device.info(), arena);
  const Batches batches = batches_of(a);
  GpuNorm norm = norm_of(a);
  for (; norm.first < rows; norm.first += kFewRows) {
    norm.rows = static_cast<int32_t>(std::min(rows - norm.first, kFewRows));
    for (int b = 0; b < batches.count; ++b) run(a, batches.list[b], norm, sums, device.info(), exec);
  }
}

}  // namespace tc::ops::norm_gemv
