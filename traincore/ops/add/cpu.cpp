// CPU kernel of add: compiled once per SIMD target, the best one is chosen at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "traincore/ops/add/cpu.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "traincore/core/dispatch.h"
#include "traincore/cpu/elements.h"
#include "traincore/cpu/rows-inl.h"
#include "traincore/cpu/streaming.h"
#include "traincore/ops/add/plan.h"

HWY_BEFORE_NAMESPACE();
namespace tc::ops::add::HWY_NAMESPACE {
namespace {

using namespace tc::HWY_NAMESPACE;  // NOLINT(google-build-using-namespace): the SIMD vocabulary of this target

struct Weights {
  float alpha, beta;
  HWY_INLINE V operator()(V a, V b) const { return hn::Add(hn::Mul(set(alpha), a), hn::Mul(set(beta), b)); }
};

template <class T>
void sum_dense(const tcx_add_args& args, const tc_exec& exec, Weights weights) {
  const auto* a = static_cast<const T*>(args.a.data);
  const auto* b = static_cast<const T*>(args.b.data);
  auto* y = static_cast<T*>(args.y.data);
  const int64_t n = element_count(args.y);
  const bool streamed = streams(args.y, {&args.a, &args.b});
  parallel_blocks(n, rows_per_block(n, 1), exec.threads, [&](int64_t begin, int64_t end) HWY_ATTR {
    map_row(begin, end, y, streamed, [=](auto at) HWY_ATTR { return weights(at.load(a), at.load(b)); });
  });
}

void sum_any(const tcx_add_args& args, const tc_exec& exec, Weights weights) {
  const Elements a(args.a), b(args.b), y(args.y);
  parallel_chunks(y.count(), exec.threads, [&](int64_t first, int64_t n) HWY_ATTR {
    alignas(64) float scratch_a[Elements::kChunk], scratch_b[Elements::kChunk];
    const float* const left = a.read(first, n, scratch_a);
    const float* const right = b.read(first, n, scratch_b);
    float* const total = y.place(first, n, scratch_a);
    for_row(n, [&](auto at) HWY_ATTR { at.store(total, weights(at.load(left), at.load(right))); });
    y.write(first, n, total);
  });
}

void sum(const tcx_add_args& a, const tc_exec& exec) {
  const Weights weights{static_cast<float>(a.alpha), static_cast<float>(a.beta)};
  if (is_uniform(a))
    with_type(FloatTypes{}, a.y.dtype, [&]<class T>() { sum_dense<T>(a, exec, weights); });
  else
    sum_any(a, exec, weights);
}

}  // namespace
}  // namespace tc::ops::add::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tc::ops::add {

HWY_EXPORT(sum);
void add_cpu(const tcx_add_args& a, const tc_exec& exec) { HWY_DYNAMIC_DISPATCH(sum)(a, exec); }

}  // namespace tc::ops::add
#endif
