/* Rotary position embedding: pairs of a head's elements turn by an angle that grows with the position.  C11 and C++20.
 *
 *   out1 = x1 cos - x2 sin        out2 = x2 cos + x1 sin
 *
 * A row of the tables has one angle per pair, `half` of them: the first 2 half of dim elements turn, the rest is
 * copied. TC_ROPE_HALF         pairs (i, i + half)      Llama and GPT-NeoX checkpoints of Hugging Face
 *   TC_ROPE_INTERLEAVED  pairs (2i, 2i + 1)       RoFormer, GPT-J, and Llama as first released
 *
 * Backward is the transpose, so that tables need not have unit norm: dx1 = g1 cos + g2 sin, dx2 = g2 cos - g1 sin;
 * dcos = g1 x1 + g2 x2, dsin = g2 x1 - g1 x2, summed over the rows of q and of k that a row of the tables turned.
 *
 * q and k are [batch... heads seq dim] (or [seq dim]), f32, bf16 or f16, each with strides of its own: [B, S, H, D] in
 * memory is a view of it, and so is a slice of a packed projection. Tables are f32 (bf16 and f16 are converted), made
 * by rope_tables or by the caller. Products are in f32, with one cast at the end. Which row of the tables turns (b, s):
 *   tables [seq half]                         row s
 *   tables [batch... seq half]                row (b, s)
 *   tables [rows half] and positions          row positions[s] or positions[b, s], which must be in [0, rows)
 *
 * Source: Su et al., "RoFormer", arXiv 2104.09864. */
#pragma once
#include "traincore/core/call.h"

TC_C_BEGIN
enum { TC_ROPE_HALF = 1, TC_ROPE_INTERLEAVED = 2 };

typedef struct tcx_rope_forward_args {
  uint32_t size;       /* sizeof(tcx_rope_forward_args); use tcx_rope_forward_args_default()         */
  int32_t pairing;     /* TC_ROPE_HALF or TC_ROPE_INTERLEAVED; required, because checkpoints differ  */
  tc_tensor q;         /* in     [batch... heads seq dim] or [seq dim]                               */
  tc_tensor k;         /* in     [batch... kv_heads seq dim] or [seq dim], optional                  */
  tc_tensor cos;       /* in     [rows half] or [batch... seq half]; 2 half <= dim                   */
  tc_tensor sin;       /* in     as cos                                                              */
  tc_tensor positions; /* in     [seq] or [batch... seq] i32 or i64, any strides, optional           */
  tc_tensor q_out;     /* out    as q, may be q                                                      */
  tc_tensor k_out;     /* out    as k, may be k; present exactly if k is                             */
} tcx_rope_forward_args;

typedef struct tcx_rope_backward_args {
  uint32_t size;
  int32_t pairing;     /* as in forward                                                              */
  int32_t accumulate;  /* 1: dcos and dsin (f32) += this call's sum; 0: overwritten                  */
  tc_tensor dq_out;    /* in     as q                                                                */
  tc_tensor dk_out;    /* in     as k, optional                                                      */
  tc_tensor q;         /* in     forward's q; needed for dcos and dsin alone                         */
  tc_tensor k;         /* in     forward's k; needed for dcos and dsin alone                         */
  tc_tensor cos;       /* in     as in forward                                                       */
  tc_tensor sin;       /* in     as in forward                                                       */
  tc_tensor positions; /* in     as in forward                                                       */
  tc_tensor dq;        /* out    as q, optional, may be dq_out                                       */
  tc_tensor dk;        /* out    as k, optional, may be dk_out                                       */
  tc_tensor dcos;      /* out    as cos, f32, bf16 or f16, optional                                  */
  tc_tensor dsin;      /* out    as cos, f32, bf16 or f16, optional                                  */
} tcx_rope_backward_args;

static inline tcx_rope_forward_args tcx_rope_forward_args_default(void) {
  tcx_rope_forward_args a;
  memset(&a, 0, sizeof a);
  a.size = (uint32_t)sizeof a;
  return a;
}
static inline tcx_rope_backward_args tcx_rope_backward_args_default(void) {
  tcx_rope_backward_args a;
  memset(&a, 0, sizeof a);
  a.size = (uint32_t)sizeof a;
  return a;
}
TC_API tc_status_t tcx_rope_forward(const tcx_rope_forward_args* args, const tc_exec* exec);
TC_API tc_status_t tcx_rope_forward_workspace(const tcx_rope_forward_args* args, const tc_exec* exec, size_t* bytes);
TC_API tc_status_t tcx_rope_backward(const tcx_rope_backward_args* args, const tc_exec* exec);
TC_API tc_status_t tcx_rope_backward_workspace(const tcx_rope_backward_args* args, const tc_exec* exec, size_t* bytes);
TC_C_END

TC_CXX_FACE(rope_forward) /* tc::rope_forward(args, exec), throws tc::Error */
TC_CXX_FACE(rope_backward)
