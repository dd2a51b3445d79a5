/* Matrix products with an optional bias and activation.  C11 and C++20.
 *
 *   z = alpha op(A) op(B) + beta C + bias      C = activation(z)      op(X) = X, or X^T where its transpose flag is 1
 *
 * Backward, dz = dC activation'(z):
 *   dop(A) = alpha dz op(B)^T      dop(B) = alpha op(A)^T dz      dbias = sum over batch and rows of dz
 * dA and dB have the layouts of A and B. The gradient of the old C is beta dz and is not computed.
 *
 * Leading dimensions are a batch of independent products; a stride of 0 repeats a matrix. Every tensor has a dtype of
 * its own (f32, bf16, f16); products and sums are f32, and each output is rounded once. k = 0 gives
 * activation(beta C + bias); beta = 0 never reads C.
 *
 * The linear layer y = x W^T + bias is a = x, b = W, transpose_b = 1. */
#pragma once
#include "traincore/core/call.h"

TC_C_BEGIN
typedef struct tcx_gemm_forward_args {
  uint32_t size;           /* sizeof(tcx_gemm_forward_args); use tcx_gemm_forward_args_default()          */
  int32_t activation;      /* tc_activation_t; TC_ACTIVATION_NONE                                          */
  int32_t transpose_a;     /* 0: a is [batch... m k]; 1: a is [batch... k m]                               */
  int32_t transpose_b;     /* 0: b is [batch... k n]; 1: b is [batch... n k]                               */
  tc_tensor a;             /* in     [batch... m k] or [batch... k m]                                      */
  tc_tensor b;             /* in     [batch... k n] or [batch... n k]                                      */
  tc_tensor bias;          /* in     [n], optional                                                         */
  tc_tensor c;             /* out    [batch... m n]; read as well where beta is not 0                      */
  tc_tensor preactivation; /* saved  [batch... m n], optional: z, which backward needs if there is an activation */
  double alpha;            /* 1                                                                            */
  double beta;             /* 0                                                                            */
} tcx_gemm_forward_args;

typedef struct tcx_gemm_backward_args {
  uint32_t size;
  int32_t activation;      /* as in forward                                                                */
  int32_t transpose_a;     /* as in forward                                                                */
  int32_t transpose_b;     /* as in forward                                                                */
  int32_t accumulate;      /* 1: db and dbias, then f32, += this call's gradients; 0: overwritten          */
  tc_tensor dc;            /* in     [batch... m n]                                                        */
  tc_tensor a;             /* in     as in forward; needed for db                                          */
  tc_tensor b;             /* in     as in forward; needed for da                                          */
  tc_tensor preactivation; /* in     [batch... m n] from forward; needed if there is an activation         */
  tc_tensor da;            /* out    as a, optional; to add to it, call gemm_forward with beta = 1         */
  tc_tensor db;            /* out    as b, optional                                                        */
  tc_tensor dbias;         /* out    [n], optional                                                         */
  double alpha;            /* as in forward                                                                */
} tcx_gemm_backward_args;

static inline tcx_gemm_forward_args tcx_gemm_forward_args_default(void) {
  tcx_gemm_forward_args a;
  memset(&a, 0, sizeof a);
  a.size = (uint32_t)sizeof a;
  a.alpha = 1;
  return a;
}
static inline tcx_gemm_backward_args tcx_gemm_backward_args_default(void) {
  tcx_gemm_backward_args a;
  memset(&a, 0, sizeof a);
  a.size = (uint32_t)sizeof a;
  a.alpha = 1;
  return a;
}

TC_API tc_status_t tcx_gemm_forward(const tcx_gemm_forward_args* args, const tc_exec* exec);
TC_API tc_status_t tcx_gemm_forward_workspace(const tcx_gemm_forward_args* args, const tc_exec* exec, size_t* bytes);
TC_API tc_status_t tcx_gemm_backward(const tcx_gemm_backward_args* args, const tc_exec* exec);
TC_API tc_status_t tcx_gemm_backward_workspace(const tcx_gemm_backward_args* args, const tc_exec* exec, size_t* bytes);
TC_C_END

TC_CXX_FACE(gemm_forward) /* tc::gemm_forward(args, exec), throws tc::Error */
TC_CXX_FACE(gemm_backward)
