// AdamW on the GPU: many tensors a launch, their pointers among the kernel's parameters, a block for every 1024 elements
// of a tensor. Where a number is a device scalar, a first kernel of one thread makes the coefficients.
#include <algorithm>
#include <vector>

#include "traincore/core/dispatch.h"
#include "traincore/core/random.h"
#include "traincore/cuda/elements.cuh"
#include "traincore/cuda/elements.h"
#include "traincore/cuda/launch.h"
#include "traincore/ops/adamw/plan.h"

namespace tc::ops::adamw {
namespace {

using namespace tc::cuda;  // NOLINT(google-build-using-namespace): the vocabulary of GPU kernels
using Args = tcx_adamw_args;

constexpr int kThreads = 256, kVec = 4;
constexpr int kBlockElements = kThreads * kVec;
constexpr int kMostTensors = 48;  // of a launch: a kernel's parameters have 4 KB

enum class Kept : int32_t { f32, bf16, split, stochastic };

// What is known when a step begins.
struct Step {
  Coefficients coefficients;
  int32_t is_skipped;
  int64_t number;
};

struct Tensor {
  void* params;
  const void* grads;
  float *m, *v;
  void* extra;              // the low halves of split parameters, or the copy of f32 ones, or NULL
  int64_t elements, place;  // place: of the first element in the call
  int32_t first_block, copy_dtype;
};

struct Batch {
  Tensor tensors[kMostTensors];
  int32_t count;
  bool is_wide;  // every tensor's address is that of a whole vector
  Step step;
  const Step* device_step;  // in place of `step`, or NULL
  uint64_t seed, first_index;
};

__global__ void step_kernel(const __grid_constant__ Args a, Step* out, uint32_t* errors) {
  const auto scalar = [](const tc_tensor& t, double number) {
    return t.data ? double(*static_cast<const float*>(t.data)) : number;
  };
  const double lr = scalar(a.lr_tensor, a.lr), clip = scalar(a.clip_tensor, a.clip);
  const int64_t number = a.step_tensor.data ? *static_cast<const int64_t*>(a.step_tensor.data) : a.step;
  const tc_tensor& found = a.found_inf_tensor;
  const bool found_inf = !found.data                   ? a.found_inf != 0
                         : found.dtype == TC_DTYPE_F32 ? *static_cast<const float*>(found.data) != 0
                                                       : *static_cast<const int64_t*>(found.data) != 0;
  const bool is_bad = !(lr >= 0) || isinf(lr) || number < 1;
  if (is_bad && !found_inf && errors) atomicOr(errors, uint32_t(TC_BAD_SCALAR));
  *out = {coefficients_of(a, lr, clip, number), found_inf || is_bad, number};
}

// The words of elements index .. index + N - 1, which need not start a counter.
template <int N>
__device__ __forceinline__ void words_of(const Philox& philox, uint64_t index, uint32_t (&words)[N]) {
  if constexpr (N == 1) {
    words[0] = philox.word(index);
  } else {
    static_assert(N == 4);
    const int skipped = int(index % 4);
    const Words4 a = philox(index / 4), b = skipped ? philox(index / 4 + 1) : a;
    const uint32_t made[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
    for (int j = 0; j < 4; ++j)
      words[j] = skipped < 2 ? (skipped == 0 ? made[j] : made[j + 1]) : (skipped == 2 ? made[j + 2] : made[j + 3]);
  }
}

// N elements of one tensor.
template <class G, Kept kKept, int N>
__device__ __forceinline__ void update(const Batch& batch, const Tensor& t, const Step& step, int64_t at) {
  using Param = std::conditional_t<kKept == Kept::f32, float, bf16>;
  Param* const params = static_cast<Param*>(t.params) + at;
  int16_t* const low = static_cast<int16_t*>(t.extra) + at;
  const auto grads = Pack<G, N>::load(static_cast<const G*>(t.grads) + at);
  const auto old_m = Pack<float, N>::load(t.m + at), old_v = Pack<float, N>::load(t.v + at);
  auto kept = Pack<Param, N>::load(params);
  Pack<int16_t, N> kept_low{};
  if constexpr (kKept == Kept::split) kept_low = Pack<int16_t, N>::load(low);
  auto* const low_bits = reinterpret_cast<int16_t*>(&kept_low.raw);
  auto p = kept.f32(), m = old_m.f32(), v = old_v.f32();
  if constexpr (kKept == Kept::split)
#pragma unroll
    for (int j = 0; j < N; ++j) p[j] = join({reinterpret_cast<const bf16*>(&kept.raw)[j].bits, low_bits[j]});

  const Coefficients& c = step.coefficients;
  const auto g = grads.f32();
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const float clipped = c.clip * g[j];
    m[j] = fmaf(c.beta1, m[j], c.rest1 * clipped);
    v[j] = fmaf(c.beta2, v[j], c.rest2 * clipped * clipped);
    const float direction = m[j] / fmaf(sqrtf(v[j]), c.scale_v, c.eps);
    p[j] = p[j] - fmaf(c.rate, direction, c.decay * p[j]);
  }
  Pack<float, N>::from(m).store(t.m + at);
  Pack<float, N>::from(v).store(t.v + at);

  if constexpr (kKept == Kept::f32 || kKept == Kept::bf16) {
    Pack<Param, N>::from(p).store(params);
    if (kKept == Kept::f32 && t.extra) AnyElements{t.extra, t.copy_dtype}.store<N>(at, p);
  } else {
    auto* const bits = reinterpret_cast<bf16*>(&kept.raw);
    uint32_t words[N];
    if constexpr (kKept == Kept::stochastic)
      words_of(Philox{batch.seed, uint64_t(step.number)}, batch.first_index + uint64_t(t.place + at), words);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      if constexpr (kKept == Kept::stochastic) {
        bits[j].bits = round_stochastically(p[j], words[j]);
      } else {
        const Split parts = split(p[j]);
        bits[j].bits = parts.high, low_bits[j] = parts.low;
      }
    }
    kept.store(params);
    if constexpr (kKept == Kept::split) kept_low.store(low);
  }
}

// Of neighbours, the last that starts at or before this block.
__device__ __forceinline__ int tensor_of_block(const Batch& batch) {
  int low = 0, high = batch.count;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (batch.tensors[middle].first_block <= int(blockIdx.x) ? low : high) = middle;
  }
  return low;
}

