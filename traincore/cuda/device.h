// The GPUs of this machine, as plain data that a plan can be tested with, and the guard every GPU call starts with.
#pragma once
#include "traincore/core/types.h"

namespace tc::cuda {

struct DeviceInfo {
  char name[64] = "";
  int32_t sm = 0;                // compute capability: 90 for 9.0
  int32_t code = 0;              // that of the kernels it runs: an older one where this build has none for it
  int32_t multiprocessors = 0;   // SMs
  int32_t shared_per_block = 0;  // bytes that a block may ask for
  int64_t l2_bytes = 0, memory_bytes = 0;
};

int device_count();                        // 0 where there is no driver or no GPU
const DeviceInfo& device_info(int index);  // NO_DEVICE: there is none with that index
int64_t free_memory_bytes(int index);

// Makes the device of `t` the calling thread's device for as long as it lives. The first guard of a device loads every
// kernel of the library there, so that no later launch waits for a module behind the caller's own work.
class DeviceGuard {
 public:
  explicit DeviceGuard(const tc_tensor& t) : DeviceGuard(t.device_index) {}
  explicit DeviceGuard(int index);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;
  const DeviceInfo& info() const { return *info_; }

 private:
  const DeviceInfo* info_;
  int before_;
};

// The name of the kernel that this thread launched last; "" if it has launched none.
const char* last_kernel_name();

}  // namespace tc::cuda
