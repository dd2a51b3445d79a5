// CPU kernels of RMSNorm: compiled once per SIMD target, the best one is chosen at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "traincore/ops/rmsnorm/cpu.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "traincore/core/dispatch.h"
#include "traincore/cpu/norm-inl.h"
#include "traincore/cpu/parallel.h"
#include "traincore/cpu/streaming.h"
#include "traincore/cpu/vector.h"
#include "traincore/ops/rmsnorm/plan.h"

HWY_BEFORE_NAMESPACE();
namespace tc::ops::rmsnorm::HWY_NAMESPACE {
namespace {

using namespace tc::HWY_NAMESPACE;  // NOLINT(google-build-using-namespace): the SIMD vocabulary of this target

template <class T, class Row>
void forward_rows(const tcx_rmsnorm_forward_args& a, const tc_exec& exec) {
  const Scratch scratch(carve_forward, a, exec);
  const StagedRows<T> x(a.x), residual(a.residual), y(a.y), residual_out(a.residual_out);
  const auto rstd = values_of<float>(a.rstd);
  const int64_t cols = x.cols();
  const float* const gain = as_f32(a.weight, a.weight_offset, 1, cols, scratch->gain);
  const auto eps = static_cast<float>(a.eps);
  const bool streamed = streams(a.y, {&a.x, &a.residual});
  parallel_blocks(x.count(), rows_per_block(x.count(), cols), exec.threads, [&](int64_t begin, int64_t end) HWY_ATTR {
    const Lines<4> lines(cols, x, residual, y, residual_out);
    for (int64_t r = begin; r < end; ++r) {
      const NormRow<T, Row> v{x.read(r, lines[0]), residual.read(r, lines[1])};
      const float s = rms_rstd(v, cols, eps);
      const auto normalised = [=](auto at, V value)
                                  HWY_ATTR { return hn::Mul(rounded<Row>(hn::Mul(value, set(s))), at.load(gain)); };
      T* const out = y.place(r, lines[2]);
      if (T* const kept = residual_out.place(r, lines[3])) {
        map_row<2, T>(0, cols, {out, kept}, streamed, [=](auto at) HWY_ATTR {
          const V value = v(at);
          return std::array<V, 2>{normalised(at, value), value};
        });
        residual_out.write(r, kept);
      } else {
        map_row(0, cols, out, streamed, [=](auto at) HWY_ATTR { return normalised(at, v(at)); });
      }
      y.write(r, out);
      if (rstd.data) *rstd[r] = s;
    }
  });
}

// What one row's gradients are made of.
template <class T, class Row>
struct BackwardRow {
  const T* dy;
  NormRow<T, Row> v;
  const float* gain;
  const T* dresidual_out;
  float rstd;
  int64_t cols;

  // mean(gw v); adds the row's dy v rstd to dweight, if there is one.
  float mean_product(float* dweight) const {
    const float dot = sum_row(cols, [=, *this](auto at) HWY_ATTR {
      const V g = at.load(dy), value = v(at);
      if (dweight) {
        const V normalised = rounded<Row>(hn::Mul(value, set(rstd)));
        at.store(dweight, hn::MulAdd(g, normalised, at.load(dweight)));
      }
      return hn::Mul(hn::Mul(g, at.load(gain)), value);
    });
    return dot / static_cast<float>(cols);
  }
  void write_dx(float mean, T* dx, bool streamed) const {
    const float pull = rstd * rstd * mean;
    map_row(0, cols, dx, streamed, [=, *this](auto at) HWY_ATTR {
      const V gw = hn::Mul(at.load(dy), at.load(gain));
      const V gradient = hn::Mul(set(rstd), hn::NegMulAdd(v(at), set(pull), gw));
      return dresidual_out ? hn::Add(gradient, at.load(dresidual_out)) : gradient;
    });
  }
};

template <class T, class Row>
void backward_rows(const tcx_rmsnorm_backward_args& a, const tc_exec& exec) {
  const Scratch scratch(carve_backward, a, exec);
  const StagedRows<T> dy(a.dy), x(a.x), residual(a.residual), dresidual_out(a.dresidual_out), dx(a.dx);
  const auto rstd = values_of<const float>(a.rstd);
  const int64_t cols = dy.cols();
  const float* const gain = as_f32(a.weight, a.weight_offset, 1, cols, scratch->gain);
  float* const slabs = scratch->slabs;
  const bool streamed = streams(a.dx, {&a.dy, &a.dresidual_out});
  parallel_slabs(dy.count(), exec.threads, [&](int64_t slab, int64_t begin, int64_t end) HWY_ATTR {
    const Lines<5> lines(cols, dy, x, residual, dresidual_out, dx);
    float* const dweight = slabs ? slabs + slab * cols : nullptr;
    if (dweight) std::fill_n(dweight, cols, 0.0f);
    for (int64_t r = begin; r < end; ++r) {
      const BackwardRow<T, Row> row{dy.read(r, lines[0]),
                                    {x.read(r, lines[1]), residual.read(r, lines[2])},
                                    gain,
                                    dresidual_out.read(r, lines[3]),
                                    *rstd[r],
                                    cols};
      const float mean = row.mean_product(dweight);
      T* const out = dx.place(r, lines[4]);
      if (!out) continue;
      row.write_dx(mean, out, streamed);
      dx.write(r, out);
    }
  });
  if (!given(a.dweight)) return;
  sum_vectors(slabs, slab_count(dy.count()), cols);
  store_as(a.dweight, slabs, a.accumulate != 0);
}

// f<T, Row> for a call's storage and rounding; 16-bit storage is rounded to nothing but itself.
template <class A, class F>
void with_dtypes(const A& a, F&& f) {
  with_type(FloatTypes{}, kernel_dtype(a).dtype, [&]<class T>() {
    with_type(FloatTypes{}, rounded_to(a), [&]<class Row>() {
      if constexpr (std::is_same_v<T, float> || std::is_same_v<Row, float> || std::is_same_v<Row, T>)
        f.template operator()<T, Row>();
    });
  });
}

void forward(const tcx_rmsnorm_forward_args& a, const tc_exec& exec) {
  with_dtypes(a, [&]<class T, class Row>() { forward_rows<T, Row>(a, exec); });
}
void backward(const tcx_rmsnorm_backward_args& a, const tc_exec& exec) {
  with_dtypes(a, [&]<class T, class Row>() { backward_rows<T, Row>(a, exec); });
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
