// CPU kernels of cross entropy: the rows are compiled once per SIMD target, the best one is chosen at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "traincore/ops/cross_entropy/cpu.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include <cmath>

#include "traincore/core/dispatch.h"
#include "traincore/cpu/parallel.h"
#include "traincore/cpu/softmax-inl.h"
#include "traincore/cpu/vector.h"
#include "traincore/ops/cross_entropy/plan.h"

HWY_BEFORE_NAMESPACE();
namespace tc::ops::cross_entropy::HWY_NAMESPACE {
namespace {

using namespace tc::HWY_NAMESPACE;  // NOLINT(google-build-using-namespace): the SIMD vocabulary of this target

// u = softcap tanh(logit_scale x / softcap), or logit_scale x.
template <bool kCapped>
class Logit {
 public:
  explicit Logit(const Options& o)
      : inner_(static_cast<float>(kCapped ? o.logit_scale / o.softcap : o.logit_scale)),
        cap_(static_cast<float>(o.softcap)),
        inverse_cap_(static_cast<float>(kCapped ? 1 / o.softcap : 0)) {}
  HWY_INLINE V operator()(V x) const {
    const V scaled = hn::Mul(x, set(inner_));
    if constexpr (kCapped) return hn::Mul(tanh(scaled), set(cap_));
    return scaled;
  }
  HWY_INLINE float operator()(float x) const { return hn::GetLane((*this)(set(x))); }
  // v du/dx / logit_scale.
  HWY_INLINE V times_slope(V v, V u) const {
    if constexpr (!kCapped) return v;
    const V ratio = hn::Mul(u, set(inverse_cap_));
    return hn::Mul(v, hn::NegMulAdd(ratio, ratio, set(1)));
  }

