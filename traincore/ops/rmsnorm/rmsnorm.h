/* RMSNorm, with an optional residual add in front.  C11 and C++20.
 *
 *   v = x (+ residual, summed in f32, unrounded)      r = 1 / sqrt(mean(v^2) + eps)
 *   y = v r (weight_offset + weight)
 *
 * Rounding is `once`, at the end, or `before_weight`, as Llama models written in bf16 do: v is rounded to the dtype where
 * x and residual meet, v r to the same, and y must have the dtype where that row and weight meet. Two equal dtypes meet
 * in themselves, any others in f32.
 *
 * Backward, gw = dy (weight_offset + weight):
 *   dx = r (gw - v r^2 mean(gw v)) (+ dresidual_out)      dweight = sum over rows of dy v r
 * The mean is over the row's logical width; dx is the gradient of x and of residual alike. Casts count as the identity:
 * with before_weight, v and v r have forward's rounded values, and nothing else changes.
 *
 * Every tensor is f32, bf16 or f16. Full-size ones of one dtype take the fast path; in a mixture, rows are converted to
 * f32 on their way. Sums are in f32.
 * Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", NeurIPS 2019, equation 4. */
#pragma once
#include "traincore/core/call.h"

TC_C_BEGIN
/* How the weight meets the rounding to a 16-bit dtype: one cast at the end, or the normalised row rounded first. */
enum { TC_ROUND_ONCE = 0, TC_ROUND_BEFORE_WEIGHT = 1 };

typedef struct tcx_rmsnorm_forward_args {
  uint32_t size;          /* sizeof(tcx_rmsnorm_forward_args); use tcx_rmsnorm_forward_args_default()      */
  int32_t rounding;       /* TC_ROUND_ONCE or TC_ROUND_BEFORE_WEIGHT                                    */
  tc_tensor x;            /* in     [rows... cols], cols > 0                                                */
  tc_tensor residual;     /* in     [rows... cols], optional                                                */
  tc_tensor weight;       /* in     [cols], optional; absent: y = v r                                        */
  tc_tensor y;            /* out    [rows... cols], may be x or residual                                    */
  tc_tensor residual_out; /* out    [rows... cols], optional: v in its own dtype; may be x or residual  */
  tc_tensor rstd;         /* saved  [rows...] f32, any strides; leave absent for inference                  */
  double eps;             /* > 0; there is no default                                                       */
  double weight_offset;   /* 0; 1 for Gemma                                                                 */
} tcx_rmsnorm_forward_args;

typedef struct tcx_rmsnorm_backward_args {
  uint32_t size;
  int32_t rounding;        /* as in forward; the cast itself is not differentiated                          */
  int32_t accumulate;      /* 1: dweight (f32) += this call's sum; 0: overwritten                           */
  tc_tensor dy;            /* in     [rows... cols]                                                         */
  tc_tensor x;             /* in     [rows... cols]; v itself where forward had no residual or gave residual_out */
  tc_tensor residual;      /* in     [rows... cols], optional: v = x + residual, unrounded                  */
  tc_tensor weight;        /* in     [cols], optional                                                       */
  tc_tensor rstd;          /* in     [rows...] f32, any strides, from forward                               */
  tc_tensor dresidual_out; /* in     [rows... cols], optional: what arrives at residual_out, added to dx     */
  tc_tensor dx;            /* out    [rows... cols], optional, may be dy or dresidual_out                   */
  tc_tensor dweight;       /* out    [cols] f32, bf16 or f16, optional                                      */
  double weight_offset;
} tcx_rmsnorm_backward_args;

static inline tcx_rmsnorm_forward_args tcx_rmsnorm_forward_args_default(void) {
  tcx_rmsnorm_forward_args a;
  memset(&a, 0, sizeof a);
  a.size = (uint32_t)sizeof a;
  return a;
}
static inline tcx_rmsnorm_backward_args tcx_rmsnorm_backward_args_default(void) {
  tcx_rmsnorm_backward_args a;
  memset(&a, 0, sizeof a);
  a.size = (uint32_t)sizeof a;
  return a;
}

TC_API tc_status_t tcx_rmsnorm_forward(const tcx_rmsnorm_forward_args* args, const tc_exec* exec);
TC_API tc_status_t tcx_rmsnorm_forward_workspace(const tcx_rmsnorm_forward_args* args, const tc_exec* exec,
                                                 size_t* bytes);
TC_API tc_status_t tcx_rmsnorm_backward(const tcx_rmsnorm_backward_args* args, const tc_exec* exec);
TC_API tc_status_t tcx_rmsnorm_backward_workspace(const tcx_rmsnorm_backward_args* args, const tc_exec* exec,
                                                  size_t* bytes);
TC_C_END

TC_CXX_FACE(rmsnorm_forward) /* tc::rmsnorm_forward(args, exec), throws tc::Error */
TC_CXX_FACE(rmsnorm_backward)
