// How a GPU serves a call: launches, the size of the workspace and explain ask here. Pure.
#pragma once
#include <algorithm>
#include <string>

#include "traincore/core/fail.h"
#include "traincore/cuda/row_plan.h"
#include "traincore/ops/linear_cross_entropy/extents.h"

namespace tc::ops::linear_cross_entropy {

// Numbers of a 16-bit dtype that keep of an f32 what a sum of such products does: three of 8 bits, two of 11.
constexpr int parts_of(int32_t dtype) { return dtype == TC_DTYPE_BF16 ? 3 : 2; }

struct GpuPlan {
  int64_t chunk;            // valid rows whose logits are in memory together; a multiple of 128
  int32_t dtype;            // of the operands of every product: both tensors', or f32
  int32_t parts;            // numbers of that dtype that an element of dx is cut into
  bool copies_weight;       // in `dtype`, to rows that cuBLASLt may read 16 bytes at a time
  bool scales_dx;           // by a power of two, found chunk by chunk: f16 has too small a range
  bool adds_dweight_apart;  // in f32 workspace, rounded once at the end
};

// From the shape alone: about 2^27 logits, enough for the products to run at full speed.
constexpr int64_t gpu_chunk_rows(const Extents& e) {
  constexpr int64_t kElements = int64_t{1} << 27, kStep = 128, kMost = 8192;
  const int64_t most = std::clamp(kElements / std::max<int64_t>(e.classes, 1) / kStep * kStep, kStep, kMost);
  return e.rows >= most ? most : std::max<int64_t>((e.rows + kStep - 1) / kStep, 1) * kStep;
}

// Length of a row of scratch: whole lines of 128 bytes.
constexpr int64_t gpu_line(int64_t cols) { return (cols + 63) / 64 * 64; }

// From one row of a matrix to the next, in elements.
inline int64_t row_stride(const tc_tensor& matrix) { return matrix.shape[0] > 1 ? matrix.stride[0] : matrix.shape[1]; }

// Whether cuBLASLt may take the matrix as it is, 16 bytes at a time.
inline bool suits_products(const tc_tensor& matrix) {
  const auto size = static_cast<int64_t>(tc_dtype_size(matrix.dtype));
  return reinterpret_cast<uintptr_t>(matrix.data) % 16 == 0 && row_stride(matrix) >= matrix.shape[1] &&
         row_stride(matrix) * size % 16 == 0;
}

// TC_FAST rounds dx to one part. TC_STRICT asks for f32 products, which two dtypes need as well.
template <class A>
GpuPlan plan_gpu(const char* pass, const A& a, const tc_exec& exec) {
  constexpr int64_t kMostClasses = INT32_MAX - (1 << 14);  // which loops over them step past
  if (a.weight.shape[0] > kMostClasses)
    fail(TC_ERR_KERNEL_NOT_FOUND, "{}: weight has {} classes, but its GPU kernels serve up to {}", pass,
         a.weight.shape[0], kMostClasses);
  const bool is_widened = a.weight.dtype != a.hidden.dtype || exec.precision == TC_STRICT;
  const int32_t dtype = is_widened ? int32_t{TC_DTYPE_F32} : a.hidden.dtype;
  const bool is_cut = dtype != TC_DTYPE_F32 && exec.precision != TC_FAST;
  const bool is_f32 = given(a.dweight) && a.dweight.dtype == TC_DTYPE_F32;
  return {.chunk = gpu_chunk_rows(extents_of(a)),
          .dtype = dtype,
          .parts = is_cut ? parts_of(dtype) : 1,
          .copies_weight = a.weight.dtype != dtype || !suits_products(a.weight),
          .scales_dx = dtype == TC_DTYPE_F16,
          .adds_dweight_apart = given(a.dweight) && !(is_f32 && suits_products(a.dweight))};
}

template <class A>
std::string describe(const GpuPlan& plan, const A& a) {
  const Extents e = extents_of(a);
  std::string text =
      fmt::format("chunks of {} valid rows, {:.1f} MiB of logits in f32; {} products by cuBLASLt", plan.chunk,
                  static_cast<double>(plan.chunk * gpu_line(e.classes)) * 4 / (1 << 20), tc_dtype_name(plan.dtype));
  if (a.hidden.dtype != plan.dtype || a.weight.dtype != plan.dtype) text += " of operands widened to f32";
  if (plan.copies_weight && a.weight.dtype == plan.dtype) text += ", weight copied to rows at multiples of 16 bytes";
  if (wants_gradients(a) && plan.dtype != TC_DTYPE_F32)
    text += plan.parts == 1 ? fmt::format("; dx rounded to {}", tc_dtype_name(plan.dtype))
                            : fmt::format("; dx in {} parts that add up", plan.parts);
  if (wants_gradients(a) && plan.scales_dx) text += ", scaled by a power of two";
  if (given(a.dweight))
    text += fmt::format("; dweight summed over the chunks in {}", plan.adds_dweight_apart ? "f32 workspace" : "place");
  return text;
}

}  // namespace tc::ops::linear_cross_entropy
