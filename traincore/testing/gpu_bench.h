// Timing a case on a GPU, and what the GPU's memory allows.
#pragma once
#include "traincore/testing/bench.h"

namespace tc::testing {

// bytes/s, read plus written, of a plain full-grid kernel that reads so many arrays and writes so many: the best of
// several runs over 2 GiB of random data. Measured at first use.
TC_TOOL_API double gpu_ceiling(int reads, int writes);

// Every call of the case on tensors of its own, together far more than the L2 holds, captured into one graph; short calls
// are 16 or more, on the sets in turn, in a graph that starts right behind another. Times of a call, from device events.
// Throws where the call is refused.
void time_on_gpu(const OpCases& op, const PassCases& cases, const Case& c, int32_t dtype, double seconds,
                 Measurement& m);

}  // namespace tc::testing
