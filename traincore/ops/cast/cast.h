/* Conversion between float dtypes, and copies between layouts.  C11 and C++20.
 *
 *   y = x, rounded to y's dtype: to nearest even; subnormals kept; beyond the largest finite number Inf; NaN stays NaN
 *
 * f32, bf16 and f16 in any combination; equal dtypes copy, bit for bit. x and y have one shape and any strides, so a
 * transpose is a cast too; a stride of 0 in x repeats.
 * No backward pass: rounding is not differentiated, so the gradient of x is the cast of dy to x's dtype.
 * Errors: x and y overlap, or y overlaps itself (INVALID_ARG); shapes differ (INVALID_SHAPE). */
#pragma once
#include "traincore/core/call.h"

TC_C_BEGIN
typedef struct tcx_cast_args {
  uint32_t size; /* sizeof(tcx_cast_args); use tcx_cast_args_default()  */
  tc_tensor x;   /* in     [dims...] f32, bf16 or f16, any strides      */
  tc_tensor y;   /* out    [dims...] f32, bf16 or f16, any strides      */
} tcx_cast_args;

static inline tcx_cast_args tcx_cast_args_default(void) {
  tcx_cast_args a;
  memset(&a, 0, sizeof a);
  a.size = (uint32_t)sizeof a;
  return a;
}

TC_API tc_status_t tcx_cast(const tcx_cast_args* args, const tc_exec* exec);
TC_API tc_status_t tcx_cast_workspace(const tcx_cast_args* args, const tc_exec* exec, size_t* bytes);
TC_C_END

TC_CXX_FACE(cast) /* tc::cast(args, exec), throws tc::Error */
