/* The whole ABI vocabulary of TrainCore: statuses, dtypes, tensors and how to run. C11 and C++20.
 *
 * Every call is tcx_<pass>(const tcx_<pass>_args*, const tc_exec*): the arguments say WHAT to compute, exec says HOW.
 * A call returns a status; on anything but TC_OK, tc_last_error() is one sentence and nothing was written. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(_WIN32)
#define TC_API __declspec(dllexport)
#else
#define TC_API __attribute__((visibility("default")))
#endif
#ifdef __cplusplus
#define TC_C_BEGIN extern "C" {
#define TC_C_END }
#else
#define TC_C_BEGIN
#define TC_C_END
#endif

#define TC_VERSION_MAJOR 0
#define TC_VERSION_MINOR 1
#define TC_VERSION_PATCH 0

TC_C_BEGIN
enum { TC_MAX_RANK = 8 };

typedef enum tc_status_t {
  TC_OK = 0,
  TC_ERR_NOT_INITIALIZED = -1,
  TC_ERR_ALREADY_INITIALIZED = -2,
  TC_ERR_NO_DEVICE = -3,          /* built without CUDA, or no such device                               */
  TC_ERR_UNSUPPORTED_FAMILY = -4, /* no kernel image for this GPU architecture                           */
  TC_ERR_UNSUPPORTED_DTYPE = -5,  /* a tensor's dtype is not accepted here                               */
  TC_ERR_INVALID_SHAPE = -6,      /* rank, disagreeing dimensions, a size beyond 64 bits                 */
  TC_ERR_INVALID_ARG = -7,        /* missing, bad value, overlap, stride, device, workspace too small    */
  TC_ERR_ALLOC = -8,              /* the host or the device is out of memory                             */
  TC_ERR_KERNEL_NOT_FOUND = -9,   /* a valid request that no variant serves; the sentence names what does */
  TC_ERR_PIPELINE = -10,          /* oneDNN, cuBLASLt or NVRTC failed                                    */
  TC_ERR_DISPATCH = -11,          /* a kernel could not be launched                                      */
  TC_ERR_INTERNAL = -99
} tc_status_t;

typedef enum tc_dtype_t {
  TC_DTYPE_F16 = 0,
  TC_DTYPE_BF16 = 1,
  TC_DTYPE_F32 = 2,
  TC_DTYPE_I8 = 3,
  TC_DTYPE_I32 = 4,
  TC_DTYPE_F64 = 5,
  TC_DTYPE_I64 = 10,
  TC_DTYPE_U8 = 11,
  TC_DTYPE_BOOL = 12,
  TC_DTYPE_I16 = 13
} tc_dtype_t;

/* What a loss over rows is reduced to. */
typedef enum tc_reduction_t {
  TC_REDUCTION_NONE = 1, /* 0 = not set, refused */
  TC_REDUCTION_SUM = 2,
  TC_REDUCTION_MEAN = 3
} tc_reduction_t;

/* Activations, of tcx_activation_* and of a matrix product's epilogue. */
typedef enum tc_activation_t {
  TC_ACTIVATION_NONE = 0,
  TC_ACTIVATION_SILU = 1,       /* x sigmoid(x)                                         */
  TC_ACTIVATION_SIGMOID = 2,    /* 1 / (1 + e^-x)                                       */
  TC_ACTIVATION_GELU_TANH = 3,  /* x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))        */
  TC_ACTIVATION_GELU_ERF = 4,   /* x/2 (1 + erf(x / sqrt(2)))                           */
  TC_ACTIVATION_QUICK_GELU = 5, /* x sigmoid(1.702 x)                                   */
  TC_ACTIVATION_RELU = 6,       /* max(x, 0); the derivative at +-0 is 0                */
  TC_ACTIVATION_RELU2 = 7,      /* max(x, 0)^2                                          */
  TC_ACTIVATION_TANH = 8
} tc_activation_t;

