/* The global norm of many gradients, the factor that clips it, and the clipping.  C11 and C++20.
 *
 *   grad_norm   norm = scale sqrt(sum over all tensors of g^2)
 *               clip = scale min(1, max_norm / (norm + 1e-6))      nonfinite = how many elements are Inf or NaN
 *   clip        g = clip g, in place
 *
 * `scale` turns stored gradients into true ones (1 / loss scale, 1 / micro-batches): it is in norm and in clip, so
 * multiplying by clip, here or in adamw, unscales once and clips the true gradients.
 * Squares and their sum are f64, in an order that depends on the sizes alone: half-precision gradients cannot overflow
 * it, and the smallest are not lost. Non-finite gradients give a non-finite norm; pass nonfinite to adamw to skip.
 * The pass is called clip because the scalar is: what grad_norm gives, adamw takes and clip applies.
 * No backward pass. Errors, INVALID_ARG: max_norm without clip or clip without max_norm, scale <= 0.
 * Source: Pascanu, Mikolov, Bengio, "On the difficulty of training recurrent neural networks", ICML 2013, algorithm 1.
 */
#pragma once
#include "traincore/core/call.h"

TC_C_BEGIN
typedef struct tcx_grad_norm_args {
  uint32_t size;          /* sizeof(tcx_grad_norm_args); use tcx_grad_norm_args_default()         */
  const tc_tensor* grads; /* in     each [dims...] f32, bf16 or f16, dense                        */
  int64_t grads_count;
  tc_tensor norm;      /* out    scalar f32; 0 for no tensors                                  */
  tc_tensor clip;      /* out    scalar f32, optional                                          */
  tc_tensor nonfinite; /* out    scalar f32 or i64, optional                                   */
  double max_norm;     /* > 0 if clip is given, else 0                                         */
  double scale;        /* 1; > 0                                                               */
} tcx_grad_norm_args;

typedef struct tcx_clip_args {
  uint32_t size;
  const tc_tensor* grads; /* state  each [dims...] f32, bf16 or f16, dense                        */
  int64_t grads_count;
  tc_tensor clip; /* in     scalar f32; where it is 1 nothing is read or written          */
} tcx_clip_args;

static inline tcx_grad_norm_args tcx_grad_norm_args_default(void) {
  tcx_grad_norm_args a;
  memset(&a, 0, sizeof a);
  a.size = (uint32_t)sizeof a;
  a.scale = 1;
  return a;
}
static inline tcx_clip_args tcx_clip_args_default(void) {
  tcx_clip_args a;
  memset(&a, 0, sizeof a);
  a.size = (uint32_t)sizeof a;
  return a;
}

TC_API tc_status_t tcx_grad_norm(const tcx_grad_norm_args* args, const tc_exec* exec);
TC_API tc_status_t tcx_grad_norm_workspace(const tcx_grad_norm_args* args, const tc_exec* exec, size_t* bytes);
TC_API tc_status_t tcx_clip(const tcx_clip_args* args, const tc_exec* exec);
TC_API tc_status_t tcx_clip_workspace(const tcx_clip_args* args, const tc_exec* exec, size_t* bytes);
TC_C_END

TC_CXX_FACE(grad_norm) /* tc::grad_norm(args, exec), throws tc::Error */
TC_CXX_FACE(clip)