template <class G, Kept kKept>
__global__ void __launch_bounds__(kThreads) update_kernel(const __grid_constant__ Batch batch) {
  const Step step = batch.device_step ? *batch.device_step : batch.step;
  if (step.is_skipped) return;
  const Tensor& t = batch.tensors[tensor_of_block(batch)];
  const int64_t first = int64_t(int(blockIdx.x) - t.first_block) * kBlockElements;
  if (batch.is_wide && first + kBlockElements <= t.elements)
    return update<G, kKept, kVec>(batch, t, step, first + int(threadIdx.x) * kVec);
  for (int64_t at = first + threadIdx.x; at < min(first + kBlockElements, t.elements); at += kThreads)
    update<G, kKept, 1>(batch, t, step, at);
}

// The kernel that a tensor goes to. Those that vectors fit and those that they do not go in launches of their own.
struct Variant {
  int32_t grads;
  Kept kept;
  bool is_wide;
  bool operator==(const Variant&) const = default;
};

const tc_tensor* extra_of(const Args& a, int64_t i) {
  return a.params_low ? a.params_low + i : a.copy_out ? a.copy_out + i : nullptr;
}

Variant variant_of(const Args& a, int64_t i) {
  const bool is_f32 = a.params[i].dtype == TC_DTYPE_F32, is_stochastic = a.rounding == TC_ROUND_STOCHASTIC;
  Variant variant{a.grads[i].dtype, Kept::bf16, true};
  variant.kept = is_f32 ? Kept::f32 : is_stochastic ? Kept::stochastic : a.params_low ? Kept::split : Kept::bf16;
  for (const tc_tensor* t : {a.params + i, a.grads + i, a.m + i, a.v + i, extra_of(a, i)})
    variant.is_wide &= !t || reinterpret_cast<uintptr_t>(t->data) % (kVec * tc_dtype_size(t->dtype)) == 0;
  return variant;
}

Tensor tensor_at(const Args& a, int64_t i, int64_t place) {
  const tc_tensor* const extra = extra_of(a, i);
  return {a.params[i].data,
          a.grads[i].data,
          static_cast<float*>(a.m[i].data),
          static_cast<float*>(a.v[i].data),
          extra ? extra->data : nullptr,
          element_count(a.params[i]),
          place,
          0,
          extra ? extra->dtype : TC_DTYPE_F32};
}

// Every tensor of one variant, as many a launch as there is room for.
template <class G, Kept kKept>
void update_all(const Args& a, const tc_exec& exec, const std::vector<Variant>& variants, const Variant& mine,
                Batch& batch) {
  batch.count = 0, batch.is_wide = mine.is_wide;
  int64_t place = 0, blocks = 0;
  const auto flush = [&] {
    launch<update_kernel<G, kKept>>("adamw", {blocks, kThreads}, exec, batch);
    batch.count = 0, blocks = 0;
  };
  for (int64_t i = 0; i < a.params_count; ++i) {
    const int64_t elements = element_count(a.params[i]), more = blocks_for(elements, kBlockElements);
    if (more > 0 && variants[static_cast<size_t>(i)] == mine) {
      if (batch.count == kMostTensors || blocks + more > INT32_MAX) flush();
      batch.tensors[batch.count] = tensor_at(a, i, place);
      batch.tensors[batch.count++].first_block = static_cast<int32_t>(blocks);
      blocks += more;
    }
    place += elements;
  }
  flush();
}

void update(const Args& a, const tc_exec& exec, Batch& batch) {
  std::vector<Variant> variants;
  for (int64_t i = 0; i < a.params_count; ++i) variants.push_back(variant_of(a, i));
  for (auto first = variants.begin(); first != variants.end(); ++first)
    if (std::find(variants.begin(), first, *first) == first)
      with_type(FloatTypes{}, first->grads, [&]<class G>() {
        with_value<Kept::f32, Kept::bf16, Kept::split, Kept::stochastic>(
            "kept", static_cast<int64_t>(first->kept), [&]<auto kKept>() {
              update_all<G, kKept>(a, exec, variants, *first, batch);
            });
      });
}

bool reads_scalars(const Args& a) {
  return given(a.lr_tensor) || given(a.step_tensor) || given(a.clip_tensor) || given(a.found_inf_tensor);
}

}  // namespace

size_t adamw_cuda_workspace(const Args& a, const tc_exec&) { return reads_scalars(a) ? sizeof(Step) : 0; }

void adamw_cuda(const Args& a, const tc_exec& exec) {
  if (a.params_count == 0) return;
  const DeviceGuard device(a.params[0]);
  Batch batch{};
  batch.seed = static_cast<uint64_t>(a.seed), batch.first_index = static_cast<uint64_t>(a.first_index);
  if (reads_scalars(a)) {
    auto* const step = static_cast<Step*>(exec.workspace);
    launch<step_kernel>("adamw_step", {1, 1}, exec, a, step, exec.device_errors);
    batch.device_step = step;
  } else {
    batch.step = {coefficients_of(a, a.lr, a.clip, a.step), a.found_inf, a.step};
  }
  update(a, exec, batch);
}

}  // namespace tc::ops::adamw
