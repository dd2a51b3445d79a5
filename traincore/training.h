/* Training kernels of the kit, forward and backward.  C11 and C++20.
 *
 * X, Y, gamma, beta, W and the gradients of activations are f16 (see tc_training_dtype); rstd, mean, dgamma, dbeta, cos,
 * sin and the optimizer's state are f32. Sums are f32, rounded once. Matrices are dense and row-major. Whatever is
 * said of buffers, sizes and statuses in traincore/device.h holds for every call here.
 * The same kernels with strides, other dtypes, other options: traincore/ops/<op>/<op>.h. */
#pragma once
#include "traincore/device.h"

TC_C_BEGIN
/* The dtype of everything said to be f16 above, for this thread's calls from now on: F16 (the default), BF16 or F32.
 * It ends with the context. */
TC_API tc_status_t tc_training_dtype(tc_context* ctx, tc_dtype_t dtype);

/* y = x r gamma, r = rstd = 1 / sqrt(mean(x^2) + eps).  X, Y [N, D], gamma [D], rstd [N]; eps > 0; Y may be X.
 * g = dy gamma: dx = r (g - x r^2 mean(g x)); dgamma [D] f32 = sum over rows of dy x r.  dX may be dY. */
TC_API tc_status_t tc_rmsnorm_forward(tc_context* ctx, const tc_buffer* X, const tc_buffer* gamma, tc_buffer* Y,
                                      tc_buffer* rstd_out, int N, int D, float eps);
TC_API tc_status_t tc_rmsnorm_backward(tc_context* ctx, const tc_buffer* X, const tc_buffer* gamma, const tc_buffer* dY,
                                       const tc_buffer* rstd, tc_buffer* dX, tc_buffer* dgamma, int N, int D);

/* y = (x - mean) r gamma + beta, r = 1 / sqrt(mean((x - mean)^2) + eps).  mean and rstd [N].  Y may be X, dX may be dY.
 * g = dy gamma, c = x - mean: dx = r (g - mean(g) - c r^2 mean(g c)); dgamma, dbeta [D] f32 = sums over rows of dy c r
 * and of dy. */
TC_API tc_status_t tc_layernorm_forward(tc_context* ctx, const tc_buffer* X, const tc_buffer* gamma,
                                        const tc_buffer* beta, tc_buffer* Y, tc_buffer* mean_out, tc_buffer* rstd_out,
                                        int N, int D, float eps);
TC_API tc_status_t tc_layernorm_backward(tc_context* ctx, const tc_buffer* X, const tc_buffer* gamma,
                                         const tc_buffer* dY, const tc_buffer* mean, const tc_buffer* rstd,
                                         tc_buffer* dX, int N, int D);
TC_API tc_status_t tc_layernorm_backward_params(tc_context* ctx, const tc_buffer* X, const tc_buffer* dY,
                                                const tc_buffer* mean, const tc_buffer* rstd, tc_buffer* dgamma,
                                                tc_buffer* dbeta, int N, int D);

/* Y = Norm(X) W for inference, the normalised row never rounded.  X [M, K], W [K, N], Y [M, N]; Y overlaps nothing. */
TC_API tc_status_t tc_fused_rmsnorm_gemv(tc_context* ctx, const tc_buffer* X, const tc_buffer* gamma,
                                         const tc_buffer* W, tc_buffer* Y, int M, int N, int K, float eps);
TC_API tc_status_t tc_fused_layernorm_gemv(tc_context* ctx, const tc_buffer* X, const tc_buffer* gamma,
                                           const tc_buffer* beta, const tc_buffer* W, tc_buffer* Y, int M, int N, int K,
                                           float eps);

/* Rotary embedding, in place, of X [batch, heads, seq, head_dim]; cos_t and sin_t [seq, head_dim / 2] f32. Element i
 * turns with i + head_dim / 2: x1' = x1 cos - x2 sin, x2' = x2 cos + x1 sin. Backward, in place on dX, is the
 * transpose. tc_rope_tables: cos and sin of s scale base^(-2k / head_dim), from f64; base > 1, scale > 0. */
