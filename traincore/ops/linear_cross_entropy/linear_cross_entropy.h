/* Cross entropy of the logits hidden weight^T + bias, which are never in memory as a whole.  C11 and C++20.
 *
 *   x = hidden weight^T + bias, in f32, a chunk of rows at a time; on x everything is as cross_entropy.h says:
 *   u = softcap tanh(logit_scale x / softcap), or logit_scale x where softcap is 0      s = label_smoothing
 *   m = max(u), L = log sum exp(u - m), lse = m + L, p = exp(u - lse), w = class_weight[t], or 1, C = classes
 *   row loss = w (1 - s) (lse - u_t) + s (lse - mean(u)) + z_loss lse^2
 *
 * loss = the row losses (none), their sum, or the mean = sum / normalizer, where normalizer is the tensor of that name,
 * or the sum of w over the valid rows. A normalizer of 0 gives loss 0 and gradients 0. A row whose target is
 * ignore_index counts for nothing: its hidden values are not read; loss, saved values and dhidden are exactly 0. On the
 * CPU it costs nothing; on a GPU, where the device alone knows how many there are, a row of zeros in every product.
 *
 *   dx = dloss / normalizer [(w (1 - s) + s + 2 z_loss lse) p - s / C - w (1 - s) 1{j = t}] du/dx
 *   dhidden = dx weight      dweight = dx^T hidden      dbias = sum over rows of dx
 *
 * The one-pass form: a forward call that is given any of dhidden, dweight and dbias computes them too, from the same
 * logits. Backward has to compute the logits again.
 * dweight and dbias are summed over the chunks in f32, and rounded once if they are stored in 16 bits.
 *
 * Workspace: one chunk of logits and of hidden rows, both f32. A chunk is 2^24 / classes valid rows, but at least 16
 * and at most 1024: 64 MiB of logits up to 2^20 classes. Also one integer a row, and dweight in f32 where it is stored
 * in 16 bits. On a GPU a chunk is 2^27 / classes rows, at least 128 and at most 8192: 512 MiB of logits up to 2^20
 * classes; of tensors of 16 bits their gradient too, in as many parts of 2 bytes as add up to it; 32 MiB for products;
 * and a copy of weight where products cannot read it as it lies, or in f32 where hidden has another dtype.
 *
 * Errors: INVALID_ARG, with nothing written, for a target that is neither ignore_index nor a class; no classes; no
 * width; an option out of its range; class_weight with label_smoothing > 0. On a GPU such a target sets TC_BAD_TARGET
 * in exec.device_errors; its row's loss and dhidden are NaN, and so are dweight and dbias. PIPELINE: there is no
 * libcublasLt, which the first call on a GPU loads, or it fails.
 * Source: Wijmans et al., "Cut Your Losses in Large-Vocabulary Language Models", 2024, for the problem. */
#pragma once
#include "traincore/core/call.h"

TC_C_BEGIN

typedef struct tcx_linear_cross_entropy_forward_args {
  uint32_t size;          /* sizeof(tcx_linear_cross_entropy_forward_args); use the _default()             */
  int32_t reduction;      /* TC_REDUCTION_NONE, _SUM or _MEAN; there is no default                         */
  int32_t accumulate;     /* 1: dweight and dbias (f32) += this call's sums; 0: overwritten                */
  tc_tensor hidden;       /* in     [rows... width], width > 0                                             */
  tc_tensor weight;       /* in     [classes width] f32, bf16 or f16, classes > 0                          */
  tc_tensor bias;         /* in     [classes] f32, bf16 or f16, optional                                   */
  tc_tensor target;       /* in     [rows...] i32 or i64, any strides: a class, or ignore_index            */
  tc_tensor class_weight; /* in     [classes] f32, bf16 or f16, optional; not with label_smoothing > 0     */
  tc_tensor normalizer;   /* in     scalar f32, optional, reduction mean: divides in place of the count    */
  tc_tensor dloss;        /* in     as loss, any strides, optional: what arrives at loss; absent: 1        */
  tc_tensor loss;         /* out    [rows...] f32, any strides, for reduction none; else scalar f32        */
  tc_tensor z_loss_part;  /* out    as loss, optional: what z_loss lse^2 contributes to it                 */
  tc_tensor valid_count;  /* out    scalar i64, optional: rows that are not ignored                        */
  tc_tensor row_max;      /* saved  [rows...] f32, any strides: m                                          */
  tc_tensor row_log_sum;  /* saved  [rows...] f32, any strides: L, kept apart from m for its precision     */
  tc_tensor dhidden;      /* out    [rows... width], optional; may be hidden                               */
  tc_tensor dweight;      /* out    [classes width] f32, bf16 or f16, optional                             */
  tc_tensor dbias;        /* out    [classes] f32, bf16 or f16, optional, with bias                        */
  int64_t ignore_index;   /* -100; any int32, even a class                                                 */
  double label_smoothing; /* in [0, 1]                                                                     */
  double z_loss;          /* >= 0                                                                          */
  double logit_scale;     /* 1; > 0                                                                        */
  double softcap;         /* 0 = none; > 0                                                                 */
} tcx_linear_cross_entropy_forward_args;

