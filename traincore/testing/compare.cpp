#include "traincore/testing/compare.h"

#include <algorithm>
#include <cmath>

#include "traincore/core/fail.h"
#include "traincore/testing/values.h"

namespace tc::testing {
namespace {

bool same_nonfinite(double a, double b) { return std::isnan(a) ? std::isnan(b) : a == b; }

}  // namespace

Comparison compare(const std::vector<double>& got, const std::vector<double>& exact, const std::vector<double>& honest,
                   int32_t dtype, Terms terms, bool may_be_nonfinite, bool may_be_zero) {
  Comparison result;
  if (got.size() != exact.size() || honest.size() != exact.size()) {
    result.failure = fmt::format("{} values, but the reference has {}", got.size(), exact.size());
    return result;
  }
  double honest_error = 0, largest = 0;
  size_t worst = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    const double want = rounded(exact[i], dtype);  // Inf where the true value is beyond the dtype
    if (!std::isfinite(want) || !std::isfinite(got[i])) {
      if (may_be_nonfinite && same_nonfinite(got[i], want)) continue;
      result.failure = fmt::format("element {} is {}, the reference is {}", i, got[i], exact[i]);
      return result;
    }
    largest = std::max(largest, std::abs(exact[i]));
    const double of_honest = std::abs(rounded(honest[i], dtype) - exact[i]);
    if (std::isfinite(of_honest)) honest_error = std::max(honest_error, of_honest);
    const double error = std::abs(got[i] - exact[i]);
    if (error > result.error) result.error = error, worst = i;
  }
  if (!exact.empty() && largest == 0 && !may_be_zero) {
    result.failure = "the reference is all zero (or not finite), so this case shows nothing";
    return result;
  }
  if (is_float(dtype)) {
    const double magnitude = terms.magnitude > 0 ? terms.magnitude : largest;
    const double floor = ulp(dtype, largest) + (4 + std::sqrt(terms.count) / 8) * 0x1p-24 * magnitude;
    result.budget = std::max(2 * honest_error, largest > 0 || terms.magnitude > 0 ? floor : 0.0);
  }
  if (result.error > result.budget)
    result.failure = fmt::format("element {} is {:.9g}, the reference is {:.9g}: off by {:.3g}, the budget is {:.3g}",
                                 worst, got[worst], exact[worst], result.error, result.budget);
  return result;
}

}  // namespace tc::testing
