#include "traincore/testing/timing.h"

#include <algorithm>
#include <chrono>
#include <vector>

namespace tc::testing {

Timing measure(double seconds, const std::function<void(int run)>& body) {
  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); };
  constexpr size_t kFewest = 3, kMost = 10000;
  body(0);
  std::vector<double> times;
  const auto begin = Clock::now();
  while (times.size() < kFewest || (since(begin) < seconds && times.size() < kMost)) {
    const auto start = Clock::now();
    body(static_cast<int>(times.size()) + 1);
    times.push_back(since(start));
  }
  std::sort(times.begin(), times.end());
  const auto quantile = [&](double q) { return times[static_cast<size_t>(q * static_cast<double>(times.size() - 1))]; };
  return {quantile(0.5), times[0], (quantile(0.75) - quantile(0.25)) / quantile(0.5), static_cast<int>(times.size())};
}

}  // namespace tc::testing
