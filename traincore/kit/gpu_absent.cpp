#ifndef TC_WITH_CUDA  // with it: gpu_cuda.cpp
// The answers of a build without CUDA: there is no GPU, so nothing but count() is ever asked for more than a refusal.
#include "traincore/core/fail.h"
#include "traincore/kit/gpu.h"

namespace tc::kit::gpu {
namespace {

[[noreturn]] void refuse(int device) {
  fail(TC_ERR_NO_DEVICE, "there is no GPU {}: this library was built without CUDA", device);
}

}  // namespace

int count() noexcept { return 0; }
tc_cuda_device_info describe(int device) { refuse(device); }
void* allocate(int device, size_t) { refuse(device); }
void release(void*) noexcept {}
tc_exec exec(int device, size_t) { refuse(device); }
void wait(int device) { refuse(device); }
const char* last_kernel_name() noexcept { return "none"; }

}  // namespace tc::kit::gpu
#endif
