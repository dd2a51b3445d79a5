// How fast an op's kernels are on its bench cases, held against what this machine can do.
#pragma once
#include "traincore/testing/cases.h"
#include "traincore/testing/rates.h"
#include "traincore/testing/timing.h"

namespace tc::testing {

struct BenchOptions {
  std::vector<int32_t> dtypes = {TC_DTYPE_F32, TC_DTYPE_BF16};
  int32_t device = TC_CPU;
  int threads = 0;     // 0: all
  double seconds = 1;  // of timed runs a case
  std::string only;    // cases whose "pass dtype case" contains this; empty: all
  std::function<void(int64_t done, int64_t total)> progress;
};

enum class Bound { memory, product, functions };

// One case of one pass. The floor is the time that the machine's rates allow: the largest of bytes / copy rate (the
// update rate for what is read and written back), flops / GEMM rate and evaluations / our own rates of exp and tanh.
struct Measurement {
  std::string op, pass, dtype, case_text;
  Timing time;
  double bytes = 0, flops = 0, evaluations = 0;
  double floor = 0;  // seconds
  Bound bound = Bound::memory;
  std::string refusal;  // not empty: the call was refused, and there are no figures
  double of_floor() const { return floor / time.median; }
};

TC_TOOL_API void bench(const OpCases& op, const BenchOptions& options, const Rates& rates,
                       const std::function<void(const Measurement&)>& report);

}  // namespace tc::testing
