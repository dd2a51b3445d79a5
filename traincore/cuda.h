/* GPUs, for programs that ask about them or choose one; nobody has to.  C11 and C++20.
 * Without CUDA, or without a GPU that shares managed memory with a running host, there are 0 devices and the other calls
 * return TC_ERR_NO_DEVICE. */
#pragma once
#include "traincore/device.h"

TC_C_BEGIN
typedef struct tc_cuda_device_info {
  char device_name[128];
  char compute_capability[16]; /* "9.0" */
  int32_t major, minor;
  uint64_t global_memory_bytes;
  uint64_t shared_memory_per_block;
  uint32_t multiprocessor_count;
  uint32_t max_threads_per_block;
  uint32_t warp_size;
  bool supports_fp16;
  bool supports_bf16;
  bool supports_int8_tensor_core;
  bool supports_tf32;
  bool unified_memory; /* host and device share one memory */
} tc_cuda_device_info;

TC_API tc_status_t tc_cuda_init(tc_context* ctx); /* TC_OK if calls with ctx can run on a GPU */
TC_API int tc_cuda_device_count(void);
TC_API tc_status_t tc_cuda_device_at(int index, tc_cuda_device_info* info);
/* Buffers allocated and calls made from now on, by any thread, use this device. */
TC_API tc_status_t tc_cuda_select_device(tc_context* ctx, int index);
/* The kernel that this thread launched last; "none" before the first. */
TC_API const char* tc_cuda_last_kernel_name(void);
TC_C_END
