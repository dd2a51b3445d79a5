// What a call would do, from its schema alone: nothing is computed and no tensor is paged in.
#pragma once
#include <optional>

#include "traincore/cuda/device.h"
#include "traincore/testing/problem.h"

namespace tc::testing {

struct Explanation {
  tc_status_t status = TC_OK;
  std::string refusal;              // one sentence, where status is not TC_OK
  std::string kernel;               // which would run, and why
  std::string target;               // on which device and SIMD target, and why
  std::optional<size_t> workspace;  // none: only a GPU that is here can say
  double bytes = 0, flops = 0;
};

// A GPU to ask about.
struct Gpu {
  cuda::DeviceInfo info;
  int index = -1;  // on this machine; -1: it is not here
};
// On the CPU where gpu is NULL.
TC_TOOL_API Explanation explain(const Pass& pass, const Case& c, int32_t storage_dtype, const tc_exec& exec,
                                const Gpu* gpu = nullptr);

// The fewest bytes a call can move: each input read once, each output written once, what is updated both; or what the
// pass says instead.
struct Traffic {
  double streamed = 0;  // only read or only written
  double updated = 0;   // read and written
  double total() const { return streamed + updated; }
};
Traffic traffic_of(const Problem& call);

}  // namespace tc::testing
