/* A norm and the matrix products that read it, in one call: decoding a few tokens.  C11 and C++20.
 *
 *   v = Norm(x)      y = v W      y2 = v W2      y3 = v W3
 *   RMS:    Norm(x) = x r (weight_offset + weight),      r = 1 / sqrt(mean(x^2) + eps)
 *   LAYER:  Norm(x) = (x - mean(x)) r weight + bias,     r = 1 / sqrt(mean((x - mean(x))^2) + eps)
 *
 * W is [k n], or [n k] where transpose_w is 1 (a linear layer's weight). W2 and W3 are further matrices of the same k
 * that stand beside it: Wq|Wk|Wv, or gate|up. With at most 8 rows one kernel reads each matrix once, and v, in f32, never
 * leaves the caches; with more, v is made in f32 and the products are cpu/gemm's, and a GPU reads each matrix once for
 * every 8 rows. Inference only: there is no backward.
 *
 * Every tensor is f32, bf16 or f16, each its own; products and sums are f32, each output is rounded once.
 * Source: the norms of rmsnorm.h and layernorm.h. */
#pragma once
#include "traincore/core/call.h"

TC_C_BEGIN
enum { TC_NORM_RMS = 1, TC_NORM_LAYER = 2 };

typedef struct tcx_norm_gemv_args {
  uint32_t size;        /* sizeof(tcx_norm_gemv_args); use tcx_norm_gemv_args_default()                      */
  int32_t norm;         /* TC_NORM_RMS or TC_NORM_LAYER; must be set                                         */
  int32_t transpose_w;  /* 0: w, w2, w3 are [k n]; 1: they are [n k]                                         */
  tc_tensor x;          /* in     [rows... k], k > 0                                                         */
  tc_tensor weight;     /* in     [k], optional; the norm's, absent: 1                                       */
  tc_tensor bias;       /* in     [k], optional; of LAYER only                                               */
  tc_tensor w;          /* in     [k n] or [n k]                                                             */
  tc_tensor w2;         /* in     [k n2] or [n2 k], optional                                                 */
  tc_tensor w3;         /* in     [k n3] or [n3 k], optional                                                 */
  tc_tensor y;          /* out    [rows... n]                                                                */
  tc_tensor y2;         /* out    [rows... n2], with w2                                                      */
  tc_tensor y3;         /* out    [rows... n3], with w3                                                      */
  double eps;           /* > 0; there is no default                                                          */
  double weight_offset; /* 0; 1 for Gemma. Of RMS only                                                       */
} tcx_norm_gemv_args;

static inline tcx_norm_gemv_args tcx_norm_gemv_args_default(void) {
  tcx_norm_gemv_args a;
  memset(&a, 0, sizeof a);
  a.size = (uint32_t)sizeof a;
  return a;
}

TC_API tc_status_t tcx_norm_gemv(const tcx_norm_gemv_args* args, const tc_exec* exec);
TC_API tc_status_t tcx_norm_gemv_workspace(const tcx_norm_gemv_args* args, const tc_exec* exec, size_t* bytes);
TC_C_END

TC_CXX_FACE(norm_gemv) /* tc::norm_gemv(args, exec), throws tc::Error */
