/* A Llama-style block on the kit: RMSNorm, grouped-query attention with RoPE, SwiGLU, two residuals; forward and
 * backward. Weights and activations have one 16-bit dtype, gradients of weights are f32. */
#pragma once
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <traincore/traincore.h>

enum { kBatch = 2, kSeq = 32, kTokens = kBatch * kSeq, kDim = 64, kHeads = 4, kKvHeads = 2, kHeadDim = 16 };
enum { kPacked = (kHeads + 2 * kKvHeads) * kHeadDim, kHidden = 160 };
static const float kEps = 1e-5f;

#define MUST(call)                                                         \
  do {                                                                     \
    if ((call) != TC_OK) {                                                 \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, tc_last_error()); \
      exit(1);                                                             \
    }                                                                      \
  } while (0)

static inline tc_buffer* buffer_of(tc_context* ctx, size_t bytes) {
  tc_buffer* b = NULL;
  void* p = NULL;
  MUST(tc_buffer_alloc(ctx, bytes, &b));
  MUST(tc_buffer_map(b, &p));
  memset(p, 0, bytes);
  return b;
}
static inline tc_buffer* half_buffer(tc_context* ctx, int n) { return buffer_of(ctx, (size_t)n * 2); }
static inline void* map(tc_buffer* b) {
  void* p = NULL;
  MUST(tc_buffer_map(b, &p));
  return p;
}

/* A weight with all that training keeps of it. */
typedef struct Param {
  int n;
  tc_buffer *w, *grad, *m, *v; /* 16 bits; f32; f32; f32 */
} Param;

static inline Param param_of(tc_context* ctx, int n) {
  const size_t bytes = (size_t)n * sizeof(float);
  Param p = {n, half_buffer(ctx, n), buffer_of(ctx, bytes), buffer_of(ctx, bytes), buffer_of(ctx, bytes)};
  return p;
}

/* y[m, n] = x[m, k] w[k, n] (+ y), and its gradients: dx = dy w^T (+ dx), dw = x^T dy in f32. */
static inline tc_gemm_desc product(int32_t dtype, int m, int n, int k, int accumulate) {
  tc_gemm_desc d;
  memset(&d, 0, sizeof d);
  d.M = m, d.N = n, d.K = k;
  d.a_dtype = d.b_dtype = d.c_dtype = dtype;
  d.accum_dtype = TC_DTYPE_F32;
  d.alpha = 1;
  d.beta = accumulate ? 1.0f : 0.0f;
  return d;
}
static inline void linear(tc_context* ctx, int32_t dtype, tc_buffer* x, const Param* w, tc_buffer* y, int m, int n,
                          int k) {
  const tc_gemm_desc d = product(dtype, m, n, k, 0);
  MUST(tc_gemm(ctx, &d, x, w->w, y));
}
static inline void linear_backward(tc_context* ctx, int32_t dtype, tc_buffer* x, const Param* w, tc_buffer* dy,
                                   tc_buffer* dx, int m, int n, int k, int accumulate) {
  tc_gemm_desc of_x = product(dtype, m, k, n, accumulate), of_w = product(dtype, k, n, m, 0);
  of_x.transpose_b = true;
  of_w.transpose_a = true;
  of_w.c_dtype = TC_DTYPE_F32;
  MUST(tc_gemm(ctx, &of_x, dy, w->w, dx));
  MUST(tc_gemm(ctx, &of_w, x, dy, w->grad));
}

enum { kParams = 7 };
typedef struct Block {
  int32_t dtype;
  Param norm1, qkv, out, norm2, gate, up, down;
  tc_buffer *cos_t, *sin_t;
  /* What forward keeps for backward. */
  tc_buffer *x, *h1, *rstd1, *q, *k, *v, *o, *lse, *merged, *x2, *h2, *rstd2, *g, *u, *a, *y;
  /* Gradients on their way. */
  tc_buffer *dpacked, *dq, *dk, *dv, *dO, *dh, *dg, *du, *da, *dx2, *dx;
} Block;

