// CPU kernels of softmax and log-softmax: compiled once per SIMD target, the best one is chosen at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "traincore/ops/softmax/cpu.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "traincore/core/dispatch.h"
#include "traincore/core/view.h"
#include "traincore/cpu/parallel.h"
#include "traincore/cpu/softmax-inl.h"
#include "traincore/cpu/streaming.h"
#include "traincore/ops/softmax/softmax.h"

HWY_BEFORE_NAMESPACE();
namespace tc::ops::softmax::HWY_NAMESPACE {
namespace {

using namespace tc::HWY_NAMESPACE;  // NOLINT(google-build-using-namespace): the SIMD vocabulary of this target

constexpr float kInfinity = std::numeric_limits<float>::infinity();

constexpr auto kAsIs = [](V v) HWY_ATTR { return v; };

template <class T>
void softmax_rows(const tcx_softmax_forward_args& a, const tc_exec& exec) {
  const auto x = rows_of<const T>(a.x);
  const auto y = rows_of<T>(a.y);
  const bool streamed = streams(a.y, {&a.x});
  parallel_blocks(x.count, rows_per_block(x.count, x.cols), exec.threads, [&](int64_t begin, int64_t end) HWY_ATTR {
    const Exponentials kept(x.cols);
    for (int64_t r = begin; r < end; ++r) {
      const SoftmaxStats stats = softmax_stats<false>(x[r], x.cols, kAsIs, kept);
      const float scale = stats.inverse_sum();
      map_exponentials(stats, kept, x[r], x.cols, kAsIs, y[r], streamed,
                       [=](auto, V e) HWY_ATTR { return hn::Mul(e, set(scale)); });
    }
  });
}

template <class T>
void log_softmax_rows(const tcx_log_softmax_forward_args& a, const tc_exec& exec) {
  const auto x = rows_of<const T>(a.x);
  const auto y = rows_of<T>(a.y);
  const bool streamed = streams(a.y, {&a.x});
  const Exponentials nothing_kept(0);
  parallel_blocks(x.count, rows_per_block(x.count, x.cols), exec.threads, [&](int64_t begin, int64_t end) HWY_ATTR {
    for (int64_t r = begin; r < end; ++r) {
      const T* const row = x[r];
      const SoftmaxStats stats = softmax_stats<false>(row, x.cols, kAsIs, nothing_kept);
      const float shift = stats.shift, log_sum = static_cast<float>(stats.log_sum());
      map_row(0, x.cols, y[r], streamed,
              [=](auto at) HWY_ATTR { return hn::Sub(hn::Sub(at.load(row), set(shift)), set(log_sum)); });
    }
  });
}

template <class T>
void softmax_gradient_row(const T* y, const T* dy, int64_t cols, T* dx, bool streamed) {
  const float dot = sum_row(cols, [=](auto at) HWY_ATTR { return hn::Mul(at.load(y), at.load(dy)); });
  map_row(0, cols, dx, streamed, [=](auto at) HWY_ATTR { return hn::Mul(at.load(y), hn::Sub(at.load(dy), set(dot))); });
}

// Only a row whose elements were all -inf has a y without a finite maximum.
template <class T>
bool is_masked(const T* y, int64_t cols) {
  return float(y[0]) == -kInfinity && max_row(cols, [&](auto at) HWY_ATTR { return at.load(y); }) == -kInfinity;
}

template <class T>
void log_softmax_gradient_row(const T* y, const T* dy, int64_t cols, T* dx, bool streamed) {
  if (is_masked(y, cols)) {
    std::fill_n(dx, cols, T{});
    return;
  }
  const float total = sum_row(cols, [=](auto at) HWY_ATTR { return at.load(dy); });
  map_row(0, cols, dx, streamed,
          [=](auto at) HWY_ATTR { return hn::NegMulAdd(exp(at.load(y)), set(total), at.load(dy)); });
}

template <class T, void (*Row)(const T*, const T*, int64_t, T*, bool)>
void backward_rows(const tc_tensor& result, const tc_tensor& cotangent, const tc_tensor& gradient,
                   const tc_exec& exec) {
  const auto y = rows_of<const T>(result), dy = rows_of<const T>(cotangent);
  const auto dx = rows_of<T>(gradient);
  const bool streamed = streams(gradient, {&result, &cotangent});
  parallel_blocks(y.count, rows_per_block(y.count, y.cols), exec.threads, [&](int64_t begin, int64_t end) HWY_ATTR {
    for (int64_t r = begin; r < end; ++r) Row(y[r], dy[r], y.cols, dx[r], streamed);
  });
}

void softmax_forward(const tcx_softmax_forward_args& a, const tc_exec& exec) {
  with_type(FloatTypes{}, a.x.dtype, [&]<class T>() { softmax_rows<T>(a, exec); });
}
void softmax_backward(const tcx_softmax_backward_args& a, const tc_exec& exec) {
  with_type(FloatTypes{}, a.y.dtype,
            [&]<class T>() { backward_rows<T, softmax_gradient_row<T>>(a.y, a.dy, a.dx, exec); });
}
void log_softmax_forward(const tcx_log_softmax_forward_args& a, const tc_exec& exec) {
  with_type(FloatTypes{}, a.x.dtype, [&]<class T>() { log_softmax_rows<T>(a, exec); });
}
void log_softmax_backward(const tcx_log_softmax_backward_args& a, const tc_exec& exec) {
  with_type(FloatTypes{}, a.y.dtype,
            [&]<class T>() { backward_rows<T, log_softmax_gradient_row<T>>(a.y, a.dy, a.dx, exec); });
}

}  // namespace
}  // namespace tc::ops::softmax::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tc::ops::softmax {

HWY_EXPORT(softmax_forward);
HWY_EXPORT(softmax_backward);
HWY_EXPORT(log_softmax_forward);
HWY_EXPORT(log_softmax_backward);
void softmax_forward_cpu(const tcx_softmax_forward_args& a, const tc_exec& exec) {
  HWY_DYNAMIC_DISPATCH(softmax_forward)(a, exec);
}
void softmax_backward_cpu(const tcx_softmax_backward_args& a, const tc_exec& exec) {
  HWY_DYNAMIC_DISPATCH(softmax_backward)(a, exec);
}
void log_softmax_forward_cpu(const tcx_log_softmax_forward_args& a, const tc_exec& exec) {
  HWY_DYNAMIC_DISPATCH(log_softmax_forward)(a, exec);
}
void log_softmax_backward_cpu(const tcx_log_softmax_backward_args& a, const tc_exec& exec) {
  HWY_DYNAMIC_DISPATCH(log_softmax_backward)(a, exec);
}

}  // namespace tc::ops::softmax
#endif
