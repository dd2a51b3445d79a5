// Enqueuing a kernel on the caller's stream: no synchronisation, no allocation, a failure named.
#pragma once
#include <cuda_runtime.h>

#include "traincore/cuda/device.h"

namespace tc::cuda {

struct Grid {
  int64_t blocks = 1;  // one dimension; kernels loop where there is more work than the largest grid
  int32_t threads = 256;
  int32_t cluster = 1;  // blocks that share a row through distributed shared memory; 1 below sm_90
  size_t shared = 0;    // bytes of dynamic shared memory
  // May start while the kernel ahead of it on the stream still runs, from sm_90 on; it calls wait_for_stream() of
  // overlap.cuh.
  bool overlaps = false;
  // Asks for as much of an SM's shared memory as two such blocks need, where it has that: one of the next kernel's then
  // finds room beside one of this.
  bool makes_room = false;
};

// Every kernel that launch() may ever be asked for, known before main().
bool register_kernel(const void* kernel);
void enqueue(const char* name, const void* kernel, const Grid& grid, const tc_exec& exec, void** args);
void require_ok(cudaError_t error, const char* what);

template <auto kernel>
inline const bool is_registered = register_kernel(reinterpret_cast<const void*>(kernel));

// launch<my_kernel<float>>("my_kernel", grid, exec, arguments...): types as the kernel declares them.
template <auto kernel, class... A>
void launch(const char* name, const Grid& grid, const tc_exec& exec, const A&... args) {
  static_assert(std::is_invocable_v<decltype(kernel), A...>);
  (void)is_registered<kernel>;
  if (grid.blocks <= 0) return;
  void* pointers[] = {const_cast<void*>(static_cast<const void*>(&args))...};
  enqueue(name, reinterpret_cast<const void*>(kernel), grid, exec, pointers);
}

// Blocks for `items` at so many a block: a full grid, at most what the hardware takes.
inline int64_t blocks_for(int64_t items, int64_t per_block) {
  constexpr int64_t kMost = (int64_t{1} << 31) - 1;
  const int64_t blocks = (items + per_block - 1) / per_block;
  return blocks < kMost ? blocks : kMost;
}

}  // namespace tc::cuda