static inline Block block_of(tc_context* ctx, int32_t dtype, tc_buffer* x) {
  const int td = kTokens * kDim, th = kTokens * kHidden, q = kTokens * kHeads * kHeadDim,
            kv = kTokens * kKvHeads * kHeadDim;
  Block b;
  b.dtype = dtype;
  b.norm1 = param_of(ctx, kDim), b.qkv = param_of(ctx, kDim * kPacked), b.out = param_of(ctx, kHeads * kHeadDim * kDim);
  b.norm2 = param_of(ctx, kDim), b.gate = param_of(ctx, kDim * kHidden), b.up = param_of(ctx, kDim * kHidden);
  b.down = param_of(ctx, kHidden * kDim);
  b.cos_t = buffer_of(ctx, kSeq * kHeadDim / 2 * sizeof(float));
  b.sin_t = buffer_of(ctx, kSeq * kHeadDim / 2 * sizeof(float));
  MUST(tc_rope_tables(ctx, b.cos_t, b.sin_t, kSeq, kHeadDim, 10000, 1));
  b.x = x, b.h1 = half_buffer(ctx, td), b.rstd1 = buffer_of(ctx, kTokens * sizeof(float));
  b.q = half_buffer(ctx, q), b.k = half_buffer(ctx, kv), b.v = half_buffer(ctx, kv), b.o = half_buffer(ctx, q);
  b.lse = buffer_of(ctx, kTokens * kHeads * sizeof(float)), b.merged = half_buffer(ctx, q);
  b.x2 = half_buffer(ctx, td), b.h2 = half_buffer(ctx, td), b.rstd2 = buffer_of(ctx, kTokens * sizeof(float));
  b.g = half_buffer(ctx, th), b.u = half_buffer(ctx, th), b.a = half_buffer(ctx, th), b.y = half_buffer(ctx, td);
  b.dpacked = half_buffer(ctx, kTokens * kPacked), b.dq = half_buffer(ctx, q), b.dk = half_buffer(ctx, kv);
  b.dv = half_buffer(ctx, kv), b.dO = half_buffer(ctx, q), b.dh = half_buffer(ctx, td), b.dg = half_buffer(ctx, th);
  b.du = half_buffer(ctx, th), b.da = half_buffer(ctx, th), b.dx2 = half_buffer(ctx, td), b.dx = half_buffer(ctx, td);
  return b;
}

static inline void block_params(Block* b, Param* list[kParams]) {
  Param* all[kParams] = {&b->norm1, &b->qkv, &b->out, &b->norm2, &b->gate, &b->up, &b->down};
  memcpy(list, all, sizeof all);
}

static inline tc_attention_desc attention_of(const Block* b) {
  tc_attention_desc d;
  memset(&d, 0, sizeof d);
  d.batch = kBatch, d.heads = kHeads, d.kv_heads = kKvHeads, d.seq_q = d.seq_kv = kSeq, d.head_dim = kHeadDim;
  d.io_dtype = b->dtype, d.accum_dtype = TC_DTYPE_F32;
  d.softmax_scale = 1 / sqrtf((float)kHeadDim);
  d.causal = d.return_lse = true;
  return d;
}

