// The frequencies of rope_tables: in double and on the host, so that every device turns by the same bits.
#include "traincore/ops/rope_tables/plan.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tc::ops::rope_tables {
namespace {

constexpr double kTurn = 2 * std::numbers::pi;

// The pair, counted in fractions, that turns `turns` times within the original length.
double pair_of_turns(const Args& a, int64_t half, double turns) {
  return static_cast<double>(half) * std::log(static_cast<double>(a.original_max_position) / (turns * kTurn)) /
         std::log(a.base);
}

// How much of factor applies to each pair: 0 keeps the frequency, 1 divides it.
class YarnRamp {
 public:
  YarnRamp(const Args& a, int64_t half)
      : low_(pair_of_turns(a, half, a.beta_fast)), high_(pair_of_turns(a, half, a.beta_slow)) {
    if (a.truncate) low_ = std::floor(low_), high_ = std::ceil(high_);
    low_ = std::max(low_, 0.0);
    high_ = std::min(high_, static_cast<double>(2 * half - 1));
    if (low_ == high_) high_ += 0.001;  // as YaRN's reference code: a step
  }
  double operator()(int64_t pair) const {
    return std::clamp((static_cast<double>(pair) - low_) / (high_ - low_), 0.0, 1.0);
  }

 private:
  double low_, high_;
};

// The same for Llama 3, from the turns within the original length.
double llama3_share(const Args& a, double frequency) {
  const double turns = static_cast<double>(a.original_max_position) * frequency / kTurn;
  return std::clamp((a.high_freq_factor - turns) / (a.high_freq_factor - a.low_freq_factor), 0.0, 1.0);
}

// The frequencies of `base`, each divided by factor to the extent that share(pair, frequency) says.
template <class Share>
void fill_frequencies(double base, double factor, int64_t half, double* inv_freq, Share share) {
  for (int64_t i = 0; i < half; ++i) {
    const double frequency = std::pow(base, -static_cast<double>(i) / static_cast<double>(half));
    const double divided = share(i, frequency);
    inv_freq[i] = frequency * (1 - divided) + frequency / factor * divided;
  }
}

}  // namespace

void scaled_frequencies(const Args& a, int64_t half, double* inv_freq) {
  const auto none = [](int64_t, double) { return 0.0; };
  const auto all = [](int64_t, double) { return 1.0; };
  switch (a.scaling) {
    case TC_ROPE_SCALING_LINEAR:
      return fill_frequencies(a.base, a.factor, half, inv_freq, all);
    case TC_ROPE_SCALING_NTK: {
      const auto d = static_cast<double>(2 * half);
      return fill_frequencies(a.base * std::pow(a.factor, d / (d - 2)), 1, half, inv_freq, none);
    }
    case TC_ROPE_SCALING_YARN: {
      const YarnRamp ramp(a, half);
      return fill_frequencies(a.base, a.factor, half, inv_freq, [&](int64_t i, double) { return ramp(i); });
    }
    case TC_ROPE_SCALING_LLAMA3:
      return fill_frequencies(a.base, a.factor, half, inv_freq,
                              [&](int64_t, double frequency) { return llama3_share(a, frequency); });
    default:
      return fill_frequencies(a.base, 1, half, inv_freq, none);
  }
}

double amplitude_of(const Args& a) {
  if (a.attention_scaling != 0) return a.attention_scaling;
  return a.scaling == TC_ROPE_SCALING_YARN && a.factor > 1 ? 0.1 * std::log(a.factor) + 1 : 1;
}

}  // namespace tc::ops::rope_tables
