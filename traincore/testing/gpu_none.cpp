#ifndef TC_WITH_CUDA  // with it: gpu.cu
#include "traincore/core/fail.h"
#include "traincore/testing/check.h"
#include "traincore/testing/gpu.h"
#include "traincore/testing/gpu_bench.h"

namespace tc::testing {
namespace {

tc_status_t none() {
  return guard([] { fail(TC_ERR_NO_DEVICE, "this build has no CUDA"); });
}

}  // namespace

int gpu_count() { return 0; }
std::string gpu_name(int) { return {}; }
const cuda::DeviceInfo& gpu_info(int) { throw Error(TC_ERR_NO_DEVICE, "this build has no CUDA"); }
void use_gpu(int) {}
int gpu_in_use() { return 0; }
tc_status_t run_on_gpu(const Pass&, Problem&, const tc_exec&) { return none(); }
tc_status_t run_captured(const Pass&, Problem&, const tc_exec&, bool) { return none(); }
void check_large(const OpCases&, const CheckOptions&, const Report&) {
  throw Error(TC_ERR_NO_DEVICE, "this build has no CUDA");
}
double gpu_ceiling(int, int) { return 0; }
void time_on_gpu(const OpCases&, const PassCases&, const Case&, int32_t, double, Measurement&) {
  throw Error(TC_ERR_NO_DEVICE, "this build has no CUDA");
}

}  // namespace tc::testing
#endif
