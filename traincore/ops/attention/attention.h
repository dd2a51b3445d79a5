/* Softmax attention, forward and backward, without a quadratic matrix.  C11 and C++20.
 *
 * Query i of a head is at position p = i + offset, where offset is causal_offset if given, else seq_k - seq_q, which
 * puts the last query at the last key (the bottom-right corner). For key j:
 *   s = q_i . k_j      z = scale s      softcap c > 0: z = c tanh(z / c)      z += bias_ij - slope |p - j|
 *   visible: mask_ij is nonzero, j <= p if causal, p - window_left <= j <= p + window_right
 *   o_i = sum over visible j of exp(z - lse) v_j,   lse = log sum over visible j of exp(z)
 * Query head h reads key head h / (heads / kv_heads). A row that sees no key has o = 0, row_max = row_log_sum = 0,
 * lse = -inf and gradients 0; a score of -inf is not seen.
 *
 * Backward, with P = exp(z - lse), delta_i = sum of do_i o_i:
 *   dv = P^T do      dz = P (do v^T - delta)      ds = dz (1 - tanh^2)      dq = scale ds k      dk = scale ds^T q
 *   dbias = dz      dalibi_slopes = -sum of dz |p - j|
 *
 * Dropout: P_ij, in o and in its gradients, is 0 or P_ij / (1 - dropout), decided by word j % 4 of
 * Philox(seed)(r ceil(seq_k / 4) + j / 4), r = (batch heads + head) seq_q + i: dropped if uniform01(word) < dropout.
 * Packed sequences: batch is 1 and sequence n owns queries cu_seqlens_q[n] .. cu_seqlens_q[n+1]-1 and the keys of
 * cu_seqlens_k alike; positions and the offset count within the sequence, mask, bias and dropout from the whole tensor.
 *
 * The full-size tensors share one dtype (f32, bf16, f16); scores, sums and probabilities are f32.
 * Source: Dao, Fu, Ermon, Rudra, Re, "FlashAttention", NeurIPS 2022. */
#pragma once
#include "traincore/core/call.h"

TC_C_BEGIN

typedef struct tcx_attention_forward_args {
  uint32_t size;            /* sizeof(tcx_attention_forward_args); use tcx_attention_forward_args_default()          */
  int32_t causal;           /* 0 or 1                                                                                */
  tc_tensor q;              /* in  [batch heads seq_q head_dim]                                                      */
  tc_tensor k;              /* in  [batch kv_heads seq_k head_dim], heads a multiple of kv_heads                     */
  tc_tensor v;              /* in  [batch kv_heads seq_k value_dim]                                                  */
  tc_tensor mask;           /* in  bool or u8, nonzero = visible; broadcasts to [batch heads seq_q seq_k]            */
  tc_tensor bias;           /* in  f32, bf16 or f16, added to z; broadcasts to [batch heads seq_q seq_k]             */
  tc_tensor alibi_slopes;   /* in  [heads] f32, bf16 or f16                                                          */
  tc_tensor cu_seqlens_q;   /* in  [sequences+1] i32, from 0 to seq_q, never falling; only with cu_seqlens_k         */
  tc_tensor cu_seqlens_k;   /* in  [sequences+1] i32, from 0 to seq_k, never falling                                 */
  tc_tensor o;              /* out [batch heads seq_q value_dim]                                                     */
  tc_tensor precise_output; /* saved [batch heads seq_q value_dim] f32, last dimension contiguous: o before rounding */
  tc_tensor row_max;        /* saved [batch heads seq_q] f32: max of s; of z with softcap, bias or alibi_slopes      */
  tc_tensor row_log_sum;    /* saved [batch heads seq_q] f32: lse - (row_max, times scale where it is a max of s)    */
  tc_tensor lse;            /* out [batch heads seq_q] f32, natural logarithm                                        */
  double scale;             /* > 0; 0 = 1 / sqrt(head_dim)                                                           */
  double softcap;           /* 0 = none, else > 0                                                                    */
  double dropout;           /* probability, 0 <= dropout < 1                                                         */
  int64_t causal_offset;    /* INT64_MIN = seq_k - seq_q; 0 = top-left corner; may be negative                       */
  int64_t window_left;      /* keys before the position that are seen, itself not counted; -1 = all                  */
  int64_t window_right;     /* keys after it; -1 = all                                                               */
  int64_t seed;             /* of dropout                                                                            */
} tcx_attention_forward_args;

typedef struct tcx_attention_backward_args {
  uint32_t size;
  int32_t causal;
  int32_t accumulate; /* 1: dbias and dalibi_slopes (f32) += this call's sums; 0: overwritten                  */
  tc_tensor q, k, v;  /* in  as in forward, here and below                                                     */
  tc_tensor mask, bias, alibi_slopes, cu_seqlens_q, cu_seqlens_k;
  tc_tensor o;              /* in  [batch heads seq_q value_dim]; may be absent where precise_output is given        */
  tc_tensor precise_output; /* in  [batch heads seq_q value_dim] f32, optional, preferred to o                       */
  tc_tensor row_max;        /* in  [batch heads seq_q] f32, from forward                                             */
  tc_tensor row_log_sum;    /* in  [batch heads seq_q] f32, from forward                                             */
  tc_tensor lse;            /* in  [batch heads seq_q] f32, only where the two above are absent: less exact          */
  tc_tensor dout;           /* in  [batch heads seq_q value_dim], named "do"                                         */
  tc_tensor dq;             /* out [batch heads seq_q head_dim], optional, as all below                              */
  tc_tensor dk;             /* out [batch kv_heads seq_k head_dim]: summed over the heads that read it               */
  tc_tensor dv;             /* out [batch kv_heads seq_k value_dim]                                                  */
  tc_tensor dbias;          /* out the shape of bias; f32, bf16 or f16; dimensions of extent 1 are summed            */
  tc_tensor dalibi_slopes;  /* out [heads] f32, bf16 or f16                                                          */
  double scale, softcap, dropout;
  int64_t causal_offset, window_left, window_right, seed;
} tcx_attention_backward_args;

static inline tcx_attention_forward_args tcx_attention_forward_args_default(void) {
  tcx_attention_forward_args a;
  memset(&a, 0, sizeof a);
  a.size = (uint32_t)sizeof a;
  a.causal_offset = INT64_MIN;
  a.window_left = a.window_right = -1;
  return a;
}
static inline tcx_attention_backward_args tcx_attention_backward_args_default(void) {
  tcx_attention_backward_args a;
  memset(&a, 0, sizeof a);
  a.size = (uint32_t)sizeof a;
  a.causal_offset = INT64_MIN;
  a.window_left = a.window_right = -1;
  return a;
}

/* window_left for a model's "window of W tokens", which counts the token itself. 0 is no window; a negative number of
 * tokens gives a window that is refused. */
static inline int64_t tcx_attention_window_left(int64_t tokens) { return tokens < 0 ? -2 : tokens - 1; }

TC_API tc_status_t tcx_attention_forward(const tcx_attention_forward_args* args, const tc_exec* exec);
TC_API tc_status_t tcx_attention_forward_workspace(const tcx_attention_forward_args* args, const tc_exec* exec,
                                                   size_t* bytes);
TC_API tc_status_t tcx_attention_backward(const tcx_attention_backward_args* args, const tc_exec* exec);
TC_API tc_status_t tcx_attention_backward_workspace(const tcx_attention_backward_args* args, const tc_exec* exec,
                                                    size_t* bytes);
TC_C_END

TC_CXX_FACE(attention_forward) /* tc::attention_forward(args, exec), throws tc::Error */
TC_CXX_FACE(attention_backward)
