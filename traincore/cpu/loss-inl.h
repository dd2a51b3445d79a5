// One row of cross entropy and of its gradient, for the SIMD target this file is being compiled for: what the losses
// over classes share. The formulas are those of traincore/ops/cross_entropy/cross_entropy.h.
#if defined(TRAINCORE_CPU_LOSS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRAINCORE_CPU_LOSS_INL_H_
#undef TRAINCORE_CPU_LOSS_INL_H_
#else
#define TRAINCORE_CPU_LOSS_INL_H_
#endif

#include "traincore/cpu/loss.h"
#include "traincore/cpu/softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tc::HWY_NAMESPACE {

// u = softcap tanh(logit_scale x / softcap), or logit_scale x.
template <bool kCapped>
class Logit {
 public:
  explicit Logit(const LossOptions& o)
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

// dlogits may be x. `dloss` is what arrives at this row's loss.
template <class T, bool kCapped>
void loss_gradient_row(const LossOptions& o, const Logit<kCapped>& logit, const T* x, int64_t classes, int64_t target,
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
struct LossRow {
  double loss = 0, z_loss_part = 0;
  float max = 0, log_sum = 0;
};

// dlogits is NULL where it is not wanted.
template <class T, bool kCapped>
LossRow loss_row(const LossOptions& o, const Logit<kCapped>& logit, const T* x, int64_t classes, int64_t target,
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
  if (dlogits) loss_gradient_row(o, logit, x, classes, target, lse, dloss, dlogits);
  return {loss, z_loss_part, lse.max, static_cast<float>(lse.log_sum)};
}

}  // namespace tc::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // TRAINCORE_CPU_LOSS_INL_H_