enum { TC_CPU = 0, TC_CUDA = 1 };                                                       /* tc_tensor.device     */
enum { TC_RUN_TO_RUN = 0, TC_BATCH_INVARIANT = 1, TC_UNORDERED = 2 };                   /* tc_exec.determinism  */
enum { TC_STANDARD = 0, TC_STRICT = 1, TC_FAST = 2 };                                   /* tc_exec.precision    */
enum { TC_BAD_TARGET = 1, TC_BAD_POSITION = 2, TC_BAD_CU_SEQLENS = 4, TC_BAD_ID = 16 }; /* bits of device_errors */

/* A non-owning strided view. Strides count elements; the stride of an extent <= 1 is ignored.
 * Absent: data NULL and rank 0. NULL data with a zero extent is a valid empty tensor; rank 0 with data is a scalar.
 * dtype and device are int32_t so that a bad value can be refused rather than assumed away. */
typedef struct tc_tensor {
  void* data;
  int64_t shape[TC_MAX_RANK], stride[TC_MAX_RANK];
  int32_t rank, dtype, device, device_index;
} tc_tensor;

/* How to run, never what to compute. NULL, or size set and all else zero, means the defaults named below.
 * Fields are only ever appended; a caller built against an older header passes a smaller size. */
typedef struct tc_exec {
  uint32_t size;           /* sizeof(tc_exec)                                                               */
  int32_t determinism;     /* TC_RUN_TO_RUN: same inputs, device and build give the same bits               */
  int32_t precision;       /* TC_STANDARD: f32 accumulation; TC_STRICT: no approximate instruction          */
  int32_t threads;         /* CPU: 0 = all cores; results never depend on it                                */
  void* stream;            /* cudaStream_t; NULL is the caller's legacy stream; unused on the CPU           */
  void* workspace;         /* caller-owned scratch, 64-byte aligned; NULL on the CPU: a per-thread arena    */
  size_t workspace_bytes;  /* at least what tcx_<pass>_workspace says                                       */
  uint32_t* device_errors; /* device memory or NULL: bits of data-dependent errors, read by tc_read_errors  */
} tc_exec;

static inline tc_exec tc_exec_default(void) {
  tc_exec e = {sizeof(tc_exec), TC_RUN_TO_RUN, TC_STANDARD, 0, NULL, NULL, 0, NULL}; /* NOLINT: C11 too */
  return e;
}

/* Bytes of one element; 0 for a value that is no dtype. */
static inline size_t tc_dtype_size(int32_t dtype) {
  switch (dtype) {
    case TC_DTYPE_I8:
    case TC_DTYPE_U8:
    case TC_DTYPE_BOOL:
      return 1;
    case TC_DTYPE_F16:
    case TC_DTYPE_BF16:
    case TC_DTYPE_I16:
      return 2;
    case TC_DTYPE_F32:
    case TC_DTYPE_I32:
      return 4;
    case TC_DTYPE_F64:
    case TC_DTYPE_I64:
      return 8;
    default:
      return 0;
  }
}

/* A dense row-major view of data. rank is 0..TC_MAX_RANK; shape has rank extents. */
static inline tc_tensor tc_tensor_dense(void* data, int32_t dtype, int32_t rank, const int64_t* shape) {
  tc_tensor t = {data, {0}, {0}, rank, dtype, TC_CPU, 0};
  int64_t stride = 1;
  for (int32_t i = rank - 1; i >= 0; --i) {
    t.shape[i] = shape[i];
    t.stride[i] = stride;
    stride = (int64_t)((uint64_t)stride * (uint64_t)shape[i]); /* an overflow is refused by the call itself */
  }
  return t;
}

TC_API const char* tc_dtype_name(int32_t dtype);     /* "f32", "bf16", ...; "?" for a value that is no dtype */
TC_API const char* tc_status_string(int32_t status); /* "TC_OK", "TC_ERR_INVALID_ARG", ...                   */
TC_API const char* tc_last_error(void);              /* this thread's last failure, one sentence; "" if none */
TC_API const char* tc_version(void);                 /* "0.1.0"                                              */

/* Waits for exec.stream, then moves the bits of exec.device_errors into *bits and clears them. On the CPU errors are
 * refused at the call, so *bits is 0. INVALID_ARG: bits is NULL, or a stream is given to a build without CUDA. */
TC_API tc_status_t tc_read_errors(const tc_exec* exec, uint32_t* bits);
TC_C_END
