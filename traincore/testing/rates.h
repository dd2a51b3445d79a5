// What this machine can do: the floor that bench holds every case against.
#pragma once
#include <functional>
#include <string>

#include "traincore/core/error.h"

namespace tc::testing {

struct Rates {
  double copy = 0;           // bytes/s, read plus written, by the fastest way of copying
  std::string copied_by;     // which that was
  double update = 0;         // bytes/s, read plus written, where every element is replaced by a function of itself
  double gemm = 0;           // flop/s of a 2048 x 2048 x 2048 product in f32; 0: this build has no gemm
  double exp = 0, tanh = 0;  // evaluations/s of cpu/math-inl.h, from and to the first-level cache
};

// The best of many runs, over arrays far beyond the last-level cache; a few seconds. threads: 0 = all.
TC_TOOL_API Rates measure_rates(int threads, const std::function<void(int64_t done, int64_t total)>& progress);

}  // namespace tc::testing
