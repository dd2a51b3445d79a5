// The error budget: is what a kernel gave as close to the truth as the honest formula, or as rounding allows?
#pragma once
#include <string>
#include <vector>

#include "traincore/testing/cases.h"

namespace tc::testing {

struct Comparison {
  double error = 0, budget = 0;  // largest |got - exact|, and what it may be
  std::string failure;           // empty: within budget
};

// Pass: max|got - exact| <= max(2 H, F), H the honest formula's largest error after one rounding to dtype, and
// F = ulp(dtype, max|exact|) + (4 + sqrt(n)/8) 2^-24 sum|terms|. Integers must be equal. A NaN or Inf on either side
// fails unless `may_be_nonfinite`, and then both must be the same; an all-zero reference fails unless `may_be_zero`.
Comparison compare(const std::vector<double>& got, const std::vector<double>& exact, const std::vector<double>& honest,
                   int32_t dtype, Terms terms, bool may_be_nonfinite, bool may_be_zero);

}  // namespace tc::testing
