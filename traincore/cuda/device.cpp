#include "traincore/cuda/device.h"

#include <cuda_runtime.h>

#include <array>
#include <atomic>
#include <exception>
#include <mutex>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "traincore/core/fail.h"
#include "traincore/core/gpus.h"
#include "traincore/cuda/architectures.h"
#include "traincore/cuda/launch.h"

namespace tc::cuda {
namespace {

constexpr int kMostDevices = 64;

thread_local const char* last_name = "";

std::vector<const void*>& kernels() {
  static std::vector<const void*> list;
  return list;
}

DeviceInfo look(int index) {
  DeviceInfo info;
  cudaDeviceProp p;
  require_ok(cudaGetDeviceProperties(&p, index), "cudaGetDeviceProperties");
  std::string_view(p.name).copy(info.name, sizeof info.name - 1);
  info.sm = p.major * 10 + p.minor;
  info.code = code_for(info.sm, TC_CUDA_ARCHITECTURES);
  info.multiprocessors = p.multiProcessorCount;
  info.shared_per_block = static_cast<int32_t>(p.sharedMemPerBlockOptin);
  info.l2_bytes = p.l2CacheSize;
  info.memory_bytes = static_cast<int64_t>(p.totalGlobalMem);
  return info;
}

void load_kernel(const void* kernel) {
  cudaFuncAttributes attributes;
  const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
  if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction)
    cudaGetLastError();  // launch() says so, for the kernels that are asked for
  else
    require_ok(error, "cudaFuncGetAttributes");
}

// On a device. A kernel that is loaded lazily would be loaded behind whatever runs on the GPU. Some threads side by side
// take a fifth less time than one; those of one module follow each other, so that each loads its own.
void load_kernels(int device) {
  constexpr size_t kThreads = 4;
  const std::vector<const void*>& all = kernels();
  std::array<std::exception_ptr, kThreads> failures;
  const auto load_part = [&](size_t part) {
    try {
      if (part > 0) require_ok(cudaSetDevice(device), "cudaSetDevice");  // the caller has chosen it
      for (size_t i = all.size() * part / kThreads; i < all.size() * (part + 1) / kThreads; ++i) load_kernel(all[i]);
    } catch (...) {
      failures[part] = std::current_exception();
    }
  };
  std::vector<std::jthread> others;
  for (size_t part = 1; part < kThreads; ++part) {
    try {
      others.emplace_back(load_part, part);
    } catch (const std::system_error&) {
      load_part(part);  // there is no thread to be had
    }
  }
  load_part(0);
  others.clear();  // all have ended
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

struct Devices {
  std::array<std::atomic<bool>, kMostDevices> loaded{};
  std::array<DeviceInfo, kMostDevices> info;
  std::mutex mutex;
};
Devices& devices() {
  static Devices all;
  return all;
}

void load_once(int index) {
  Devices& d = devices();
  if (d.loaded[static_cast<size_t>(index)].load(std::memory_order_acquire)) return;
  const std::lock_guard lock(d.mutex);
  if (d.loaded[static_cast<size_t>(index)].load(std::memory_order_relaxed)) return;
  load_kernels(index);
  d.loaded[static_cast<size_t>(index)].store(true, std::memory_order_release);
}

}  // namespace

void require_ok(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  cudaGetLastError();
  const tc_status_t status = error == cudaErrorMemoryAllocation ? TC_ERR_ALLOC
                             : error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction
                                 ? TC_ERR_UNSUPPORTED_FAMILY
                             : error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver ? TC_ERR_NO_DEVICE
                                                                                                  : TC_ERR_DISPATCH;
  fail(status, "{}: {}", what, cudaGetErrorString(error));
}

int device_count() {
  static const int count = [] {
    int n = 0;
    if (cudaGetDeviceCount(&n) != cudaSuccess) cudaGetLastError(), n = 0;
    return n < kMostDevices ? n : kMostDevices;
  }();
  return count;
}

const DeviceInfo& device_info(int index) {
  require_gpu(index);
  static std::once_flag once[kMostDevices];
  DeviceInfo& info = devices().info[static_cast<size_t>(index)];
  std::call_once(once[index], [&] { info = look(index); });
  return info;
}

int64_t free_memory_bytes(int index) {
  const DeviceGuard guard(index);
  size_t free = 0, total = 0;
  require_ok(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return static_cast<int64_t>(free);
}

static int current_device() {
  int index = 0;
  require_ok(cudaGetDevice(&index), "cudaGetDevice");
  return index;
}

DeviceGuard::DeviceGuard(int index) : info_(&device_info(index)), before_(current_device()) {
  if (before_ != index) require_ok(cudaSetDevice(index), "cudaSetDevice");
  load_once(index);
}

DeviceGuard::~DeviceGuard() {
  int now = before_;
  if (cudaGetDevice(&now) == cudaSuccess && now != before_) cudaSetDevice(before_);
}

bool register_kernel(const void* kernel) {
  kernels().push_back(kernel);
  return true;
}

const char* last_kernel_name() { return last_name; }

namespace {

// As much shared memory on a multiprocessor as two blocks need, where it has that: by itself it offers what one needs, and
// changes that only while nothing runs.
void offer_shared_for_two(const char* name, const void* kernel, size_t shared) {
  constexpr size_t kBeside = 3 << 10;  // what a block has beside `shared`
  const auto all = static_cast<size_t>(device_info(current_device()).shared_per_block);
  const size_t percent = (2 * (shared + kBeside) * 100 + all - 1) / all;
  if (percent <= 100)
    require_ok(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, static_cast<int>(percent)),
               name);
}

}  // namespace

void enqueue(const char* name, const void* kernel, const Grid& grid, const tc_exec& exec, void** args) {
  constexpr int kPortableCluster = 8;
  constexpr size_t kSharedWithoutAsking = 32 << 10;  // 48 KB, less what a kernel has of fixed shared memory
  if (grid.shared > kSharedWithoutAsking)
    require_ok(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(grid.shared)),
               name);
  if (grid.cluster > kPortableCluster)
    require_ok(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1), name);
  cudaLaunchAttribute attributes[2]{};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(grid.blocks));
  config.blockDim = dim3(static_cast<unsigned>(grid.threads));
  config.dynamicSmemBytes = grid.shared;
  config.stream = static_cast<cudaStream_t>(exec.stream);
  config.attrs = attributes;
  if (grid.cluster > 1) {
    cudaLaunchAttribute& cluster = attributes[config.numAttrs++];
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {static_cast<unsigned>(grid.cluster), 1, 1};
  }
  if (grid.overlaps && device_info(current_device()).code >= 90) {
    if (grid.makes_room) offer_shared_for_two(name, kernel, grid.shared);
    cudaLaunchAttribute& overlap = attributes[config.numAttrs++];
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
  }
  require_ok(cudaLaunchKernelExC(&config, kernel, args), name);
  last_name = name;
}

}  // namespace tc::cuda