typedef struct tcx_linear_cross_entropy_backward_args {
  uint32_t size;
  int32_t reduction; /* this and every option: as in forward                                               */
  int32_t accumulate;
  tc_tensor hidden;       /* in     [rows... width]                                                        */
  tc_tensor weight;       /* in     [classes width]                                                        */
  tc_tensor bias;         /* in     [classes], optional                                                    */
  tc_tensor target;       /* in     [rows...] i32 or i64, any strides                                      */
  tc_tensor class_weight; /* in     [classes], optional                                                    */
  tc_tensor normalizer;   /* in     scalar f32, optional                                                   */
  tc_tensor row_max;      /* in     [rows...] f32, any strides, from forward                               */
  tc_tensor row_log_sum;  /* in     [rows...] f32, any strides, from forward                               */
  tc_tensor dloss;        /* in     [rows...] f32, any strides, for reduction none; else scalar f32        */
  tc_tensor dhidden;      /* out    [rows... width]; may be hidden                                         */
  tc_tensor dweight;      /* out    [classes width] f32, bf16 or f16, optional                             */
  tc_tensor dbias;        /* out    [classes] f32, bf16 or f16, optional, with bias                        */
  int64_t ignore_index;
  double label_smoothing;
  double z_loss;
  double logit_scale;
  double softcap;
} tcx_linear_cross_entropy_backward_args;

static inline tcx_linear_cross_entropy_forward_args tcx_linear_cross_entropy_forward_args_default(void) {
  tcx_linear_cross_entropy_forward_args a;
  memset(&a, 0, sizeof a);
  a.size = (uint32_t)sizeof a;
  a.ignore_index = -100;
  a.logit_scale = 1;
  return a;
}
static inline tcx_linear_cross_entropy_backward_args tcx_linear_cross_entropy_backward_args_default(void) {
  tcx_linear_cross_entropy_backward_args a;
  memset(&a, 0, sizeof a);
  a.size = (uint32_t)sizeof a;
  a.ignore_index = -100;
  a.logit_scale = 1;
  return a;
}

TC_API tc_status_t tcx_linear_cross_entropy_forward(const tcx_linear_cross_entropy_forward_args* args,
                                                    const tc_exec* exec);
TC_API tc_status_t tcx_linear_cross_entropy_forward_workspace(const tcx_linear_cross_entropy_forward_args* args,
                                                              const tc_exec* exec, size_t* bytes);
TC_API tc_status_t tcx_linear_cross_entropy_backward(const tcx_linear_cross_entropy_backward_args* args,
                                                     const tc_exec* exec);
TC_API tc_status_t tcx_linear_cross_entropy_backward_workspace(const tcx_linear_cross_entropy_backward_args* args,
                                                               const tc_exec* exec, size_t* bytes);
TC_C_END

TC_CXX_FACE(linear_cross_entropy_forward) /* tc::linear_cross_entropy_forward(args, exec), throws tc::Error */
TC_CXX_FACE(linear_cross_entropy_backward)
