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

// The gradient of one row, dlogits[i] = (exp(u_i - m) of_exp - uniform - pull [i = target]) du_i/dx_i / logit_scale.
template <bool kCapped>
struct LossGradient {
  Logit<kCapped> logit;
  float shift, of_exp, uniform, pull;

  // What arrives at this row's loss is `dloss`.
  LossGradient(const LossOptions& o, const Logit<kCapped>& logit_, int64_t classes, int64_t target,
               const LogSumExp& lse, double dloss)
      : logit(logit_), shift(lse.max) {
    const double scale = dloss * o.inverse_normalizer() * o.logit_scale, s = o.label_smoothing;
    const double kept = o.weight(target) * (1 - s), of_p = kept + s + 2 * o.z_loss * lse.value();
    of_exp = static_cast<float>(scale * of_p * lse.inverse_sum);
    uniform = static_cast<float>(scale * s / static_cast<double>(classes));
    pull = static_cast<float>(scale * kept);
  }
  HWY_INLINE V elsewhere(V u, V e) const { return logit.times_slope(hn::MulSub(e, set(of_exp), set(uniform)), u); }
  HWY_INLINE float at_target(float x) const {
    const V u = logit(set(x)), e = exp_negative(hn::Sub(u, set(shift)));
    const V gradient = hn::Sub(hn::MulSub(e, set(of_exp), set(uniform)), set(pull));
    return hn::GetLane(logit.times_slope(gradient, u));
  }
};

// dlogits may be x. `exponentials(f)` writes dlogits[i] = f(i, exp(u_i - m)).
template <class T, bool kCapped, class F>
HWY_INLINE void write_loss_gradient(const LossGradient<kCapped>& gradient, const T* x, int64_t target, T* dlogits,
                                    F&& exponentials) {
  const float at_target = gradient.at_target(float(x[target]));  // first: dlogits may take the logits' place
  exponentials([=](auto at, V e) HWY_ATTR { return gradient.elsewhere(gradient.logit(at.load(x)), e); });
  dlogits[target] = T(at_target);
}

// What a row leaves behind; zeros for an ignored one.
struct LossRow {
  double loss = 0, z_loss_part = 0;
  float max = 0, log_sum = 0;
};

// Where a forward's rows go: the loss, and what else is wanted of it.
class LossOutputs {
 public:
  template <class A>
  LossOutputs(const tc_tensor& loss, const tc_tensor& z_loss_part, const A& a)
      : loss_(values_of<float>(loss)),
        z_loss_part_(values_of<float>(z_loss_part)),
        row_max_(values_of<float>(a.row_max)),
        row_log_sum_(values_of<float>(a.row_log_sum)) {}
  void write(int64_t r, const LossRow& row) const {
    *loss_[r] = static_cast<float>(row.loss);
    if (z_loss_part_.data) *z_loss_part_[r] = static_cast<float>(row.z_loss_part);
    if (row_max_.data) *row_max_[r] = row.max;
    if (row_log_sum_.data) *row_log_sum_[r] = row.log_sum;
  }

 private:
  Rows<float> loss_, z_loss_part_, row_max_, row_log_sum_;
};

// What a forward saved of a valid row.
class SavedLogSumExp {
 public:
  template <class A>
  explicit SavedLogSumExp(const A& a)
      : row_max_(values_of<const float>(a.row_max)), row_log_sum_(values_of<const float>(a.row_log_sum)) {}
  LogSumExp operator[](int64_t r) const {
    const double log_sum = *row_log_sum_[r];
    return {*row_max_[r], log_sum, std::exp(-log_sum)};
  }

 private:
  Rows<const float> row_max_, row_log_sum_;
};

// Rows of cross entropy with one set of options, computed on one thread.
template <class T, bool kCapped>
class LossRows {
 public:
  // Gradients are written past the caches if `streamed`.
  LossRows(const LossOptions& options, int64_t classes, bool gradients, bool streamed)
      : o_(options), logit_(options), classes_(classes), streamed_(streamed), kept_(gradients ? classes : 0) {}

  // dlogits is NULL where it is not wanted, and may be x. `dloss` is what arrives at this row's loss.
  LossRow forward(const T* x, int64_t target, double dloss, T* dlogits) const {
    if (target == o_.ignore_index) {
      if (dlogits) std::fill_n(dlogits, classes_, T{});
      return {};
    }
    const double s = o_.label_smoothing;
    const SoftmaxStats stats =
        s > 0 ? softmax_stats<true>(x, classes_, logit_, kept_) : softmax_stats<false>(x, classes_, logit_, kept_);
    // A row of -inf alone has no distribution.
    const double sum = stats.sum > 0 ? stats.sum : std::numeric_limits<double>::quiet_NaN();
    const LogSumExp lse{stats.max, std::log(sum), 1 / sum};
    const double u_target = logit_(float(x[target]));
    const double z_loss_part = o_.z_loss * lse.value() * lse.value();
    double loss = o_.weight(target) * (1 - s) * ((lse.max - u_target) + lse.log_sum) + z_loss_part;
    if (s > 0) loss += s * (lse.log_sum - stats.shifted / static_cast<double>(classes_));
    if (dlogits)
      write_loss_gradient(LossGradient<kCapped>(o_, logit_, classes_, target, lse, dloss), x, target, dlogits,
                          [&](auto f)
                              HWY_ATTR { map_exponentials(stats, kept_, x, classes_, logit_, dlogits, streamed_, f); });
    return {loss, z_loss_part, lse.max, static_cast<float>(lse.log_sum)};
  }

  // From what forward saved of the row.
  void backward(const T* x, int64_t target, const LogSumExp& lse, double dloss, T* dlogits) const {
    if (target == o_.ignore_index) {
      std::fill_n(dlogits, classes_, T{});
      return;
    }
    const LossGradient<kCapped> gradient(o_, logit_, classes_, target, lse, dloss);
    write_loss_gradient(gradient, x, target, dlogits, [&](auto f) HWY_ATTR {
      map_row(0, classes_, dlogits, streamed_, [=, logit = logit_](auto at) HWY_ATTR HWY_FLATTEN {
        return f(at, exp_negative(hn::Sub(logit(at.load(x)), set(gradient.shift))));
      });
    });
  }

 private:
  const LossOptions& o_;
  Logit<kCapped> logit_;
  int64_t classes_;
  bool streamed_;
  Exponentials kept_;
};

}  // namespace tc::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // TRAINCORE_CPU_LOSS_INL_H_
