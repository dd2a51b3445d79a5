// A case made into calls that can be timed.
#pragma once
#include <memory>
#include <vector>

#include "traincore/testing/check.h"
#include "traincore/testing/explain.h"

namespace tc::testing {

// The same case on as many sets of tensors as it takes for the caches not to hold one from one run to the next. Inputs
// are random; what a backward reads of its forward comes from the forward kernel. Throws where the call is refused.
class Calls {
 public:
  Calls(const OpCases& op, const PassCases& cases, const Case& c, int32_t dtype);
  void run(int i, const tc_exec& exec) const;
  Traffic traffic() const { return traffic_of(*problems_[0]); }
  double flops() const;             // 0 where the pass does not say
  Evaluations evaluations() const;  // likewise

 private:
  const Pass& pass_;
  std::vector<std::unique_ptr<Problem>> problems_;
};

}  // namespace tc::testing
