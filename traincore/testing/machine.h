// The machine that the tool runs on, for env, bench and explain.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "traincore/core/error.h"

namespace tc::testing {

struct Machine {
  std::string cpu;                         // model name, "unknown" where the system does not say
  int processors = 1;                      // that this process may run on
  int threads = 1;                         // that a call takes when exec.threads is 0
  int64_t memory_bytes = 0;                // physical
  int64_t cache_bytes = 0;                 // last-level cache
  std::string simd;                        // the target that kernels of this build run on here: "AVX2"
  std::vector<std::string> simd_compiled;  // every target in this build, best first
};

TC_TOOL_API const Machine& machine();
// Physical memory that is free now.
int64_t free_memory_bytes();

}  // namespace tc::testing
