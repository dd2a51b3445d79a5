/* One value everywhere.  C11 and C++20.
 *
 *   y = value, rounded to f32 and then to y's dtype
 *
 * y is f32, bf16 or f16 with any strides; what lies between its elements is not touched.
 * No backward pass: y depends on no tensor. Errors: value is not finite, or y overlaps itself (INVALID_ARG). */
#pragma once
#include "traincore/core/call.h"

TC_C_BEGIN
typedef struct tcx_fill_args {
  uint32_t size; /* sizeof(tcx_fill_args); use tcx_fill_args_default()  */
  tc_tensor y;   /* out    [dims...] f32, bf16 or f16, any strides      */
  double value;  /* 0                                                   */
} tcx_fill_args;

static inline tcx_fill_args tcx_fill_args_default(void) {
  tcx_fill_args a;
  memset(&a, 0, sizeof a);
  a.size = (uint32_t)sizeof a;
  return a;
}

TC_API tc_status_t tcx_fill(const tcx_fill_args* args, const tc_exec* exec);
TC_API tc_status_t tcx_fill_workspace(const tcx_fill_args* args, const tc_exec* exec, size_t* bytes);
TC_C_END

TC_CXX_FACE(fill) /* tc::fill(args, exec), throws tc::Error */
