// Device code: what the losses over classes share: options, targets, the mean's normalizer, a row's gradient.
#pragma once
#include "traincore/cuda/indices.cuh"
#include "traincore/cuda/math.cuh"
#include "traincore/cuda/vec.cuh"

namespace tc::cuda {

// What the valid rows come to: a part per run of rows, summed where it is needed.
struct TargetTotals {
  double weight;
  int64_t count;
};
inline constexpr int kTargetParts = 32;  // as many as a warp has lanes

struct LossOptions {
  AnyIndices target;
  AnyVector class_weight;  // no data: every weight is 1
  const float* normalizer;
  const TargetTotals* totals;  // kTargetParts of them, or NULL
  uint32_t* errors;
  int64_t ignore_index;
  int32_t classes;
  bool is_mean;
  float label_smoothing, smoothing_share;  // of a row; of each of its classes
  float z_loss, logit_scale, softcap;

  __device__ __forceinline__ bool is_class(int64_t t) const { return t >= 0 && t < classes; }
  __device__ __forceinline__ float weight(int64_t t) const {
    if (!is_class(t)) return __builtin_nanf("");
    return class_weight.data ? class_weight.load<1>(int(t))[0] : 1.0f;
  }
};

// The options of a call's arguments; totals may be NULL where no mean over valid rows is taken.
template <class A>
LossOptions loss_options(const A& a, int64_t classes, const TargetTotals* totals, const tc_exec& exec) {
  return {AnyIndices(a.target),
          {a.class_weight.data, a.class_weight.dtype},
          static_cast<const float*>(a.normalizer.data),
          totals,
          exec.device_errors,
          a.ignore_index,
          static_cast<int>(classes),
          a.reduction == TC_REDUCTION_MEAN,
          static_cast<float>(a.label_smoothing),
          static_cast<float>(a.label_smoothing / static_cast<double>(classes)),
          static_cast<float>(a.z_loss),
          static_cast<float>(a.logit_scale),
          static_cast<float>(a.softcap)};
}
template <class A>
LossOptions loss_options(const A& a, const TargetTotals* totals, const tc_exec& exec) {
  return loss_options(a, a.logits.shape[a.logits.rank - 1], totals, exec);
}
// Whether a mean divides by the totals.
template <class A>
bool counts_targets(const A& a) {
  return a.reduction == TC_REDUCTION_MEAN && !given(a.normalizer);
}

// Called by whole warps.
__device__ __forceinline__ TargetTotals total_of(const TargetTotals* parts) {
  TargetTotals all = parts[threadIdx.x % kTargetParts];
#pragma unroll
  for (int o = kTargetParts / 2; o > 0; o /= 2) {
    all.weight += __shfl_xor_sync(0xffffffffu, all.weight, o);
    all.count += __shfl_xor_sync(0xffffffffu, all.count, o);
  }
  return all;
}
// 1 / normalizer, or 0 where there is nothing to divide by; 1 where no mean is taken. Called by whole warps.
__device__ __forceinline__ double inverse_normalizer(const LossOptions& o) {
  if (!o.is_mean) return 1;
  const double normalizer = o.normalizer ? double(*o.normalizer) : total_of(o.totals).weight;
  return normalizer == 0 ? 0 : 1 / normalizer;
}

// u = gain value(x) = softcap tanh(logit_scale x / softcap), or logit_scale x; as exact as T is.
template <class T, bool kIsCapped>
class Logit {
 public:
  static constexpr bool kIsBounded = kIsCapped;
  float gain;
  __device__ __forceinline__ explicit Logit(const LossOptions& o)
      : gain(kIsCapped ? o.softcap : o.logit_scale), inner_(kIsCapped ? o.logit_scale / o.softcap : 1) {}
  __device__ __forceinline__ float value(float x) const { return kIsCapped ? tanh_for<T>(inner_ * x) : x; }
  __device__ __forceinline__ float operator()(float x) const { return gain * value(x); }
  // y du/dx / logit_scale.
  __device__ __forceinline__ float times_slope(float y, float value) const {
    return kIsCapped ? y * fmaf(-value, value, 1.0f) : y;
  }

