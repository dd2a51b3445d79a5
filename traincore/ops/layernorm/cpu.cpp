// CPU kernels of LayerNorm: compiled once per SIMD target, the best one is chosen at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "traincore/ops/layernorm/cpu.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "traincore/core/dispatch.h"
#include "traincore/cpu/norm-inl.h"
#include "traincore/cpu/parallel.h"
#include "traincore/cpu/streaming.h"
#include "traincore/ops/layernorm/plan.h"

HWY_BEFORE_NAMESPACE();
namespace tc::ops::layernorm::HWY_NAMESPACE {
namespace {

using namespace tc::HWY_NAMESPACE;  // NOLINT(google-build-using-namespace): the SIMD vocabulary of this target

template <class T>
void forward_rows(const tcx_layernorm_forward_args& a, const tc_exec& exec) {
  const Scratch scratch(carve_forward, a, exec);
  const StagedRows<T> x(a.x), residual(a.residual), y(a.y), residual_out(a.residual_out);
  const auto mean = values_of<float>(a.mean), rstd = values_of<float>(a.rstd);
  const int64_t cols = x.cols();
  const float* const gain = as_f32(a.weight, 0, 1, cols, scratch->gain);
  const float* const bias = as_f32(a.bias, 0, 0, cols, scratch->bias);
  const auto eps = static_cast<float>(a.eps);
  const bool streamed = streams(a.y, {&a.x, &a.residual});
  parallel_blocks(x.count(), rows_per_block(x.count(), cols), exec.threads, [&](int64_t begin, int64_t end) HWY_ATTR {
    const Lines<4> lines(cols, x, residual, y, residual_out);
    for (int64_t r = begin; r < end; ++r) {
      const NormRow<T> v{x.read(r, lines[0]), residual.read(r, lines[1])};
      const Moments moments = moments_of(v, cols);
      const float s = moments.rstd(eps);
      const auto value_at = [=](auto at, V value) HWY_ATTR {
        return hn::MulAdd(moments.normalise(value, s), at.load(gain), at.load(bias));
      };
      T* const out = y.place(r, lines[2]);
      if (T* const kept = residual_out.place(r, lines[3])) {
        map_row<2, T>(0, cols, {out, kept}, streamed, [=](auto at) HWY_ATTR {
          const V value = v(at);
          return std::array<V, 2>{value_at(at, value), value};
        });
        residual_out.write(r, kept);
      } else {
        map_row(0, cols, out, streamed, [=](auto at) HWY_ATTR { return value_at(at, v(at)); });
      }
      y.write(r, out);
      if (mean.data) *mean[r] = moments.mean();
      if (rstd.data) *rstd[r] = s;
    }
  });
}

// Partial sums of the parameter gradients over rows; NULL where one is not wanted.
struct Sums {
  float* dweight;
  float* dbias;
};

// What one row's gradients are made of.
template <class T>
struct BackwardRow {
  const T* dy;
  NormRow<T> v;
  const float* gain;
  const T* dresidual_out;
  float mean, rstd;
  int64_t cols;

  template <class At>
  HWY_INLINE V normalised(At at) const {
    return hn::Mul(hn::Sub(v(at), set(mean)), set(rstd));
  }
  // mean(gw) and mean(gw c r); adds the row's terms to the sums.
  std::array<float, 2> means(const Sums& sums) const {
    auto [gw, product] = sums_row<2>(cols, [=, *this](auto at) HWY_ATTR {
      const V g = at.load(dy), c = normalised(at), weighted = hn::Mul(g, at.load(gain));
      if (sums.dweight) at.store(sums.dweight, hn::MulAdd(g, c, at.load(sums.dweight)));
      if (sums.dbias) at.store(sums.dbias, hn::Add(g, at.load(sums.dbias)));
      return std::array<V, 2>{weighted, hn::Mul(weighted, c)};
    });
    return {gw / static_cast<float>(cols), product / static_cast<float>(cols)};
  }
  void write_dx(const std::array<float, 2>& means, T* dx, bool streamed) const {
    map_row(0, cols, dx, streamed, [=, *this](auto at) HWY_ATTR {
      const V gw = hn::MulSub(at.load(dy), at.load(gain), set(means[0]));
      const V gradient = hn::Mul(set(rstd), hn::NegMulAdd(normalised(at), set(means[1]), gw));
      return dresidual_out ? hn::Add(gradient, at.load(dresidual_out)) : gradient;
    });
  }
};

template <class T>
void backward_rows(const tcx_layernorm_backward_args& a, const tc_exec& exec) {
  const Scratch scratch(carve_backward, a, exec);
  const StagedRows<T> dy(a.dy), x(a.x), residual(a.residual), dresidual_out(a.dresidual_out), dx(a.dx);
  const auto mean = values_of<const float>(a.mean), rstd = values_of<const float>(a.rstd);
  const int64_t cols = dy.cols(), width = gradients_wanted(a) * cols;
  const float* const gain = as_f32(a.weight, 0, 1, cols, scratch->gain);
  float* const slabs = scratch->slabs;
  const bool streamed = streams(a.dx, {&a.dy, &a.dresidual_out});
  parallel_slabs(dy.count(), exec.threads, [&](int64_t slab, int64_t begin, int64_t end) HWY_ATTR {
    const Lines<5> lines(cols, dy, x, residual, dresidual_out, dx);
    float* const sums = slabs + slab * width;
    std::fill_n(sums, width, 0.0f);
    const Sums wanted{given(a.dweight) ? sums : nullptr, given(a.dbias) ? sums + width - cols : nullptr};
    for (int64_t r = begin; r < end; ++r) {
      const BackwardRow<T> row{dy.read(r, lines[0]),
                               {x.read(r, lines[1]), residual.read(r, lines[2])},
                               gain,
                               dresidual_out.read(r, lines[3]),
                               *mean[r],
                               *rstd[r],
                               cols};
      const auto means = row.means(wanted);
      T* const out = dx.place(r, lines[4]);
      if (!out) continue;
      row.write_dx(means, out, streamed);
      dx.write(r, out);
    }
  });
  if (!width) return;
  sum_vectors(slabs, slab_count(dy.count()), width);
  if (given(a.dweight)) store_as(a.dweight, slabs, a.accumulate != 0);
  if (given(a.dbias)) store_as(a.dbias, slabs + width - cols, a.accumulate != 0);
}

void forward(const tcx_layernorm_forward_args& a, const tc_exec& exec) {
  with_type(FloatTypes{}, kernel_dtype(a).dtype, [&]<class T>() { forward_rows<T>(a, exec); });
}
void backward(const tcx_layernorm_backward_args& a, const tc_exec& exec) {
  with_type(FloatTypes{}, kernel_dtype(a).dtype, [&]<class T>() { backward_rows<T>(a, exec); });
}

}  // namespace
}  // namespace tc::ops::layernorm::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tc::ops::layernorm {

HWY_EXPORT(forward);
HWY_EXPORT(backward);
void forward_cpu(const tcx_layernorm_forward_args& a, const tc_exec& exec) { HWY_DYNAMIC_DISPATCH(forward)(a, exec); }
void backward_cpu(const tcx_layernorm_backward_args& a, const tc_exec& exec) {
  HWY_DYNAMIC_DISPATCH(backward)(a, exec);
}

}  // namespace tc::ops::layernorm
#endif
