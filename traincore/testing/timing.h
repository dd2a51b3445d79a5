// Timing something that can be repeated.
#pragma once
#include <functional>

namespace tc::testing {

struct Timing {
  double median = 0;  // seconds
  double best = 0;    // seconds: what a floor is made of
  double spread = 0;  // interquartile range / median
  int runs = 0;
};

// body(0), untimed, then body(1), body(2), ... until `seconds` have passed, at least three times.
Timing measure(double seconds, const std::function<void(int run)>& body);

}  // namespace tc::testing