 private:
  float inner_;
};

// e^(gain value - max).
template <class T>
struct ExpOfLogit {
  float gain, max;
  __device__ __forceinline__ float operator()(float value) const { return exp_for<T>(fmaf(value, gain, -max)); }
};

// dlogits of one row as a function of its logits.
template <class T, bool kIsCapped, class Exp>
class LossGradient {
 public:
  // `inverse_sum` is over the row's sum of exp(); `dloss` is over the normalizer already.
  __device__ __forceinline__ LossGradient(const LossOptions& o, const Logit<T, kIsCapped>& logit, const Exp& exp,
                                          float weight, float max, float log_sum, float inverse_sum, float dloss)
      : logit_(logit), exp_(exp) {
    const float scale = dloss * o.logit_scale, kept = weight * (1 - o.label_smoothing);
    of_exp_ = scale * (kept + o.label_smoothing + 2 * o.z_loss * (max + log_sum)) * inverse_sum;
    uniform_ = scale * o.smoothing_share;
    at_target_ = scale * kept;
  }
  // No element is larger, if `inverse_sum` was 1: no probability is.
  __device__ __forceinline__ float bound() const { return fabsf(of_exp_) + fabsf(uniform_) + fabsf(at_target_); }
  __device__ __forceinline__ float operator()(float x) const { return of_value(logit_.value(x)); }
  __device__ __forceinline__ float of_target(float x) const {
    const float v = logit_.value(x);
    return logit_.times_slope(of_softmax(v) - at_target_, v);
  }
  __device__ __forceinline__ float of_value(float v) const { return logit_.times_slope(of_softmax(v), v); }
  // Of an element whose exp(value) is `e`, as long as the logits are not capped.
  __device__ __forceinline__ float of_exp(float e) const {
    static_assert(!kIsCapped);
    return fmaf(e, of_exp_, -uniform_);
  }
  // The same gradient, of exponentials that are yet to be multiplied by `factor`.
  __device__ __forceinline__ LossGradient of_exps_times(float factor) const {
    LossGradient scaled = *this;
    scaled.of_exp_ *= factor;
    return scaled;
  }

 private:
  __device__ __forceinline__ float of_softmax(float v) const { return fmaf(exp_(v), of_exp_, -uniform_); }
  Logit<T, kIsCapped> logit_;
  Exp exp_;
  float of_exp_, uniform_, at_target_;
};

struct RowLoss {
  float loss, z_loss_part, max, log_sum;
};
// Of a row whose target counts. shifted: the sum of u - max, for label smoothing alone. max - u, log_sum and -shifted are
// not negative but for their own rounding, so that f32 is enough; where max + log_sum cancels, it is exact.
template <bool kIsCapped>
__device__ __forceinline__ RowLoss row_loss(const LossOptions& o, float weight, float x_target, float max,
                                            float log_sum, float shifted) {
  const float lse = max + log_sum, z_loss_part = o.z_loss * lse * lse;
  const float below = max - Logit<float, kIsCapped>(o)(x_target);
  float loss = fmaf(weight * (1 - o.label_smoothing), below + log_sum, z_loss_part);
  if (o.label_smoothing > 0) loss += fmaf(o.label_smoothing, log_sum, -o.smoothing_share * shifted);
  return {loss, z_loss_part, max, log_sum};
}

// Where rows leave that; no data: not wanted.
struct RowOutputs {
  Rows<float> loss, z_loss_part, row_max, row_log_sum;
  __device__ __forceinline__ void store(int64_t r, const RowLoss& row) const {
    if (loss.data) *loss[r] = row.loss;
    if (z_loss_part.data) *z_loss_part[r] = row.z_loss_part;
    if (row_max.data) *row_max[r] = row.max;
    if (row_log_sum.data) *row_log_sum[r] = row.log_sum;
  }
};

// Counts the valid rows: kTargetParts parts. A target that is no class is a valid row without weight.
void total_targets(const LossOptions& options, TargetTotals* parts, const tc_exec& exec);

// rows = the numbers of the valid rows, in order, and *count = how many there are; options.totals are there already.
void list_valid(const LossOptions& options, int64_t* rows, int64_t* count, const tc_exec& exec);

// One value per row that is reduced to one; out NULL: not wanted.
struct LossSum {
  const float* rows;
  float* out;
};
// out = sum of rows / normalizer, added in an order fixed by their number alone; valid_count from the totals, if given.
void reduce_rows(const LossOptions& options, LossSum loss, LossSum z_loss_part, int64_t* valid_count,
                 const tc_exec& exec);

}  // namespace tc::cuda
