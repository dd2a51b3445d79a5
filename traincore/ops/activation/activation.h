/* Activations, unary or gated.  C11 and C++20.
 *
 *   y = act(gate)                  unary
 *   y = act(gate) up               gated: SILU is SwiGLU, GELU_* are GeGLU, RELU is ReGLU
 *
 * Backward:
 *   dgate = dy (up) act'(gate)     dup = dy act(gate)     y again, for a caller that did not keep it
 *
 * All tensors have one shape [rows... cols] and one dtype (f32, bf16, f16), each with strides of its own; the product
 * is in f32, with one cast at the end. gate and up may be the two halves of one packed tensor [rows..., 2 cols]: pass
 * views of it, with its row stride; dgate and dup likewise, over the packed tensor itself if it is no longer needed.
 * relu'(0) = relu2'(0) = 0; relu2'(x) = min(2 x, 0x1.fep127) for finite x > 0.
 * The kinds and their formulas: tc_activation_t in traincore/core/types.h.
 * Sources: Hendrycks and Gimpel, arXiv 1606.08415 (GELU and its two approximations); Elfwing, Uchibe and Doya,
 * arXiv 1702.03118 (SiLU); So et al., arXiv 2109.08668 (squared ReLU); Shazeer, arXiv 2002.05202 (gated forms). */
#pragma once
#include "traincore/core/call.h"

TC_C_BEGIN
typedef struct tcx_activation_forward_args {
  uint32_t size;  /* sizeof(tcx_activation_forward_args); use tcx_activation_forward_args_default()    */
  int32_t kind;   /* tc_activation_t; required                                                         */
  tc_tensor gate; /* in     [rows... cols], cols > 0                                                   */
  tc_tensor up;   /* in     [rows... cols], optional: absent is the unary form                         */
  tc_tensor y;    /* out    [rows... cols], may be gate, up, or both where those are one tensor        */
} tcx_activation_forward_args;

typedef struct tcx_activation_backward_args {
  uint32_t size;
  int32_t kind;                 /* as in forward                                                                    */
  tc_tensor dy;                 /* in     [rows... cols]                                                            */
  tc_tensor gate;               /* in     [rows... cols]                                                            */
  tc_tensor up;                 /* in     [rows... cols], present exactly if it was in forward                      */
  tc_tensor dgate;              /* out    [rows... cols], optional                                                  */
  tc_tensor dup;                /* out    [rows... cols], optional; needs up                                        */
  tc_tensor y;                  /* out    [rows... cols], optional: forward's y, recomputed                         */
} tcx_activation_backward_args; /* each output may be dy, gate or up: all are read before any is written */

static inline tcx_activation_forward_args tcx_activation_forward_args_default(void) {
  tcx_activation_forward_args a;
  memset(&a, 0, sizeof a);
  a.size = (uint32_t)sizeof a;
  return a;
}
static inline tcx_activation_backward_args tcx_activation_backward_args_default(void) {
  tcx_activation_backward_args a;
  memset(&a, 0, sizeof a);
  a.size = (uint32_t)sizeof a;
  return a;
}

TC_API tc_status_t tcx_activation_forward(const tcx_activation_forward_args* args, const tc_exec* exec);
TC_API tc_status_t tcx_activation_forward_workspace(const tcx_activation_forward_args* args, const tc_exec* exec,
                                                    size_t* bytes);
TC_API tc_status_t tcx_activation_backward(const tcx_activation_backward_args* args, const tc_exec* exec);
TC_API tc_status_t tcx_activation_backward_workspace(const tcx_activation_backward_args* args, const tc_exec* exec,
                                                     size_t* bytes);
TC_C_END

TC_CXX_FACE(activation_forward) /* tc::activation_forward(args, exec), throws tc::Error */
TC_CXX_FACE(activation_backward)
