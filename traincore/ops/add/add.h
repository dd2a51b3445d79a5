/* The weighted sum of two tensors: residual adds, gradient accumulation, moving averages.  C11 and C++20.
 *
 *   y = alpha a + beta b, in f32, rounded once to y's dtype
 *
 * a, b and y are f32, bf16 or f16, each its own; they have one shape and any strides. A stride of 0 in a or b repeats,
 * which is how a vector is added to every row. y may be a or b, exactly: then the sum is in place.
 * No backward pass: the gradients are da = alpha dy and db = beta dy, so a plain sum hands dy on.
 * Errors: y overlaps a or b in part, or itself (INVALID_ARG); shapes differ (INVALID_SHAPE). */
#pragma once
#include "traincore/core/call.h"

TC_C_BEGIN
typedef struct tcx_add_args {
  uint32_t size; /* sizeof(tcx_add_args); use tcx_add_args_default()                  */
  tc_tensor a;   /* in     [dims...] f32, bf16 or f16, any strides                    */
  tc_tensor b;   /* in     [dims...] f32, bf16 or f16, any strides                    */
  tc_tensor y;   /* out    [dims...] f32, bf16 or f16, any strides; may be a or b     */
  double alpha;  /* 1                                                                 */
  double beta;   /* 1                                                                 */
} tcx_add_args;

static inline tcx_add_args tcx_add_args_default(void) {
  tcx_add_args a;
  memset(&a, 0, sizeof a);
  a.size = (uint32_t)sizeof a;
  a.alpha = 1;
  a.beta = 1;
  return a;
}

TC_API tc_status_t tcx_add(const tcx_add_args* args, const tc_exec* exec);
TC_API tc_status_t tcx_add_workspace(const tcx_add_args* args, const tc_exec* exec, size_t* bytes);
TC_C_END

TC_CXX_FACE(add) /* tc::add(args, exec), throws tc::Error */
