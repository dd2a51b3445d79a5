// CPU kernel of AdamW: compiled once per SIMD target, the best one is chosen at run time. One update in f32 serves
// every dtype: what is kept otherwise passes through f32 chunks in the first-level cache.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "traincore/ops/adamw/cpu.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include <cmath>

#include "traincore/cpu/parallel.h"
#include "traincore/cpu/philox-inl.h"
#include "traincore/cpu/rows-inl.h"
#include "traincore/cpu/tensor_run.h"
#include "traincore/cpu/vector.h"
#include "traincore/ops/adamw/plan.h"

HWY_BEFORE_NAMESPACE();
namespace tc::ops::adamw::HWY_NAMESPACE {
namespace {

using namespace tc::HWY_NAMESPACE;  // NOLINT(google-build-using-namespace): the SIMD vocabulary of this target

constexpr int64_t kChunk = 512;  // with its moments in the first-level cache

HWY_INLINE void update(const Coefficients& c, const float* grads, int64_t n, float* params, float* m, float* v) {
  for_row(n, [&](auto at) HWY_ATTR {
    const V g = hn::Mul(set(c.clip), at.load(grads));
    const V first = hn::MulAdd(set(c.beta1), at.load(m), hn::Mul(set(c.rest1), g));
    const V second = hn::MulAdd(set(c.beta2), at.load(v), hn::Mul(hn::Mul(set(c.rest2), g), g));
    const V direction = hn::Div(first, hn::MulAdd(hn::Sqrt(second), set(c.scale_v), set(c.eps)));
    const V p = at.load(params);
    at.store(m, first);
    at.store(v, second);
    at.store(params, hn::Sub(p, hn::MulAdd(set(c.rate), direction, hn::Mul(set(c.decay), p))));
  });
}

template <class T>
T* elements(const tc_tensor& t, int64_t first) {
  return static_cast<T*>(t.data) + first;
}
void* address(const tc_tensor& t, int64_t first) {
  return elements<std::byte>(t, first * static_cast<int64_t>(tc_dtype_size(t.dtype)));
}

// The f32 values of bf16 parameters, with their low halves if they have them.
void load_bf16(const bf16* high, const int16_t* low, int64_t n, float* values) {
  if (!low) return widen(TC_DTYPE_BF16, high, n, values);
  for (int64_t i = 0; i < n; ++i) values[i] = join({high[i].bits, low[i]});
}

// `index` is the place of the first value in the call, for stochastic rounding.
void store_bf16(const tcx_adamw_args& a, int64_t step, int64_t index, const float* values, int64_t n, bf16* high,
                int16_t* low) {
  if (a.rounding == TC_ROUND_STOCHASTIC) {
    alignas(64) uint32_t buffer[kChunk + kPhiloxSlack];
    const Philox philox{static_cast<uint64_t>(a.seed), static_cast<uint64_t>(step)};
    const uint32_t* const words = philox_words(philox, static_cast<uint64_t>(a.first_index + index), n, buffer);
    for (int64_t i = 0; i < n; ++i) high[i].bits = round_stochastically(values[i], words[i]);
  } else if (low) {
    for (int64_t i = 0; i < n; ++i) {
      const Split parts = split(values[i]);
      high[i].bits = parts.high;
      low[i] = parts.low;
    }
  } else {
    narrow(TC_DTYPE_BF16, values, n, high);
  }
}

// Elements [first, first + n) of one tensor, n <= kChunk.
void update_chunk(const tcx_adamw_args& a, const Coefficients& c, int64_t step, int64_t index, int64_t tensor,
                  int64_t first, int64_t n) {
  alignas(64) float params_buffer[kChunk], grads_buffer[kChunk];
  const tc_tensor &param = a.params[tensor], &grad = a.grads[tensor];
  const bool is_f32 = param.dtype == TC_DTYPE_F32;
  float* const params = is_f32 ? elements<float>(param, first) : params_buffer;
  bf16* const high = elements<bf16>(param, first);
  int16_t* const low = a.params_low ? elements<int16_t>(a.params_low[tensor], first) : nullptr;
  if (!is_f32) load_bf16(high, low, n, params);
  const float* grads = elements<float>(grad, first);
  if (grad.dtype != TC_DTYPE_F32) {
    widen(grad.dtype, address(grad, first), n, grads_buffer);
    grads = grads_buffer;
  }
  update(c, grads, n, params, elements<float>(a.m[tensor], first), elements<float>(a.v[tensor], first));
  if (!is_f32) store_bf16(a, step, index, params, n, high, low);
  if (a.copy_out) narrow(a.copy_out[tensor].dtype, params, n, address(a.copy_out[tensor], first));
}

void run(const tcx_adamw_args& a, const tc_exec& exec, double lr, double clip, int64_t step) {
  const Scratch scratch(carve, a, exec);
  const TensorRun params(a.params, a.params_count, scratch->starts);
  const Coefficients c = coefficients_of(a, lr, clip, step);
  parallel_for(params.blocks(), exec.threads, [&](int64_t block) {
    params.for_pieces(block, [&](int64_t tensor, int64_t begin, int64_t end) {
      for (int64_t first = begin; first < end; first += kChunk)
        update_chunk(a, c, step, params.start(tensor) + first, tensor, first, std::min(kChunk, end - first));
    });
  });
}

}  // namespace
}  // namespace tc::ops::adamw::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tc::ops::adamw {
namespace {

bool found_inf(const tcx_adamw_args& a) {
  const tc_tensor& t = a.found_inf_tensor;
  if (!given(t)) return a.found_inf != 0;
  return t.dtype == TC_DTYPE_F32 ? *static_cast<const float*>(t.data) != 0 : *static_cast<const int64_t*>(t.data) != 0;
}

}  // namespace

HWY_EXPORT(run);
void adamw_cpu(const tcx_adamw_args& a, const tc_exec& exec) {
  if (found_inf(a)) return;
  const double lr = given(a.lr_tensor) ? *static_cast<const float*>(a.lr_tensor.data) : a.lr;
  const double clip = given(a.clip_tensor) ? *static_cast<const float*>(a.clip_tensor.data) : a.clip;
  const int64_t step = given(a.step_tensor) ? *static_cast<const int64_t*>(a.step_tensor.data) : a.step;
  require(lr >= 0 && std::isfinite(lr), "adamw: lr_tensor holds {}, but must be finite and >= 0", lr);
  require(step >= 1, "adamw: step_tensor holds {}, but must be >= 1: the first step is 1", step);
  if (a.params_count == 0) return;  // a call without tensors is on no device, and its workspace may be a GPU's
  HWY_DYNAMIC_DISPATCH(run)(a, exec, lr, clip, step);
}

}  // namespace tc::ops::adamw
#endif
