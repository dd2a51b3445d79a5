// What the device is, and the GPUs that a program may choose between.
#include <cstring>
#include <fstream>
#include <string>
#include <thread>

#include "traincore/core/fail.h"
#include "traincore/kit/context.h"
#include "traincore/kit/gpu.h"

namespace tc::kit {
namespace {

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(std::min(line.find(": ") + 2, line.size()));
  return "CPU";
}

void set_name(tc_device_info& info, const std::string& name) {
  name.copy(info.name, sizeof info.name - 1);  // the rest is 0
}

tc_device_info describe_cpu() {
  tc_device_info info{};
  set_name(info, cpu_name());
  info.max_buffer_bytes = host_memory_bytes();
  info.recommended_working_set_bytes = info.max_buffer_bytes / 4 * 3;
  info.max_threads_per_threadgroup = std::thread::hardware_concurrency();
  info.thread_execution_width = 1;
  info.unified_memory = true;
  return info;
}

tc_device_info describe_gpu(int device) {
  const tc_cuda_device_info gpu = gpu::describe(device);
  tc_device_info info{};
  set_name(info, gpu.device_name);
  info.family = gpu.major * 10 + gpu.minor;
  info.max_buffer_bytes = gpu.global_memory_bytes;
  info.recommended_working_set_bytes = gpu.global_memory_bytes / 4 * 3;
  info.max_threadgroup_memory = static_cast<uint32_t>(gpu.shared_memory_per_block);
  info.max_threads_per_threadgroup = gpu.max_threads_per_block;
  info.thread_execution_width = gpu.warp_size;
  info.unified_memory = gpu.unified_memory;
  return info;
}

void require_device(std::string_view call, int index) {
  if (gpu::count() == 0) fail(TC_ERR_NO_DEVICE, "{}: there is no GPU, or this library was built without CUDA", call);
  require(index >= 0 && index < gpu::count(), "{}: index is {}, but must be in [0, {})", call, index, gpu::count());
}

}  // namespace
}  // namespace tc::kit

using namespace tc::kit;  // NOLINT(google-build-using-namespace): the C face of this namespace
using tc::guard;
using tc::require;

tc_status_t tc_device_info_get(tc_context* ctx, tc_device_info* info) {
  return guard([&] {
    const auto context = context_of("tc_device_info_get", ctx);
    require(info != nullptr, "tc_device_info_get: info is NULL");
    *info = gpu::count() > 0 ? describe_gpu(context->device) : describe_cpu();
  });
}

tc_status_t tc_cuda_init(tc_context* ctx) {
  return guard([&] {
    context_of("tc_cuda_init", ctx);
    require_device("tc_cuda_init", 0);
  });
}

int tc_cuda_device_count(void) { return gpu::count(); }

tc_status_t tc_cuda_device_at(int index, tc_cuda_device_info* info) {
  return guard([&] {
    require(info != nullptr, "tc_cuda_device_at: info is NULL");
    require_device("tc_cuda_device_at", index);
    *info = gpu::describe(index);
  });
}

tc_status_t tc_cuda_select_device(tc_context* ctx, int index) {
  return guard([&] {
    const auto context = context_of("tc_cuda_select_device", ctx);
    require_device("tc_cuda_select_device", index);
    context->device = index;
  });
}

const char* tc_cuda_last_kernel_name(void) { return gpu::last_kernel_name(); }
