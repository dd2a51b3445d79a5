// All that the kit asks of a GPU. gpu_absent.cpp answers in a build without CUDA.
#pragma once
#include "traincore/cuda.h"

namespace tc::kit::gpu {

int count() noexcept;
tc_cuda_device_info describe(int device);  // NO_DEVICE: there is none with that index

// Managed memory, aligned to 64. ALLOC beyond what the device has free.
void* allocate(int device, size_t bytes);
void release(void* memory) noexcept;

// Where the ops of the calling thread's next call run: a stream of this thread's own on `device`, with that much scratch.
tc_exec exec(int device, size_t workspace_bytes);
// Until the calling thread's stream on `device` has finished. DISPATCH: a kernel failed.
void wait(int device);

const char* last_kernel_name() noexcept;  // of the calling thread; "none" before its first

}  // namespace tc::kit::gpu
