// The definition of rope_tables: plain loops, shares nothing with the kernels. Angles in double are part of the
// definition, so Real (double, the truth, or float, the honest formula of the error budget) is only how tables are
// kept.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "traincore/core/view.h"
#include "traincore/ops/rope_tables/rope_tables.h"

namespace tc::ops::rope_tables {

using Args = tcx_rope_tables_args;

namespace {

double yarn_frequency(const Args& a, int64_t half, int64_t i, double frequency) {
  const double dim = 2.0 * static_cast<double>(half), length = static_cast<double>(a.original_max_position);
  const auto correction = [&](double rotations) {
    return dim * std::log(length / (rotations * 2 * std::numbers::pi)) / (2 * std::log(a.base));
  };
  double low = correction(a.beta_fast), high = correction(a.beta_slow);
  if (a.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1);
  if (low == high) high += 0.001;
  const double ramp = std::min(std::max((static_cast<double>(i) - low) / (high - low), 0.0), 1.0);
  return frequency / a.factor * ramp + frequency * (1 - ramp);
}

double llama3_frequency(const Args& a, double frequency) {
  const double length = static_cast<double>(a.original_max_position);
  const double wavelength = 2 * std::numbers::pi / frequency;
  if (wavelength > length / a.low_freq_factor) return frequency / a.factor;
  if (wavelength < length / a.high_freq_factor) return frequency;
  const double smooth = (length / wavelength - a.low_freq_factor) / (a.high_freq_factor - a.low_freq_factor);
  return (1 - smooth) * frequency / a.factor + smooth * frequency;
}

double frequency_of(const Args& a, int64_t half, int64_t i) {
  const double exponent = -static_cast<double>(i) / static_cast<double>(half), plain = std::pow(a.base, exponent);
  switch (a.scaling) {
    case TC_ROPE_SCALING_LINEAR:
      return plain / a.factor;
    case TC_ROPE_SCALING_NTK:  // base factor^(half / (half - 1)), raised to -i / half
      return i == 0 ? 1 : plain * std::pow(a.factor, -static_cast<double>(i) / static_cast<double>(half - 1));
    case TC_ROPE_SCALING_YARN:
      return yarn_frequency(a, half, i, plain);
    case TC_ROPE_SCALING_LLAMA3:
      return llama3_frequency(a, plain);
    default:
      return plain;
  }
}

double amplitude_of(const Args& a) {
  if (a.attention_scaling != 0) return a.attention_scaling;
  return a.scaling == TC_ROPE_SCALING_YARN && a.factor > 1 ? 0.1 * std::log(a.factor) + 1 : 1;
}

}  // namespace

template <class Real>
void oracle(const Args& a) {
  const auto cos = rows_of<Real>(a.cos), sin = rows_of<Real>(a.sin), inv_freq = rows_of<Real>(a.inv_freq);
  const Indices positions(a.positions);
  const auto& table = cos.data ? cos : sin;
  const double amplitude = amplitude_of(a);
  for (int64_t r = 0; table.data && r < table.count; ++r)
    for (int64_t i = 0; i < table.cols; ++i) {
      const auto position = static_cast<double>(given(a.positions) ? positions[r] : r);
      const double angle = position * frequency_of(a, table.cols, i);
      if (cos.data) cos[r][i] = static_cast<Real>(amplitude * std::cos(angle));
      if (sin.data) sin[r][i] = static_cast<Real>(amplitude * std::sin(angle));
    }
  for (int64_t i = 0; inv_freq.data && i < inv_freq.cols; ++i)
    inv_freq[0][i] = static_cast<Real>(frequency_of(a, inv_freq.cols, i));
}

template void oracle<double>(const Args&);
template void oracle<float>(const Args&);

}  // namespace tc::ops::rope_tables
