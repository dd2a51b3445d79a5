/* Matrix products of the kit.  C11 and C++20.
 *
 *   C = alpha op(A) op(B) + beta C      op(X) = X, or X^T where its transpose flag is set
 *
 * Row-major: op(A) is [M, K], op(B) [K, N], C [M, N]. A leading dimension is the distance between rows as stored, in
 * elements; 0 means dense. The last row may be short: of it only what the matrix has needs to be in the buffer.
 *
 *   a, b           c             accum   sums
 *   F16, BF16      as a, or F32  F32     f32, rounded once
 *   F32            F32           F32     true f32
 *   I8             I32           I32     exact; alpha s + beta C is f64, rounded and clamped
 *
 * M or N <= 0, K < 0, a short leading dimension: INVALID_ARG. K = 0 gives beta C. beta = 0 never reads C. Other
 * combinations of dtypes: UNSUPPORTED_DTYPE. C overlaps neither A nor B. More: traincore/ops/gemm/gemm.h. */
#pragma once
#include "traincore/device.h"

TC_C_BEGIN
typedef struct tc_gemm_desc {
  int32_t M, N, K;
  int32_t a_dtype, b_dtype, c_dtype, accum_dtype; /* tc_dtype_t; 32 bits, so that a wrong value can be refused */
  bool transpose_a, transpose_b;
  float alpha, beta;
  int32_t lda, ldb, ldc;
} tc_gemm_desc;

/* batch products; matrix i of A begins stride_a elements after matrix i - 1. Strides are >= 0; 0 repeats A or B, but
 * not C, whose matrices must lie apart. */
typedef struct tc_gemm_batched_desc {
  tc_gemm_desc base;
  int32_t batch;
  int64_t stride_a, stride_b, stride_c;
} tc_gemm_batched_desc;

TC_API tc_status_t tc_gemm(tc_context* ctx, const tc_gemm_desc* desc, const tc_buffer* A, const tc_buffer* B,
                           tc_buffer* C);
TC_API tc_status_t tc_gemm_async(tc_context* ctx, const tc_gemm_desc* desc, const tc_buffer* A, const tc_buffer* B,
                                 tc_buffer* C, tc_stream* stream);
TC_API tc_status_t tc_gemm_batched(tc_context* ctx, const tc_gemm_batched_desc* desc, const tc_buffer* A,
                                   const tc_buffer* B, tc_buffer* C);

/* C = activation(alpha op(A) op(B) + beta C + bias), in one pass over C, rounded once; bias [N] has C's dtype.
 * Not for I8 (UNSUPPORTED_DTYPE). */
TC_API tc_status_t tc_gemm_bias(tc_context* ctx, const tc_gemm_desc* desc, const tc_buffer* A, const tc_buffer* B,
                                const tc_buffer* bias, tc_activation_t activation, tc_buffer* C);
TC_C_END
