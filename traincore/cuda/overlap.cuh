// Device code: a kernel that may start while the one ahead of it on the stream still runs, Grid::overlaps. Below sm_90 it
// never does.
#pragma once
#include <cstdint>

namespace tc::cuda {

// Sends for `bytes` bytes as far as the second-level cache; p and bytes are multiples of 16. Allowed before
// wait_for_stream(): what the kernel ahead may still write goes through that cache too.
__device__ __forceinline__ void send_for([[maybe_unused]] const void* p, [[maybe_unused]] int bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(p), "r"(bytes) : "memory");
#endif
}

// For .L2::cache_hint: what is read once leaves the second-level cache first.
__device__ __forceinline__ uint64_t read_once_policy() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
// send_for() what is read once.
__device__ __forceinline__ void send_for_once([[maybe_unused]] const void* p, [[maybe_unused]] int bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global.L2::cache_hint [%0], %1, %2;" ::"l"(p), "r"(bytes),
               "l"(read_once_policy())
               : "memory");
#endif
}

// Until all that was enqueued before this kernel has ended and can be seen. Every thread calls it before it reads or
// writes memory.
__device__ __forceinline__ void wait_for_stream() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The next kernel on the stream may start likewise, once a thread of every block has said so or the block has ended.
__device__ __forceinline__ void let_next_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// The first statement of a kernel that overlaps and has nothing to do before its turn: that saves the time of a launch.
__device__ __forceinline__ void follow_stream() {
  let_next_begin();
  wait_for_stream();
}

}  // namespace tc::cuda
