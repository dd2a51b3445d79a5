// CPU kernels of RMSNorm: compiled once per SIMD target, the best one is chosen at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "traincore/ops/rmsnorm/cpu.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include <cmath>

#include "traincore/core/dispatch.h"
#include "traincore/cpu/parallel.h"
#include "traincore/cpu/rows-inl.h"
#include "traincore/cpu/vector.h"
#include "traincore/ops/rmsnorm/plan.h"

HWY_BEFORE_NAMESPACE();
namespace tc::ops::rmsnorm::HWY_NAMESPACE {
namespace {

using namespace tc::HWY_NAMESPACE;  // NOLINT(google-build-using-namespace): the SIMD vocabulary of this target

// One row's v = x (+ residual), in f32.
template <class T>
struct Sum {
  const T* x;
  const T* residual;
  template <class At>
  HWY_INLINE V operator()(At at) const {
    return residual ? hn::Add(at.load(x), at.load(residual)) : at.load(x);
  }
};

// weight_offset + weight, or 1.
struct Gain {
  const float* weight;
  float offset;
  template <class At>
  HWY_INLINE V operator()(At at) const {
    return weight ? hn::Add(at.load(weight), set(offset)) : set(1);
  }
};

template <class T>
void forward_rows(const tcx_rmsnorm_forward_args& a, const tc_exec& exec) {
  const Scratch scratch(carve_forward, a, exec);
  const auto x = rows_of<const T>(a.x), residual = rows_of<const T>(a.residual);
  const auto y = rows_of<T>(a.y), residual_out = rows_of<T>(a.residual_out);
  const auto rstd = values_of<float>(a.rstd);
  const Gain gain{as_f32(a.weight, scratch->weight), static_cast<float>(a.weight_offset)};
  const auto eps = static_cast<float>(a.eps);
  const int64_t cols = x.cols;
  parallel_blocks(x.count, rows_per_block(cols), exec.threads, [&](int64_t begin, int64_t end) HWY_ATTR {
    for (int64_t r = begin; r < end; ++r) {
      const Sum<T> v{x[r], residual.data ? residual[r] : nullptr};
      const float squares = sum_row(cols, [&](auto at) HWY_ATTR {
        const V value = v(at);
        return hn::Mul(value, value);
      });
      const float s = 1.0f / std::sqrt(squares / static_cast<float>(cols) + eps);
      T* const out = y[r];
      T* const kept = residual_out.data ? residual_out[r] : nullptr;
      for_row(cols, [&](auto at) HWY_ATTR {
        const V value = v(at);
        if (kept) at.store(kept, value);
        at.store(out, hn::Mul(hn::Mul(value, set(s)), gain(at)));
      });
      if (rstd.data) *rstd[r] = s;
    }
  });
}

template <class T>
void backward_row(const tcx_rmsnorm_backward_args& a, const Gain& gain, const T* dy, const Sum<T>& v, float s,
                  const T* dresidual_out, T* dx, float* dweight) {
  const int64_t cols = a.dy.shape[a.dy.rank - 1];
  if (dweight)
    for_row(cols, [&](auto at) HWY_ATTR {
      at.store(dweight, hn::Add(at.load(dweight), hn::Mul(at.load(dy), hn::Mul(v(at), set(s)))));
    });
  if (!dx) return;
  const float dot = sum_row(cols, [&](auto at) HWY_ATTR { return hn::Mul(hn::Mul(at.load(dy), gain(at)), v(at)); });
  const V pull = set(s * s * (dot / static_cast<float>(cols)));
  for_row(cols, [&](auto at) HWY_ATTR {
    const V gw = hn::Mul(at.load(dy), gain(at));
    const V gradient = hn::Mul(set(s), hn::Sub(gw, hn::Mul(v(at), pull)));
    at.store(dx, dresidual_out ? hn::Add(gradient, at.load(dresidual_out)) : gradient);
  });
}

// Rows are cut into kSlabs runs by their number alone; a slab sums its rows' dweight in order, then slabs are added in
// order.
template <class T>
void backward_rows(const tcx_rmsnorm_backward_args& a, const tc_exec& exec) {
  const Scratch scratch(carve_backward, a, exec);
  const auto dy = rows_of<const T>(a.dy), x = rows_of<const T>(a.x), residual = rows_of<const T>(a.residual);
  const auto dresidual_out = rows_of<const T>(a.dresidual_out);
  const auto rstd = values_of<const float>(a.rstd);
  const auto dx = rows_of<T>(a.dx);
  const Gain gain{as_f32(a.weight, scratch->weight), static_cast<float>(a.weight_offset)};
  const int64_t cols = dy.cols;
  float* const slabs = scratch->slabs;
  parallel_for(kSlabs, exec.threads, [&](int64_t slab) HWY_ATTR {
    float* const dweight = slabs ? slabs + slab * cols : nullptr;
    if (dweight) std::fill_n(dweight, cols, 0.0f);
    for (int64_t r = dy.count * slab / kSlabs; r < dy.count * (slab + 1) / kSlabs; ++r)
      backward_row<T>(a, gain, dy[r], {x[r], residual.data ? residual[r] : nullptr}, *rstd[r],
                      dresidual_out.data ? dresidual_out[r] : nullptr, dx.data ? dx[r] : nullptr, dweight);
  });
  if (!given(a.dweight)) return;
  for (int64_t slab = 1; slab < kSlabs; ++slab)
    for_row(cols, [&](auto at) HWY_ATTR { at.store(slabs, hn::Add(at.load(slabs), at.load(slabs + slab * cols))); });
  store_as(a.dweight, slabs, a.accumulate != 0);
}

void forward(const tcx_rmsnorm_forward_args& a, const tc_exec& exec) {
  with_type(FloatTypes{}, a.x.dtype, [&]<class T>() { forward_rows<T>(a, exec); });
}
void backward(const tcx_rmsnorm_backward_args& a, const tc_exec& exec) {
  with_type(FloatTypes{}, a.dy.dtype, [&]<class T>() { backward_rows<T>(a, exec); });
}

}  // namespace
}  // namespace tc::ops::rmsnorm::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tc::ops::rmsnorm {

HWY_EXPORT(forward);
HWY_EXPORT(backward);
void forward_cpu(const tcx_rmsnorm_forward_args& a, const tc_exec& exec) { HWY_DYNAMIC_DISPATCH(forward)(a, exec); }
void backward_cpu(const tcx_rmsnorm_backward_args& a, const tc_exec& exec) { HWY_DYNAMIC_DISPATCH(backward)(a, exec); }

}  // namespace tc::ops::rmsnorm
#endif
