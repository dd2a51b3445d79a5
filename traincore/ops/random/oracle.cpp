// The definition of random. Real is double (the truth) or float; every float tensor of a call has that type.
#include <cmath>
#include <numbers>

#include "traincore/core/random.h"
#include "traincore/core/view.h"
#include "traincore/ops/random/random.h"

namespace tc::ops::random {
namespace {

// The probability that a standard normal is above z.
template <class Real>
Real tail_of(Real z) {
  return Real(0.5) * std::erfc(z / std::numbers::sqrt2_v<Real>);
}

// The z with tail_of(z) = tail <= 1/2: Newton's rule on the logarithm, from an upper bound, so that it falls to the
// root.
template <class Real>
Real quantile_of(Real tail) {
  Real z = std::sqrt(Real(-2) * std::log(Real(2) * tail));
  for (int i = 0; i < 8; ++i) {
    const Real density = std::exp(Real(-0.5) * z * z) / std::sqrt(Real(2) * std::numbers::pi_v<Real>);
    z += std::log(tail_of(z) / tail) * tail_of(z) / density;
  }
  return z;
}

template <class Real>
Real normal(uint32_t word, const tcx_random_args& a) {
  Real tail = (Real(word & 0x7fffffffu) + Real(0.5)) * Real(0x1p-32);
  if (a.truncate > 0) {
    const Real beyond = tail_of(Real(a.truncate));
    tail = beyond + (Real(1) - Real(2) * beyond) * tail;
  }
  const Real z = quantile_of(tail);
  return Real(a.mean) + Real(a.std) * (word >> 31 ? -z : z);
}

}  // namespace

template <class Real>
void oracle(const tcx_random_args& a) {
  const auto y = values_of<Real>(a.y);
  const Philox philox{static_cast<uint64_t>(a.seed), static_cast<uint64_t>(a.stream)};
  for (int64_t i = 0; i < y.count; ++i) {
    const uint32_t word = philox.word(static_cast<uint64_t>(a.first_index + i));
    const Real u = uniform01(word);
    if (a.distribution == TC_RANDOM_UNIFORM)
      *y[i] = Real(a.low) + (Real(a.high) - Real(a.low)) * u;
    else if (a.distribution == TC_RANDOM_NORMAL)
      *y[i] = normal<Real>(word, a);
    else
      *y[i] = u < Real(a.probability) ? Real(1) : Real(0);
  }
}

template void oracle<double>(const tcx_random_args&);
template void oracle<float>(const tcx_random_args&);

}  // namespace tc::ops::random
