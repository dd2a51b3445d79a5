/* Softmax and log-softmax over the last axis.  C11 and C++20.
 *
 *   softmax      y = exp(x - m) / sum exp(x - m)             dx = y (dy - sum(y dy))
 *   log_softmax  y = (x - m) - log sum exp(x - m)            dx = dy - exp(y) sum(dy)
 *
 * with m = max(x) over the row. Backward needs y alone; nothing else is saved.
 *
 * A row's -inf elements have probability 0. A row of -inf alone: softmax 0, log_softmax -inf, gradient 0. A row with
 * NaN or +inf is NaN. Other rows never notice.
 *
 * All tensors of a call share one dtype (f32, bf16, f16); exponentials and sums are in f32 or better.
 * Errors: cols = 0 is INVALID_ARG. Source: Goodfellow et al., "Deep Learning", 2016, section 4.1. */
#pragma once
#include "traincore/core/call.h"

TC_C_BEGIN
typedef struct tcx_softmax_forward_args {
  uint32_t size; /* sizeof(tcx_softmax_forward_args); use tcx_softmax_forward_args_default() */
  tc_tensor x;   /* in     [rows... cols], cols > 0                                         */
  tc_tensor y;   /* out    [rows... cols], may be x                                         */
} tcx_softmax_forward_args;

typedef struct tcx_softmax_backward_args {
  uint32_t size;
  tc_tensor y;  /* in     [rows... cols], from softmax_forward                              */
  tc_tensor dy; /* in     [rows... cols]                                                    */
  tc_tensor dx; /* out    [rows... cols], may be dy                                         */
} tcx_softmax_backward_args;

typedef struct tcx_log_softmax_forward_args {
  uint32_t size;
  tc_tensor x; /* in     [rows... cols], cols > 0                                           */
  tc_tensor y; /* out    [rows... cols], may be x                                           */
} tcx_log_softmax_forward_args;

typedef struct tcx_log_softmax_backward_args {
  uint32_t size;
  tc_tensor y;  /* in     [rows... cols], from log_softmax_forward                          */
  tc_tensor dy; /* in     [rows... cols]                                                    */
  tc_tensor dx; /* out    [rows... cols], may be dy                                         */
} tcx_log_softmax_backward_args;

static inline tcx_softmax_forward_args tcx_softmax_forward_args_default(void) {
  tcx_softmax_forward_args a;
  memset(&a, 0, sizeof a);
  a.size = (uint32_t)sizeof a;
  return a;
}
static inline tcx_softmax_backward_args tcx_softmax_backward_args_default(void) {
  tcx_softmax_backward_args a;
  memset(&a, 0, sizeof a);
  a.size = (uint32_t)sizeof a;
  return a;
}
static inline tcx_log_softmax_forward_args tcx_log_softmax_forward_args_default(void) {
  tcx_log_softmax_forward_args a;
  memset(&a, 0, sizeof a);
  a.size = (uint32_t)sizeof a;
  return a;
}
static inline tcx_log_softmax_backward_args tcx_log_softmax_backward_args_default(void) {
  tcx_log_softmax_backward_args a;
  memset(&a, 0, sizeof a);
  a.size = (uint32_t)sizeof a;
  return a;
}

TC_API tc_status_t tcx_softmax_forward(const tcx_softmax_forward_args* args, const tc_exec* exec);
TC_API tc_status_t tcx_softmax_forward_workspace(const tcx_softmax_forward_args* args, const tc_exec* exec,
                                                 size_t* bytes);
TC_API tc_status_t tcx_softmax_backward(const tcx_softmax_backward_args* args, const tc_exec* exec);
TC_API tc_status_t tcx_softmax_backward_workspace(const tcx_softmax_backward_args* args, const tc_exec* exec,
                                                  size_t* bytes);
TC_API tc_status_t tcx_log_softmax_forward(const tcx_log_softmax_forward_args* args, const tc_exec* exec);
TC_API tc_status_t tcx_log_softmax_forward_workspace(const tcx_log_softmax_forward_args* args, const tc_exec* exec,
                                                     size_t* bytes);
TC_API tc_status_t tcx_log_softmax_backward(const tcx_log_softmax_backward_args* args, const tc_exec* exec);
TC_API tc_status_t tcx_log_softmax_backward_workspace(const tcx_log_softmax_backward_args* args, const tc_exec* exec,
                                                      size_t* bytes);
TC_C_END

TC_CXX_FACE(softmax_forward) /* tc::softmax_forward(args, exec), throws tc::Error */
TC_CXX_FACE(softmax_backward)
TC_CXX_FACE(log_softmax_forward)
TC_CXX_FACE(log_softmax_backward)
