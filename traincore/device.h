/* The kit's context, buffers and streams.  C11 and C++20.
 *
 *   tc_context* ctx;   tc_init(&ctx);
 *   tc_buffer* x;      tc_buffer_alloc(ctx, n * sizeof(float), &x);
 *   void* p;           tc_buffer_map(x, &p);        write, call, read: the pointer stays right for the buffer's life
 *
 * Where there is a GPU (and the library has CUDA) buffers are managed memory and calls run on it; else on the CPU.
 *
 * Rules of every call of the kit:
 *   - ctx NULL is NOT_INITIALIZED. A handle that is NULL, freed, from an earlier context or never was one is
 *     INVALID_ARG: handles are looked up, not trusted.
 *   - A size <= 0 is INVALID_ARG (attention: INVALID_SHAPE); a buffer smaller than the shape needs is INVALID_SHAPE.
 *   - Outputs are overwritten. On any status but TC_OK nothing was written, and tc_last_error() says why.
 *   - Any thread may call at any time. A call that is running keeps its buffers alive, though another thread free them;
 *     two calls that touch the same memory, one of them writing, are the caller's to order. */
#pragma once
#include "traincore/core/types.h"

TC_C_BEGIN
typedef struct tc_context tc_context;
typedef struct tc_buffer tc_buffer;
typedef struct tc_stream tc_stream;

/* What served a call. */
typedef enum tc_backend_t {
  TC_BACKEND_NONE = 0,         /* this thread has computed nothing yet                            */
  TC_BACKEND_PORTABLE_CPU = 7, /* SIMD kernels, chosen at run time                                */
  TC_BACKEND_CUDA = 9
} tc_backend_t;

typedef struct tc_device_info {
  int32_t family;                         /* GPU: compute capability, 90 is sm_90; CPU: 0         */
  char name[128];                         /* as the maker calls it                                */
  uint64_t max_buffer_bytes;              /* the largest buffer that tc_buffer_alloc may grant    */
  uint64_t recommended_working_set_bytes; /* three quarters of the device's memory                */
  uint32_t max_threadgroup_memory;        /* GPU: shared memory that a block may ask for          */
  uint32_t max_threads_per_threadgroup;   /* GPU: threads of a block; CPU: hardware threads       */
  uint32_t thread_execution_width;        /* GPU: threads of a warp; CPU: 1                       */
  bool unified_memory;                    /* mapped pointers are the device's own memory          */
} tc_device_info;

/* The process has one context, counted by references. The first call makes it; every later one returns
 * TC_ERR_ALREADY_INITIALIZED *and* sets *ctx to it, which is a success too: it asks for one more tc_shutdown.
 * The last tc_shutdown finishes and destroys streams, frees buffers, and makes every handle stale. */
TC_API tc_status_t tc_init(tc_context** ctx);
TC_API tc_status_t tc_shutdown(tc_context* ctx);
TC_API tc_status_t tc_device_info_get(tc_context* ctx, tc_device_info* info);

/* Memory for `bytes` > 0 bytes of undefined content, aligned to 64; ALLOC beyond what the device has. */
TC_API tc_status_t tc_buffer_alloc(tc_context* ctx, size_t bytes, tc_buffer** buffer);
/* The caller's own memory as a buffer: no copy, never freed by the library, and used on the CPU alone. It must stay
 * valid until tc_buffer_free, and be aligned to its elements. */
TC_API tc_status_t tc_buffer_from_ptr(tc_context* ctx, void* data, size_t bytes, tc_buffer** buffer);
TC_API tc_status_t tc_buffer_free(tc_context* ctx, tc_buffer* buffer);
/* The buffer's memory: stable for its life, coherent after every synchronous call and after tc_stream_sync. */
TC_API tc_status_t tc_buffer_map(tc_buffer* buffer, void** data);
TC_API size_t tc_buffer_size(const tc_buffer* buffer); /* 0 for a handle that is not a live buffer */

/* A stream runs the _async calls it is given, in their order, beside the caller. Arguments are checked before an
 * _async call returns; a failure after that is returned by the next tc_stream_sync, and the calls queued behind it are
 * not run. In an _async call a NULL stream means: run now. tc_stream_destroy finishes what is queued. */
TC_API tc_status_t tc_stream_create(tc_context* ctx, tc_stream** stream);
TC_API tc_status_t tc_stream_destroy(tc_context* ctx, tc_stream* stream);
TC_API tc_status_t tc_stream_sync(tc_stream* stream);

/* What served this thread's last computing call that succeeded. Environment variables force the CPU, re-read by every
 * call: TC_DISABLE_CUDA_GEMM=1 (or true, yes, on); TC_CUDA_GEMM=0 or TC_USE_CUDA_GEMM=0 (or false, no, off). */
TC_API tc_backend_t tc_last_backend(void);
TC_API const char* tc_backend_name(tc_backend_t backend); /* "none", "portable_cpu", "cuda"; "?" for no backend */
TC_C_END