 private:
  float inner_, cap_, inverse_cap_;
};

// m and L of a valid row.
struct LogSumExp {
  float max;
  double log_sum, inverse_sum;
  double value() const { return max + log_sum; }
};

template <class T, bool kCapped>
void gradient_row(const Options& o, const Logit<kCapped>& logit, const T* x, int64_t classes, int64_t target,
                  const LogSumExp& lse, double dloss, T* dlogits) {
  const double scale = dloss * o.inverse_normalizer() * o.logit_scale, s = o.label_smoothing;
  const double kept = o.weight(target) * (1 - s), of_p = kept + s + 2 * o.z_loss * lse.value();
  const V shift = set(lse.max), of_exp = set(static_cast<float>(scale * of_p * lse.inverse_sum));
  const V uniform = set(static_cast<float>(scale * s / static_cast<double>(classes)));
  const auto softmax_term = [&](V u) HWY_ATTR { return hn::MulSub(exp(hn::Sub(u, shift)), of_exp, uniform); };
  // The target's element comes first, because dlogits may take the logits' place.
  const V u = logit(set(float(x[target])));
  const V at_target = logit.times_slope(hn::Sub(softmax_term(u), set(static_cast<float>(scale * kept))), u);
  for_row(classes, [&](auto at) HWY_ATTR {
    const V u = logit(at.load(x));
    at.store(dlogits, logit.times_slope(softmax_term(u), u));
  });
  dlogits[target] = T(hn::GetLane(at_target));
}

// What a row leaves behind; zeros for an ignored one.
struct RowResult {
  double loss = 0, z_loss_part = 0;
  float max = 0, log_sum = 0;
};

// dlogits is NULL where it is not wanted.
template <class T, bool kCapped>
RowResult forward_row(const Options& o, const Logit<kCapped>& logit, const T* x, int64_t classes, int64_t target,
                      double dloss, T* dlogits) {
  if (target == o.ignore_index) {
    if (dlogits) std::fill_n(dlogits, classes, T{});
    return {};
  }
  const SoftmaxStats stats = softmax_stats(x, classes, logit);
  // A row of -inf alone has no distribution.
  const double sum = stats.sum > 0 ? stats.sum : std::numeric_limits<double>::quiet_NaN();
  const LogSumExp lse{stats.max, std::log(sum), 1 / sum};
  const double u_target = logit(float(x[target])), s = o.label_smoothing;
  const double z_loss_part = o.z_loss * lse.value() * lse.value();
  double loss = o.weight(target) * (1 - s) * ((lse.max - u_target) + lse.log_sum) + z_loss_part;
  if (s > 0) loss += s * (lse.log_sum - stats.shifted / static_cast<double>(classes));
  if (dlogits) gradient_row(o, logit, x, classes, target, lse, dloss, dlogits);
  return {loss, z_loss_part, lse.max, static_cast<float>(lse.log_sum)};
}

template <class T, bool kCapped>
void forward_rows(const tcx_cross_entropy_forward_args& a, const Options& o, const tc_tensor& row_loss,
                  const tc_tensor& row_z_loss_part, const tc_exec& exec) {
  const Logit<kCapped> logit(o);
  const Indices targets(a.target);
  const auto x = rows_of<const T>(a.logits);
  const auto dloss = values_of<const float>(a.dloss);
  const auto loss = values_of<float>(row_loss), z_loss_part = values_of<float>(row_z_loss_part);
  const auto row_max = values_of<float>(a.row_max), row_log_sum = values_of<float>(a.row_log_sum);
  const auto dlogits = rows_of<T>(a.dlogits);
  parallel_blocks(x.count, rows_per_block(x.cols), exec.threads, [&](int64_t begin, int64_t end) HWY_ATTR {
    for (int64_t r = begin; r < end; ++r) {
      const RowResult row = forward_row(o, logit, x[r], x.cols, targets[r], dloss.data ? *dloss[r] : 1.0,
                                        dlogits.data ? dlogits[r] : nullptr);
      *loss[r] = static_cast<float>(row.loss);
      if (z_loss_part.data) *z_loss_part[r] = static_cast<float>(row.z_loss_part);
      if (row_max.data) *row_max[r] = row.max;
      if (row_log_sum.data) *row_log_sum[r] = row.log_sum;
    }
  });
}

template <class T, bool kCapped>
void backward_rows(const tcx_cross_entropy_backward_args& a, const Options& o, const tc_exec& exec) {
  const Logit<kCapped> logit(o);
  const Indices targets(a.target);
  const auto x = rows_of<const T>(a.logits);
  const auto dloss = values_of<const float>(a.dloss);
  const auto row_max = values_of<const float>(a.row_max), row_log_sum = values_of<const float>(a.row_log_sum);
  const auto dlogits = rows_of<T>(a.dlogits);
  parallel_blocks(x.count, rows_per_block(x.cols), exec.threads, [&](int64_t begin, int64_t end) HWY_ATTR {
    for (int64_t r = begin; r < end; ++r) {
      if (targets[r] == o.ignore_index) {
        std::fill_n(dlogits[r], x.cols, T{});
        continue;
      }
      const double log_sum = *row_log_sum[r];
      gradient_row(o, logit, x[r], x.cols, targets[r], {*row_max[r], log_sum, std::exp(-log_sum)}, *dloss[r],
                   dlogits[r]);
    }
  });
}

void forward(const tcx_cross_entropy_forward_args& a, const Options& o, const tc_tensor& row_loss,
             const tc_tensor& row_z_loss_part, const tc_exec& exec) {
  with_type(FloatTypes{}, a.logits.dtype, [&]<class T>() {
    with_value<false, true>("softcap", o.softcap > 0,
                            [&]<bool kCapped>() { forward_rows<T, kCapped>(a, o, row_loss, row_z_loss_part, exec); });
  });
}
void backward(const tcx_cross_entropy_backward_args& a, const Options& o, const tc_exec& exec) {
  with_type(FloatTypes{}, a.logits.dtype, [&]<class T>() {
    with_value<false, true>("softcap", o.softcap > 0, [&]<bool kCapped>() { backward_rows<T, kCapped>(a, o, exec); });
  });
}

}  // namespace
}  // namespace tc::ops::cross_entropy::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tc::ops::cross_entropy {
namespace {

// Where rows leave a value that is then summed: `scratch`, or the output itself where nothing is reduced.
tc_tensor row_values(const tcx_cross_entropy_forward_args& a, const tc_tensor& output, float* scratch) {
  if (a.reduction == TC_REDUCTION_NONE || !given(output)) return output;
  const int64_t rows = element_count(a.target);
  return tc_tensor_dense(scratch, TC_DTYPE_F32, 1, &rows);
}

// The rows in order, whoever computed them.
void reduce(const tcx_cross_entropy_forward_args& a, const Options& o, const float* row_values,
            const tc_tensor& output) {
  if (a.reduction == TC_REDUCTION_NONE || !given(output)) return;
  double total = 0;
  for (int64_t r = 0; r < element_count(a.target); ++r) total += row_values[r];
  *static_cast<float*>(output.data) = static_cast<float>(total * o.inverse_normalizer());
}

}  // namespace

HWY_EXPORT(forward);
HWY_EXPORT(backward);
void forward_cpu(const tcx_cross_entropy_forward_args& a, const tc_exec& exec) {
  const Scratch scratch(carve_forward, a, exec);
  const Options o = options_of(a, as_f32(a.class_weight, scratch->class_weight));
  HWY_DYNAMIC_DISPATCH(forward)
  (a, o, row_values(a, a.loss, scratch->loss), row_values(a, a.z_loss_part, scratch->z_loss_part), exec);
  reduce(a, o, scratch->loss, a.loss);
  reduce(a, o, scratch->z_loss_part, a.z_loss_part);
  if (given(a.valid_count)) *static_cast<int64_t*>(a.valid_count.data) = o.valid_count;
}
void backward_cpu(const tcx_cross_entropy_backward_args& a, const tc_exec& exec) {
  const Scratch scratch(carve_backward, a, exec);
  HWY_DYNAMIC_DISPATCH(backward)(a, options_of(a, as_f32(a.class_weight, scratch->class_weight)), exec);
}

}  // namespace tc::ops::cross_entropy
#endif
