// CPU kernels of the activations: compiled once per SIMD target, the best one is chosen at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "traincore/ops/activation/cpu.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "traincore/cpu/activation-inl.h"
#include "traincore/cpu/elements.h"
#include "traincore/ops/activation/activation.h"

HWY_BEFORE_NAMESPACE();
namespace tc::ops::activation::HWY_NAMESPACE {
namespace {

using namespace tc::HWY_NAMESPACE;  // NOLINT(google-build-using-namespace): the SIMD vocabulary of this target

template <class T, class Act>
void forward_runs(const tcx_activation_forward_args& a, const tc_exec& exec) {
  const int leading = leading_rows({&a.gate, &a.up, &a.y});
  const auto gates = rows_of<const T>(a.gate, leading), ups = rows_of<const T>(a.up, leading);
  const auto ys = rows_of<T>(a.y, leading);
  parallel_pieces(gates.count, gates.cols, exec.threads, [&](int64_t row, int64_t begin, int64_t end) HWY_ATTR {
    const T* const gate = gates[row] + begin;
    const T* const up = ups.data ? ups[row] + begin : nullptr;
    T* const y = ys[row] + begin;
    for_row(end - begin, [&](auto at) HWY_ATTR {
      const V value = Act(at.load(gate)).value();
      at.store(y, up ? hn::Mul(value, at.load(up)) : value);
    });
  });
}

template <class T, class Act>
void backward_runs(const tcx_activation_backward_args& a, const tc_exec& exec) {
  const int leading = leading_rows({&a.dy, &a.gate, &a.up, &a.dgate, &a.dup, &a.y});
  const auto dys = rows_of<const T>(a.dy, leading), gates = rows_of<const T>(a.gate, leading);
  const auto ups = rows_of<const T>(a.up, leading);
  const auto dgates = rows_of<T>(a.dgate, leading), dups = rows_of<T>(a.dup, leading), ys = rows_of<T>(a.y, leading);
  parallel_pieces(dys.count, dys.cols, exec.threads, [&](int64_t row, int64_t begin, int64_t end) HWY_ATTR {
    const auto run = [&](const auto& rows) { return rows.data ? rows[row] + begin : nullptr; };
    const T* const dy = run(dys);
    const T* const gate = run(gates);
    const T* const up = run(ups);
    T* const dgate = run(dgates);
    T* const dup = run(dups);
    T* const y = run(ys);
    for_row(end - begin, [&](auto at) HWY_ATTR {
      const V g = at.load(dy), factor = up ? at.load(up) : set(1.0f);
      const Act act(at.load(gate));
      if (dgate) at.store(dgate, act.times_slope(hn::Mul(g, factor)));
      if (dup) at.store(dup, hn::Mul(g, act.value()));
      if (y) at.store(y, hn::Mul(act.value(), factor));
    });
  });
}

void forward(const tcx_activation_forward_args& a, const tc_exec& exec) {
  with_activation(a.kind, [&]<class Act>() {
    with_type(FloatTypes{}, a.gate.dtype, [&]<class T>() { forward_runs<T, Act>(a, exec); });
  });
}
void backward(const tcx_activation_backward_args& a, const tc_exec& exec) {
  with_activation(a.kind, [&]<class Act>() {
    with_type(FloatTypes{}, a.dy.dtype, [&]<class T>() { backward_runs<T, Act>(a, exec); });
  });
}

}  // namespace
}  // namespace tc::ops::activation::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tc::ops::activation {

HWY_EXPORT(forward);
HWY_EXPORT(backward);
void forward_cpu(const tcx_activation_forward_args& a, const tc_exec& exec) { HWY_DYNAMIC_DISPATCH(forward)(a, exec); }
void backward_cpu(const tcx_activation_backward_args& a, const tc_exec& exec) {
  HWY_DYNAMIC_DISPATCH(backward)(a, exec);
}

}  // namespace tc::ops::activation
#endif
