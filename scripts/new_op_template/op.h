/* @op@: y = x^2, element by element.  C11 and C++20.
 *
 *   forward   y = x^2
 *   backward  dx = 2 x dy
 *
 * x, y, dy and dx share one dtype (f32, bf16, f16); the maths is in f32, rounded once. Saves nothing.
 * Errors: INVALID_SHAPE for disagreeing shapes, UNSUPPORTED_DTYPE, INVALID_ARG for a missing tensor or an inner stride. */
#pragma once
#include "traincore/core/call.h"

TC_C_BEGIN
typedef struct tcx_@op@_forward_args {
  uint32_t size; /* sizeof(tcx_@op@_forward_args); use tcx_@op@_forward_args_default() */
  tc_tensor x;   /* in   [rows... cols]            */
  tc_tensor y;   /* out  [rows... cols], may be x  */
} tcx_@op@_forward_args;

typedef struct tcx_@op@_backward_args {
  uint32_t size;
  tc_tensor dy; /* in   [rows... cols]            */
  tc_tensor x;  /* in   [rows... cols]            */
  tc_tensor dx; /* out  [rows... cols], may be dy */
} tcx_@op@_backward_args;

static inline tcx_@op@_forward_args tcx_@op@_forward_args_default(void) {
  tcx_@op@_forward_args a;
  memset(&a, 0, sizeof a);
  a.size = (uint32_t)sizeof a;
  return a;
}
static inline tcx_@op@_backward_args tcx_@op@_backward_args_default(void) {
  tcx_@op@_backward_args a;
  memset(&a, 0, sizeof a);
  a.size = (uint32_t)sizeof a;
  return a;
}

TC_API tc_status_t tcx_@op@_forward(const tcx_@op@_forward_args* args, const tc_exec* exec);
TC_API tc_status_t tcx_@op@_forward_workspace(const tcx_@op@_forward_args* args, const tc_exec* exec, size_t* bytes);
TC_API tc_status_t tcx_@op@_backward(const tcx_@op@_backward_args* args, const tc_exec* exec);
TC_API tc_status_t tcx_@op@_backward_workspace(const tcx_@op@_backward_args* args, const tc_exec* exec, size_t* bytes);
TC_C_END

TC_CXX_FACE(@op@_forward) /* tc::@op@_forward(args, exec), throws tc::Error */
TC_CXX_FACE(@op@_backward)
