/* Matrix products of 8-bit integers, exact.  C11 and C++20.
 *
 *   s = op(A) op(B), in integers      C = alpha s + beta C, in f64, rounded to nearest even and clamped to i32
 *
 * op(X) = X, or X^T where its transpose flag is 1. The sum s is exact for every k. With alpha = 1 and beta = 0 or 1 so
 * is C, unless it is clamped. k = 0 gives beta C; beta = 0 never reads C; alpha = 0 reads neither A nor B.
 * Leading dimensions are a batch of independent products; a stride of 0 repeats a matrix.
 * No backward pass: integers have no gradient.
 * Source: Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference",
 * CVPR 2018, section 2.3. */
#pragma once
#include "traincore/core/call.h"

TC_C_BEGIN
typedef struct tcx_gemm_i8_args {
  uint32_t size;       /* sizeof(tcx_gemm_i8_args); use tcx_gemm_i8_args_default() */
  int32_t transpose_a; /* 0: a is [batch... m k]; 1: a is [batch... k m]           */
  int32_t transpose_b; /* 0: b is [batch... k n]; 1: b is [batch... n k]           */
  tc_tensor a;         /* in     i8 [batch... m k] or [batch... k m]               */
  tc_tensor b;         /* in     i8 [batch... k n] or [batch... n k]               */
  tc_tensor c;         /* out    i32 [batch... m n]; read where beta is not 0      */
  double alpha;        /* 1                                                        */
  double beta;         /* 0                                                        */
} tcx_gemm_i8_args;

static inline tcx_gemm_i8_args tcx_gemm_i8_args_default(void) {
  tcx_gemm_i8_args a;
  memset(&a, 0, sizeof a);
  a.size = (uint32_t)sizeof a;
  a.alpha = 1;
  return a;
}

TC_API tc_status_t tcx_gemm_i8(const tcx_gemm_i8_args* args, const tc_exec* exec);
TC_API tc_status_t tcx_gemm_i8_workspace(const tcx_gemm_i8_args* args, const tc_exec* exec, size_t* bytes);
TC_C_END

TC_CXX_FACE(gemm_i8) /* tc::gemm_i8(args, exec), throws tc::Error */