TC_API tc_status_t tc_rope_forward(tc_context* ctx, tc_buffer* X, const tc_buffer* cos_t, const tc_buffer* sin_t,
                                   int batch, int heads, int seq, int head_dim);
TC_API tc_status_t tc_rope_backward(tc_context* ctx, tc_buffer* dX, const tc_buffer* cos_t, const tc_buffer* sin_t,
                                    int batch, int heads, int seq, int head_dim);
TC_API tc_status_t tc_rope_tables(tc_context* ctx, tc_buffer* cos_t, tc_buffer* sin_t, int seq, int head_dim,
                                  double base, double scale);

/* out = silu(gate) up, n elements; out may be gate, up or both. dgate = dout up silu'(gate), dup = dout silu(gate);
 * each may be dout, gate or up. */
TC_API tc_status_t tc_swiglu_forward(tc_context* ctx, const tc_buffer* gate, const tc_buffer* up, tc_buffer* out,
                                     int n);
TC_API tc_status_t tc_swiglu_backward(tc_context* ctx, const tc_buffer* gate, const tc_buffer* up,
                                      const tc_buffer* dout, tc_buffer* dgate, tc_buffer* dup, int n);

/* y = exp(x - max) / sum exp(x - max) over each row of X [N, D]; Y may be X.  dx = y (dy - sum(y dy)); dX may be dY. */
TC_API tc_status_t tc_softmax_forward(tc_context* ctx, const tc_buffer* X, tc_buffer* Y, int N, int D);
TC_API tc_status_t tc_softmax_backward(tc_context* ctx, const tc_buffer* Y, const tc_buffer* dY, tc_buffer* dX, int N,
                                       int D);

/* AdamW with decoupled decay, n parameters, in place; params, m and v are f32, m and v zero before the first step:
 *   m = beta1 m + (1 - beta1) g      v = beta2 v + (1 - beta2) g^2
 *   p = p - lr ((m / bc1) / (sqrt(v / bc2) + eps) + wd p)
 * bc1 and bc2 > 0 correct the bias: 1 - beta1^t and 1 - beta2^t at step t = 1, 2, ... grads are F16, BF16 or F32. */
TC_API tc_status_t tc_adamw_step(tc_context* ctx, tc_buffer* params_fp32, tc_buffer* m_fp32, tc_buffer* v_fp32,
                                 const tc_buffer* grads, tc_dtype_t grad_dtype, int n, float lr, float beta1,
                                 float beta2, float eps, float wd, float bc1, float bc2);
/* The same for bf16 parameters, which are rounded up or down at random, with the odds of their distance, so that steps
 * below half a spacing survive on average. Give every step another seed. */
TC_API tc_status_t tc_adamw_step_bf16(tc_context* ctx, tc_buffer* params_bf16, tc_buffer* m_fp32, tc_buffer* v_fp32,
                                      const tc_buffer* grads, tc_dtype_t grad_dtype, int n, float lr, float beta1,
                                      float beta2, float eps, float wd, float bc1, float bc2, uint64_t seed);

/* y = a + b, n elements; Y may be A or B. */
TC_API tc_status_t tc_add(tc_context* ctx, const tc_buffer* A, const tc_buffer* B, tc_buffer* Y, int n);

/* Between the rows of a packed projection and heads: QKV [batch, seq, (heads + 2 kv_heads) head_dim] <-> Q [batch,
 * heads, seq, head_dim], K and V [batch, kv_heads, seq, head_dim]. With K and V NULL and kv_heads 0 it is Q alone:
 * [batch, seq, heads head_dim] <-> [batch, heads, seq, head_dim]. Each is the other's backward. Nothing in place. */
TC_API tc_status_t tc_split_heads(tc_context* ctx, const tc_buffer* QKV, tc_buffer* Q, tc_buffer* K, tc_buffer* V,
                                  int batch, int seq, int heads, int kv_heads, int head_dim);
TC_API tc_status_t tc_merge_heads(tc_context* ctx, const tc_buffer* Q, const tc_buffer* K, const tc_buffer* V,
                                  tc_buffer* QKV, int batch, int seq, int heads, int kv_heads, int head_dim);
TC_C_END
