// CPU kernels of grad_norm and clip: compiled once per SIMD target, the best one is chosen at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "traincore/ops/grad_norm/cpu.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include <cmath>

#include "traincore/core/dispatch.h"
#include "traincore/cpu/parallel.h"
#include "traincore/cpu/rows-inl.h"
#include "traincore/cpu/vector.h"
#include "traincore/ops/grad_norm/plan.h"

HWY_BEFORE_NAMESPACE();
namespace tc::ops::grad_norm::HWY_NAMESPACE {
namespace {

using namespace tc::HWY_NAMESPACE;  // NOLINT(google-build-using-namespace): the SIMD vocabulary of this target

using F64 = hn::ScalableTag<double>;
using HalfF32 = hn::Rebind<float, F64>;  // as many lanes as F64

constexpr int64_t kChunk = 2048;

// The square of an f32 is exact in f64, and no sum of them overflows.
double sum_of_squares(const float* p, int64_t n) {
  constexpr int kWays = 4;  // independent chains hide the latency of the addition
  const auto step = static_cast<int64_t>(hn::Lanes(F64()));
  hn::Vec<F64> sum[kWays];
  std::fill(sum, sum + kWays, hn::Zero(F64()));
  int64_t i = 0;
  for (; i + kWays * step <= n; i += kWays * step)
    for (int way = 0; way < kWays; ++way) {
      const auto x = hn::PromoteTo(F64(), hn::LoadU(HalfF32(), p + i + way * step));
      sum[way] = hn::MulAdd(x, x, sum[way]);
    }
  double total = hn::GetLane(hn::SumOfLanes(F64(), hn::Add(hn::Add(sum[0], sum[1]), hn::Add(sum[2], sum[3]))));
  for (; i < n; ++i) total += double{p[i]} * p[i];
  return total;
}

int64_t count_nonfinite(const float* p, int64_t n) {
  return std::count_if(p, p + n, [](float x) { return !std::isfinite(x); });
}

// Calls f(values, n) for chunks of elements [begin, end) of a gradient, as f32.
template <class F>
void for_chunks(const tc_tensor& grad, int64_t begin, int64_t end, F&& f) {
  alignas(64) float scratch[kChunk];
  const auto size = static_cast<int64_t>(tc_dtype_size(grad.dtype));
  for (int64_t first = begin; first < end; first += kChunk) {
    const int64_t n = std::min(kChunk, end - first);
    const std::byte* const memory = static_cast<const std::byte*>(grad.data) + first * size;
    if (grad.dtype != TC_DTYPE_F32) widen(grad.dtype, memory, n, scratch);
    f(grad.dtype == TC_DTYPE_F32 ? reinterpret_cast<const float*>(memory) : scratch, n);
  }
}

void norm(const tcx_grad_norm_args& a, const tc_exec& exec) {
  const Scratch scratch(carve_norm, a, exec);
  const TensorRun grads(a.grads, a.grads_count, scratch->starts);
  parallel_for(grads.blocks(), exec.threads, [&](int64_t block) {
    double squares = 0;
    int64_t nonfinite = 0;
    grads.for_pieces(block, [&](int64_t tensor, int64_t begin, int64_t end) {
      for_chunks(a.grads[tensor], begin, end, [&](const float* values, int64_t n) {
        const double sum = sum_of_squares(values, n);
        if (!std::isfinite(sum)) nonfinite += count_nonfinite(values, n);
        squares += sum;
      });
    });
    scratch->squares[block] = squares;
    scratch->nonfinite[block] = nonfinite;
  });
  double squares = 0;
  int64_t nonfinite = 0;
  for (int64_t block = 0; block < grads.blocks(); ++block) {
    squares += scratch->squares[block];
    nonfinite += scratch->nonfinite[block];
  }
  const double norm = a.scale * std::sqrt(squares), ratio = a.max_norm / (norm + 1e-6);
  *static_cast<float*>(a.norm.data) = static_cast<float>(norm);
  if (given(a.clip)) *static_cast<float*>(a.clip.data) = static_cast<float>(a.scale * (ratio >= 1 ? 1 : ratio));
  if (!given(a.nonfinite)) return;
  if (a.nonfinite.dtype == TC_DTYPE_F32)
    *static_cast<float*>(a.nonfinite.data) = static_cast<float>(nonfinite);
  else
    *static_cast<int64_t*>(a.nonfinite.data) = nonfinite;
}

void clip(const tcx_clip_args& a, const tc_exec& exec) {
  const float factor = *static_cast<const float*>(a.clip.data);
  if (factor == 1) return;
  const Scratch scratch(carve_clip, a, exec);
  const TensorRun grads(a.grads, a.grads_count, scratch->starts);
  parallel_for(grads.blocks(), exec.threads, [&](int64_t block) {
    grads.for_pieces(block, [&](int64_t tensor, int64_t begin, int64_t end) {
      with_type(FloatTypes{}, a.grads[tensor].dtype, [&]<class T>() {
        T* const grad = static_cast<T*>(a.grads[tensor].data) + begin;
        for_row(end - begin, [&](auto at) HWY_ATTR { at.store(grad, hn::Mul(set(factor), at.load(grad))); });
      });
    });
  });
}

}  // namespace
}  // namespace tc::ops::grad_norm::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tc::ops::grad_norm {

HWY_EXPORT(norm);
HWY_EXPORT(clip);
void norm_cpu(const tcx_grad_norm_args& a, const tc_exec& exec) { HWY_DYNAMIC_DISPATCH(norm)(a, exec); }
void clip_cpu(const tcx_clip_args& a, const tc_exec& exec) { HWY_DYNAMIC_DISPATCH(clip)(a, exec); }

}  // namespace tc::ops::grad_norm
#endif
