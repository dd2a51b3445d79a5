/* Cross entropy of logits with class indices, its gradient, and both in one call.  C11 and C++20.
 *
 *   u = softcap tanh(logit_scale x / softcap), or logit_scale x where softcap is 0      s = label_smoothing
 *   m = max(u), L = log sum exp(u - m), lse = m + L, p = exp(u - lse), w = class_weight[t], or 1, C = classes
 *   row loss = w (1 - s) (lse - u_t) + s (lse - mean(u)) + z_loss lse^2
 *
 * A row whose target is ignore_index counts for nothing: loss, saved values and gradient are exactly 0, and its logits
 * are not read. The rest are valid. loss = the row losses (none), their sum, or the mean = sum / normalizer, where
 * normalizer is the tensor of that name, or the sum of w over the valid rows (their count without class_weight).
 * A normalizer of 0 gives loss 0 and gradient 0.
 *
 *   dlogits = dloss / normalizer [(w (1 - s) + s + 2 z_loss lse) p - s / C - w (1 - s) 1{j = t}] du/dx
 *   du/dx = logit_scale (1 - (u / softcap)^2), or logit_scale
 *
 * The one-pass form (fuse_backward) writes dlogits in the forward call, over the logits themselves if asked.
 * Elements are f32; a row's sums add blocks of 4096 up in f64, and what is one value per row stays f64 until stored.
 *
 * Errors: INVALID_ARG, with nothing written, for a target that is neither ignore_index nor a class; no classes; an
 * option out of its range; class_weight with label_smoothing > 0. On a GPU such a target sets TC_BAD_TARGET in
 * exec.device_errors, and its row's loss and gradient are NaN.
 * Sources: Szegedy et al., "Rethinking the Inception Architecture", CVPR 2016, section 7 (smoothing);
 * Chowdhery et al., "PaLM", 2022, section 5 (z loss); Gemma Team, "Gemma 2", 2024, section 2 (soft cap). */
#pragma once
#include "traincore/core/call.h"

TC_C_BEGIN
typedef struct tcx_cross_entropy_forward_args {
  uint32_t size;          /* sizeof(tcx_cross_entropy_forward_args); use the _default()                    */
  int32_t reduction;      /* TC_REDUCTION_NONE, _SUM or _MEAN; there is no default                         */
  int32_t fuse_backward;  /* 1: write dlogits as well; 0: dlogits and dloss must be absent                 */
  tc_tensor logits;       /* in     [rows... classes], classes > 0                                         */
  tc_tensor target;       /* in     [rows...] i32 or i64, any strides: a class, or ignore_index            */
  tc_tensor class_weight; /* in     [classes] f32, bf16 or f16, optional; not with label_smoothing > 0      */
  tc_tensor normalizer;   /* in     scalar f32, optional, reduction mean: divides in place of the count     */
  tc_tensor dloss;        /* in     as loss, any strides, optional: what arrives at loss; absent: 1         */
  tc_tensor loss;         /* out    [rows...] f32, any strides, for reduction none; else scalar f32         */
  tc_tensor z_loss_part;  /* out    as loss, optional: what z_loss lse^2 contributes to it                  */
  tc_tensor valid_count;  /* out    scalar i64, optional: rows that are not ignored                         */
  tc_tensor row_max;      /* saved  [rows...] f32, any strides: m                                           */
  tc_tensor row_log_sum;  /* saved  [rows...] f32, any strides: L, kept apart from m for its precision      */
  tc_tensor dlogits;      /* out    [rows... classes], with fuse_backward; may be logits                    */
  int64_t ignore_index;   /* -100; any int32, even a class                                                 */
  double label_smoothing; /* in [0, 1]                                                                     */
  double z_loss;          /* >= 0                                                                          */
  double logit_scale;     /* 1; > 0                                                                        */
  double softcap;         /* 0 = none; > 0                                                                 */
} tcx_cross_entropy_forward_args;

typedef struct tcx_cross_entropy_backward_args {
  uint32_t size;
  int32_t reduction;      /* this and every option: as in forward                                          */
  tc_tensor logits;       /* in     [rows... classes]                                                      */
  tc_tensor target;       /* in     [rows...] i32 or i64, any strides                                       */
  tc_tensor class_weight; /* in     [classes], optional                                                    */
  tc_tensor normalizer;   /* in     scalar f32, optional                                                   */
  tc_tensor row_max;      /* in     [rows...] f32, any strides, from forward                                */
  tc_tensor row_log_sum;  /* in     [rows...] f32, any strides, from forward                                */
  tc_tensor dloss;        /* in     [rows...] f32, any strides, for reduction none; else scalar f32         */
  tc_tensor dlogits;      /* out    [rows... classes], may be logits                                       */
  int64_t ignore_index;
  double label_smoothing;
  double z_loss;
  double logit_scale;
  double softcap;
} tcx_cross_entropy_backward_args;

static inline tcx_cross_entropy_forward_args tcx_cross_entropy_forward_args_default(void) {
  tcx_cross_entropy_forward_args a;
  memset(&a, 0, sizeof a);
  a.size = (uint32_t)sizeof a;
  a.ignore_index = -100;
  a.logit_scale = 1;
  return a;
}
static inline tcx_cross_entropy_backward_args tcx_cross_entropy_backward_args_default(void) {
  tcx_cross_entropy_backward_args a;
  memset(&a, 0, sizeof a);
  a.size = (uint32_t)sizeof a;
  a.ignore_index = -100;
  a.logit_scale = 1;
  return a;
}

TC_API tc_status_t tcx_cross_entropy_forward(const tcx_cross_entropy_forward_args* args, const tc_exec* exec);
TC_API tc_status_t tcx_cross_entropy_forward_workspace(const tcx_cross_entropy_forward_args* args, const tc_exec* exec,
                                                       size_t* bytes);
TC_API tc_status_t tcx_cross_entropy_backward(const tcx_cross_entropy_backward_args* args, const tc_exec* exec);
TC_API tc_status_t tcx_cross_entropy_backward_workspace(const tcx_cross_entropy_backward_args* args,
                                                        const tc_exec* exec, size_t* bytes);
TC_C_END

TC_CXX_FACE(cross_entropy_forward) /* tc::cross_entropy_forward(args, exec), throws tc::Error */
TC_CXX_FACE(cross_entropy_backward)
