/* LayerNorm, with an optional residual add in front.  C11 and C++20.
 *
 *   v = x (+ residual, summed in f32, unrounded)      m = mean(v)      c = v - m
 *   r = 1 / sqrt(mean(c^2) + eps)                     y = c r weight + bias
 *
 * Backward, gw = dy weight:
 *   dx = r (gw - mean(gw) - c r^2 mean(gw c)) (+ dresidual_out)
 *   dweight = sum over rows of dy c r      dbias = sum over rows of dy
 * Means are over the row's logical width, the variance is the population's; dx is the gradient of x and of residual
 * alike. A normalised shape of several dimensions is passed as one, flattened.
 *
 * Every tensor is f32, bf16 or f16. Full-size ones of one dtype take the fast path; in a mixture, rows are converted to
 * f32 on their way. Sums are in f32. Source: Ba, Kiros and Hinton, "Layer Normalization", 2016, equation 4. */
#pragma once
#include "traincore/core/call.h"

TC_C_BEGIN
typedef struct tcx_layernorm_forward_args {
  uint32_t size;          /* sizeof(tcx_layernorm_forward_args); use tcx_layernorm_forward_args_default()   */
  tc_tensor x;            /* in     [rows... cols], cols > 0                                                */
  tc_tensor residual;     /* in     [rows... cols], optional                                                */
  tc_tensor weight;       /* in     [cols], optional; absent: 1                                             */
  tc_tensor bias;         /* in     [cols], optional; absent: 0                                             */
  tc_tensor y;            /* out    [rows... cols], may be x or residual                                    */
  tc_tensor residual_out; /* out    [rows... cols], optional: v in its own dtype; may be x or residual      */
  tc_tensor mean;         /* saved  [rows...] f32, any strides; leave absent for inference                  */
  tc_tensor rstd;         /* saved  [rows...] f32, any strides; leave absent for inference                  */
  double eps;             /* > 0; there is no default                                                       */
} tcx_layernorm_forward_args;

typedef struct tcx_layernorm_backward_args {
  uint32_t size;
  int32_t accumulate;      /* 1: dweight and dbias (f32) += this call's sums; 0: overwritten                */
  tc_tensor dy;            /* in     [rows... cols]                                                         */
  tc_tensor x;             /* in     [rows... cols]; v itself where forward had no residual or gave residual_out */
  tc_tensor residual;      /* in     [rows... cols], optional: v = x + residual, unrounded                  */
  tc_tensor weight;        /* in     [cols], optional                                                       */
  tc_tensor mean;          /* in     [rows...] f32, any strides, from forward                               */
  tc_tensor rstd;          /* in     [rows...] f32, any strides, from forward                               */
  tc_tensor dresidual_out; /* in     [rows... cols], optional: what arrives at residual_out, added to dx     */
  tc_tensor dx;            /* out    [rows... cols], optional, may be dy or dresidual_out                   */
  tc_tensor dweight;       /* out    [cols] f32, bf16 or f16, optional                                      */
  tc_tensor dbias;         /* out    [cols] f32, bf16 or f16, optional                                      */
} tcx_layernorm_backward_args;

static inline tcx_layernorm_forward_args tcx_layernorm_forward_args_default(void) {
  tcx_layernorm_forward_args a;
  memset(&a, 0, sizeof a);
  a.size = (uint32_t)sizeof a;
  return a;
}
static inline tcx_layernorm_backward_args tcx_layernorm_backward_args_default(void) {
  tcx_layernorm_backward_args a;
  memset(&a, 0, sizeof a);
  a.size = (uint32_t)sizeof a;
  return a;
}

TC_API tc_status_t tcx_layernorm_forward(const tcx_layernorm_forward_args* args, const tc_exec* exec);
TC_API tc_status_t tcx_layernorm_forward_workspace(const tcx_layernorm_forward_args* args, const tc_exec* exec,
                                                   size_t* bytes);
TC_API tc_status_t tcx_layernorm_backward(const tcx_layernorm_backward_args* args, const tc_exec* exec);
TC_API tc_status_t tcx_layernorm_backward_workspace(const tcx_layernorm_backward_args* args, const tc_exec* exec,
                                                    size_t* bytes);
TC_C_END

TC_CXX_FACE(layernorm_forward) /* tc::layernorm_forward(args, exec), throws tc::Error */
TC_CXX_FACE(layernorm_backward)