/* b->y = the block of b->x, both [kTokens, kDim]. */
static inline void block_forward(tc_context* ctx, Block* b) {
  const tc_attention_desc attention = attention_of(b);
  tc_buffer* const packed = b->dpacked; /* free until backward */
  MUST(tc_rmsnorm_forward(ctx, b->x, b->norm1.w, b->h1, b->rstd1, kTokens, kDim, kEps));
  linear(ctx, b->dtype, b->h1, &b->qkv, packed, kTokens, kPacked, kDim);
  MUST(tc_split_heads(ctx, packed, b->q, b->k, b->v, kBatch, kSeq, kHeads, kKvHeads, kHeadDim));
  MUST(tc_rope_forward(ctx, b->q, b->cos_t, b->sin_t, kBatch, kHeads, kSeq, kHeadDim));
  MUST(tc_rope_forward(ctx, b->k, b->cos_t, b->sin_t, kBatch, kKvHeads, kSeq, kHeadDim));
  MUST(tc_attention_forward(ctx, &attention, b->q, b->k, b->v, b->o, b->lse));
  MUST(tc_merge_heads(ctx, b->o, NULL, NULL, b->merged, kBatch, kSeq, kHeads, 0, kHeadDim));
  linear(ctx, b->dtype, b->merged, &b->out, b->x2, kTokens, kDim, kHeads * kHeadDim);
  MUST(tc_add(ctx, b->x, b->x2, b->x2, kTokens * kDim));
  MUST(tc_rmsnorm_forward(ctx, b->x2, b->norm2.w, b->h2, b->rstd2, kTokens, kDim, kEps));
  linear(ctx, b->dtype, b->h2, &b->gate, b->g, kTokens, kHidden, kDim);
  linear(ctx, b->dtype, b->h2, &b->up, b->u, kTokens, kHidden, kDim);
  MUST(tc_swiglu_forward(ctx, b->g, b->u, b->a, kTokens * kHidden));
  linear(ctx, b->dtype, b->a, &b->down, b->y, kTokens, kDim, kHidden);
  MUST(tc_add(ctx, b->x2, b->y, b->y, kTokens * kDim));
}

/* From dy, the gradient of b->y: b->dx and every weight's grad. */
static inline void block_backward(tc_context* ctx, Block* b, tc_buffer* dy) {
  const tc_attention_desc attention = attention_of(b);
  linear_backward(ctx, b->dtype, b->a, &b->down, dy, b->da, kTokens, kDim, kHidden, 0);
  MUST(tc_swiglu_backward(ctx, b->g, b->u, b->da, b->dg, b->du, kTokens * kHidden));
  linear_backward(ctx, b->dtype, b->h2, &b->gate, b->dg, b->dh, kTokens, kHidden, kDim, 0);
  linear_backward(ctx, b->dtype, b->h2, &b->up, b->du, b->dh, kTokens, kHidden, kDim, 1);
  MUST(tc_rmsnorm_backward(ctx, b->x2, b->norm2.w, b->dh, b->rstd2, b->dx2, b->norm2.grad, kTokens, kDim));
  MUST(tc_add(ctx, dy, b->dx2, b->dx2, kTokens * kDim));

  linear_backward(ctx, b->dtype, b->merged, &b->out, b->dx2, b->dh, kTokens, kDim, kHeads * kHeadDim, 0);
  MUST(tc_split_heads(ctx, b->dh, b->dO, NULL, NULL, kBatch, kSeq, kHeads, 0, kHeadDim));
  MUST(tc_attention_backward(ctx, &attention, b->q, b->k, b->v, b->o, b->dO, b->lse, b->dq, b->dk, b->dv));
  MUST(tc_rope_backward(ctx, b->dq, b->cos_t, b->sin_t, kBatch, kHeads, kSeq, kHeadDim));
  MUST(tc_rope_backward(ctx, b->dk, b->cos_t, b->sin_t, kBatch, kKvHeads, kSeq, kHeadDim));
  MUST(tc_merge_heads(ctx, b->dq, b->dk, b->dv, b->dpacked, kBatch, kSeq, kHeads, kKvHeads, kHeadDim));
  linear_backward(ctx, b->dtype, b->h1, &b->qkv, b->dpacked, b->dh, kTokens, kPacked, kDim, 0);
  MUST(tc_rmsnorm_backward(ctx, b->x, b->norm1.w, b->dh, b->rstd1, b->dx, b->norm1.grad, kTokens, kDim));
  MUST(tc_add(ctx, b->dx2, b->dx, b->dx, kTokens * kDim));
}
