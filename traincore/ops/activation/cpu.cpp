// CPU kernels of the activations: compiled once per SIMD target, the best one is chosen at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "traincore/ops/activation/cpu.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "traincore/cpu/activation-inl.h"
#include "traincore/cpu/elements.h"
#include "traincore/cpu/streaming.h"
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
  const bool streamed = streams(a.y, {&a.gate, &a.up});
  parallel_pieces(gates.count, gates.cols, exec.threads, [&](int64_t row, int64_t begin, int64_t end) HWY_ATTR {
    const T *const gate = gates[row], *const up = ups.data ? ups[row] : nullptr;
    const auto value = [=](auto at) HWY_ATTR HWY_FLATTEN { return Act(at.load(gate)).value(); };
    if (up)
      map_row(begin, end, ys[row], streamed, [=](auto at) HWY_ATTR { return hn::Mul(value(at), at.load(up)); });
    else
      map_row(begin, end, ys[row], streamed, value);
  });
}

// One row of what backward reads and writes; up, and all but one of the outputs, may be NULL.
template <class T, class Act>
struct BackwardRow {
  const T *dy, *gate, *up;
  T *dgate, *dup, *y;

  HWY_INLINE V factor(auto at) const { return up ? at.load(up) : set(1.0f); }
  HWY_INLINE V gate_gradient(auto at, const Act& act) const {
    return act.times_slope(hn::Mul(at.load(dy), factor(at)));
  }
  HWY_INLINE V up_gradient(auto at, const Act& act) const { return hn::Mul(at.load(dy), act.value()); }

  void write(int64_t begin, int64_t end, bool streamed) const {
    if (dgate && dup && !y)
      map_row<2, T>(begin, end, {dgate, dup}, streamed, [=, *this](auto at) HWY_ATTR HWY_FLATTEN {
        const Act act(at.load(gate));
        return std::array<V, 2>{gate_gradient(at, act), up_gradient(at, act)};
      });
    else if (dgate && !dup && !y)
      map_row(begin, end, dgate, streamed,
              [=, *this](auto at) HWY_ATTR HWY_FLATTEN { return gate_gradient(at, Act(at.load(gate))); });
    else
      write_any(begin, end);
  }
  void write_any(int64_t begin, int64_t end) const {
    for_row(begin, end, [=, *this](auto at) HWY_ATTR HWY_FLATTEN {
      const Act act(at.load(gate));
      const V of_gate = gate_gradient(at, act), of_up = up_gradient(at, act), value = hn::Mul(act.value(), factor(at));
      if (dgate) at.store(dgate, of_gate);  // the outputs may be inputs' memory, so the loads come first
      if (dup) at.store(dup, of_up);
      if (y) at.store(y, value);
    });
  }
};

template <class T, class Act>
void backward_runs(const tcx_activation_backward_args& a, const tc_exec& exec) {
  const int leading = leading_rows({&a.dy, &a.gate, &a.up, &a.dgate, &a.dup, &a.y});
  const auto dys = rows_of<const T>(a.dy, leading), gates = rows_of<const T>(a.gate, leading);
  const auto ups = rows_of<const T>(a.up, leading);
  const auto dgates = rows_of<T>(a.dgate, leading), dups = rows_of<T>(a.dup, leading), ys = rows_of<T>(a.y, leading);
  const bool streamed = streams(given(a.dgate) ? a.dgate : a.dup, {&a.dy, &a.gate, &a.up});
  parallel_pieces(dys.count, dys.cols, exec.threads, [&](int64_t row, int64_t begin, int64_t end) HWY_ATTR {
    const auto at = [&](const auto& rows) { return rows.data ? rows[row] : nullptr; };
    const BackwardRow<T, Act> one{at(dys), at(gates), at(ups), at(dgates), at(dups), at(ys)};
    one.write(begin, end, streamed);
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
