// CPU kernels of @op@: compiled once per SIMD target, the best one is chosen at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "traincore/ops/@op@/cpu.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "traincore/core/dispatch.h"
#include "traincore/core/view.h"
#include "traincore/cpu/parallel.h"
#include "traincore/cpu/rows-inl.h"
#include "traincore/ops/@op@/@op@.h"

HWY_BEFORE_NAMESPACE();
namespace tc::ops::@op@::HWY_NAMESPACE {
namespace {

using namespace tc::HWY_NAMESPACE;  // NOLINT(google-build-using-namespace): the SIMD vocabulary of this target

template <class T>
void forward_rows(const tcx_@op@_forward_args& a, const tc_exec& exec) {
  const auto x = rows_of<const T>(a.x);
  const auto y = rows_of<T>(a.y);
  parallel_blocks(x.count, rows_per_block(x.count, x.cols), exec.threads, [&](int64_t begin, int64_t end) HWY_ATTR {
    for (int64_t r = begin; r < end; ++r) {
      const T* const from = x[r];
      T* const to = y[r];
      for_row(x.cols, [&](auto at) HWY_ATTR {
        const V v = at.load(from);
        at.store(to, hn::Mul(v, v));
      });
    }
  });
}

template <class T>
void backward_rows(const tcx_@op@_backward_args& a, const tc_exec& exec) {
  const auto dy = rows_of<const T>(a.dy), x = rows_of<const T>(a.x);
  const auto dx = rows_of<T>(a.dx);
  parallel_blocks(dy.count, rows_per_block(dy.count, dy.cols), exec.threads, [&](int64_t begin, int64_t end) HWY_ATTR {
    for (int64_t r = begin; r < end; ++r) {
      const T *const gradient = dy[r], *const from = x[r];
      T* const to = dx[r];
      for_row(dy.cols, [&](auto at) HWY_ATTR {
        at.store(to, hn::Mul(hn::Mul(set(2), at.load(from)), at.load(gradient)));
      });
    }
  });
}

void forward(const tcx_@op@_forward_args& a, const tc_exec& exec) {
  with_type(FloatTypes{}, a.x.dtype, [&]<class T>() { forward_rows<T>(a, exec); });
}
void backward(const tcx_@op@_backward_args& a, const tc_exec& exec) {
  with_type(FloatTypes{}, a.dy.dtype, [&]<class T>() { backward_rows<T>(a, exec); });
}

}  // namespace
}  // namespace tc::ops::@op@::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tc::ops::@op@ {

HWY_EXPORT(forward);
HWY_EXPORT(backward);
void forward_cpu(const tcx_@op@_forward_args& a, const tc_exec& exec) { HWY_DYNAMIC_DISPATCH(forward)(a, exec); }
void backward_cpu(const tcx_@op@_backward_args& a, const tc_exec& exec) { HWY_DYNAMIC_DISPATCH(backward)(a, exec); }

}  // namespace tc::ops::@op@
#endif