void tc::require_gpu(int index) {
  const int count = cuda::device_count();
  if (index < 0 || index >= count)
    fail(TC_ERR_NO_DEVICE, "device_index is {}, but this machine has {} GPUs that CUDA can use", index, count);
}

tc_status_t tc_read_errors(const tc_exec* exec, uint32_t* bits) {
  return tc::guard([&] {
    tc::require(bits != nullptr, "tc_read_errors: bits is NULL");
    *bits = 0;
    if (!exec || (!exec->stream && !exec->device_errors)) return;
    const auto stream = static_cast<cudaStream_t>(exec->stream);
    cudaPointerAttributes where{};
    if (exec->device_errors)
      tc::cuda::require_ok(cudaPointerGetAttributes(&where, exec->device_errors), "tc_read_errors");
    tc::require(!exec->device_errors || where.type == cudaMemoryTypeDevice || where.type == cudaMemoryTypeManaged,
                "tc_read_errors: exec.device_errors is not device memory");
    const tc::cuda::DeviceGuard device(exec->device_errors ? where.device : 0);
    uint32_t found = 0;
    if (exec->device_errors) {
      tc::cuda::require_ok(cudaMemcpyAsync(&found, exec->device_errors, sizeof found, cudaMemcpyDeviceToHost, stream),
                           "tc_read_errors");
      tc::cuda::require_ok(cudaMemsetAsync(exec->device_errors, 0, sizeof found, stream), "tc_read_errors");
    }
    tc::cuda::require_ok(cudaStreamSynchronize(stream), "tc_read_errors");
    *bits = found;
  });
}
