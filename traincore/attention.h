/* Softmax attention of the kit, forward and backward, without a quadratic matrix.  C11 and C++20.
 *
 *   o = softmax(softmax_scale q k^T - slope |distance|) v over the visible keys;  lse = natural log of its denominator
 *
 * Q, O and their gradients are [batch, heads, seq_q, head_dim], K, V and theirs [batch, kv_heads, seq_kv, head_dim], all
 * dense, in io_dtype (F16 or BF16); LSE is [batch, heads, seq_q] f32. Query head h reads key head h / (heads / kv_heads).
 * Query i stands at position i + seq_kv - seq_q: the last query at the last key. A row that sees no key has o = 0, lse
 * = -inf and gradients 0.
 *
 * Sizes <= 0, or heads no multiple of kv_heads: INVALID_SHAPE. softmax_scale <= 0, a negative window, return_lse
 * without LSE: INVALID_ARG. accum_dtype other than F32: UNSUPPORTED_DTYPE. More: traincore/ops/attention/attention.h. */
#pragma once
#include "traincore/device.h"

TC_C_BEGIN
typedef struct tc_attention_desc {
  int32_t batch, heads, seq_q, seq_kv, head_dim;
  int32_t io_dtype, accum_dtype; /* tc_dtype_t; 32 bits, so that a wrong value can be refused                     */
  float softmax_scale;           /* commonly 1 / sqrt(head_dim)                                                   */
  bool causal;                   /* no key after the query's position                                             */
  bool return_lse;               /* forward writes LSE; without it LSE is not touched                             */
  int32_t kv_heads;              /* 0 = heads                                                                     */
  int32_t window_size;           /* W > 0: no key more than W before the query's position; 0 = all                */
  const float* alibi_slopes;     /* [heads], the caller's memory, read before the call returns; NULL = none       */
} tc_attention_desc;

TC_API tc_status_t tc_attention_forward(tc_context* ctx, const tc_attention_desc* desc, const tc_buffer* Q,
                                        const tc_buffer* K, const tc_buffer* V, tc_buffer* O, tc_buffer* LSE);
TC_API tc_status_t tc_attention_forward_async(tc_context* ctx, const tc_attention_desc* desc, const tc_buffer* Q,
                                              const tc_buffer* K, const tc_buffer* V, tc_buffer* O, tc_buffer* LSE,
                                              tc_stream* stream);
/* O and LSE are forward's. dK and dV are summed over the query heads that read them. */
TC_API tc_status_t tc_attention_backward(tc_context* ctx, const tc_attention_desc* desc, const tc_buffer* Q,
                                         const tc_buffer* K, const tc_buffer* V, const tc_buffer* O,
                                         const tc_buffer* dO, const tc_buffer* LSE, tc_buffer* dQ, tc_buffer* dK,
                                         tc_buffer* dV);
TC_C_END
