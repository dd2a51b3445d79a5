#include "traincore/kit/environment.h"

#include <strings.h>

#include <cstdlib>
#include <initializer_list>

namespace tc::kit {
namespace {

bool is_one_of(const char* variable, std::initializer_list<const char*> words) {
  const char* const value = std::getenv(variable);
  for (const char* word : words)
    if (value && strcasecmp(value, word) == 0) return true;
  return false;
}

}  // namespace

bool environment_forces_cpu() {
  const auto off = {"0", "false", "no", "off"};
  return is_one_of("TC_DISABLE_CUDA_GEMM", {"1", "true", "yes", "on"}) || is_one_of("TC_CUDA_GEMM", off) ||
         is_one_of("TC_USE_CUDA_GEMM", off);
}

}  // namespace tc::kit
