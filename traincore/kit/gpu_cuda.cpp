#ifdef TC_WITH_CUDA  // without it: gpu_absent.cpp
// Managed memory, and one stream with scratch for every thread and device.
#include <cuda_runtime.h>
#include <fmt/format.h>

#include <map>

#include "traincore/core/fail.h"
#include "traincore/cuda/device.h"
#include "traincore/cuda/launch.h"
#include "traincore/kit/gpu.h"

namespace tc::kit::gpu {
namespace {

using cuda::require_ok;

// A stream and grow-only scratch. The scratch grows only between calls, when the stream has finished.
class Lane {
 public:
  explicit Lane(int device) {
    const cuda::DeviceGuard guard(device);
    require_ok(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "a stream of the kit");
  }
  ~Lane() {
    cudaFree(scratch_);
    if (stream_) cudaStreamDestroy(stream_);
  }
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  tc_exec exec(size_t bytes) {
    if (bytes > capacity_) {
      require_ok(cudaStreamSynchronize(stream_), "a stream of the kit");
      cudaFree(scratch_);
      scratch_ = nullptr, capacity_ = 0;
      require_ok(cudaMalloc(&scratch_, bytes), "scratch memory of the kit");
      capacity_ = bytes;
    }
    tc_exec exec = tc_exec_default();
    exec.stream = stream_, exec.workspace = scratch_, exec.workspace_bytes = capacity_;
    return exec;
  }
  void wait() const { require_ok(cudaStreamSynchronize(stream_), cuda::last_kernel_name()); }

 private:
  cudaStream_t stream_ = nullptr;
  void* scratch_ = nullptr;
  size_t capacity_ = 0;
};

Lane& lane(int device) {
  thread_local std::map<int, Lane> lanes;
  return lanes.try_emplace(device, device).first->second;
}

}  // namespace

// Mapped pointers must be good at any time, also while a kernel runs for another thread.
int count() noexcept {
  static const int usable = [] {
    for (int device = 0; device < cuda::device_count(); ++device) {
      int concurrent = 0;
      cudaDeviceGetAttribute(&concurrent, cudaDevAttrConcurrentManagedAccess, device);
      if (!concurrent) return 0;
    }
    return cuda::device_count();
  }();
  return usable;
}

tc_cuda_device_info describe(int device) {
  const cuda::DeviceInfo& known = cuda::device_info(device);
  cudaDeviceProp p;
  require_ok(cudaGetDeviceProperties(&p, device), "cudaGetDeviceProperties");
  tc_cuda_device_info info{};
  std::string_view(known.name).copy(info.device_name, sizeof info.device_name - 1);
  fmt::format("{}.{}", p.major, p.minor).copy(info.compute_capability, sizeof info.compute_capability - 1);
  info.major = p.major, info.minor = p.minor;
  info.global_memory_bytes = p.totalGlobalMem;
  info.shared_memory_per_block = p.sharedMemPerBlockOptin;
  info.multiprocessor_count = static_cast<uint32_t>(p.multiProcessorCount);
  info.max_threads_per_block = static_cast<uint32_t>(p.maxThreadsPerBlock);
  info.warp_size = static_cast<uint32_t>(p.warpSize);
  info.supports_fp16 = known.sm >= 53;
  info.supports_bf16 = known.sm >= 80;
  info.supports_int8_tensor_core = known.sm >= 72;
  info.supports_tf32 = known.sm >= 80;
  info.unified_memory = p.integrated != 0;
  return info;
}

void* allocate(int device, size_t bytes) {
  const cuda::DeviceGuard guard(device);
  const int64_t free = cuda::free_memory_bytes(device);
  if (bytes > static_cast<uint64_t>(free))
    fail(TC_ERR_ALLOC, "{} bytes were asked for, but GPU {} has {} free", bytes, device, free);
  void* memory = nullptr;
  require_ok(cudaMallocManaged(&memory, bytes), "managed memory");
  return memory;
}

void release(void* memory) noexcept { cudaFree(memory); }
tc_exec exec(int device, size_t workspace_bytes) {
  const cuda::DeviceGuard guard(device);
  return lane(device).exec(workspace_bytes);
}
void wait(int device) { lane(device).wait(); }

const char* last_kernel_name() noexcept {
  const char* name = cuda::last_kernel_name();
  return *name ? name : "none";
}

}  // namespace tc::kit::gpu
#endif
