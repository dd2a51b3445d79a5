/* AdamW: one step of many tensors in one call.  C11 and C++20.
 *
 *   g = clip grad      m = beta1 m + (1 - beta1) g      v = beta2 v + (1 - beta2) g^2
 *   mhat = m / (1 - beta1^step)      vhat = v / (1 - beta2^step)
 *   param = param - lr (mhat / (sqrt(vhat) + eps) + weight_decay param)
 *
 * Decay is decoupled and acts on the old parameter; eps is outside the root. Arithmetic is f32, the bias corrections
 * f64. Groups with another weight decay or rate are further calls.
 *
 * How a parameter is kept:
 *   f32                  as it is; copy_out receives it rounded to nearest (bf16 working weights of an f32 master)
 *   bf16 and params_low  exact f32, split: hi = (bits + 0x8000) >> 16, lo = int16(bits - (hi << 16))
 *   bf16, stochastic     rounded up or down with the odds of its distance, so small steps survive on average; element i
 *                        of the call takes the high half of word (i + first_index) of Philox(seed, step)
 *   bf16, nearest        beware: a step smaller than half a bf16 spacing (1/512 of the parameter) is lost entirely
 *
 * lr, step, clip and found_inf are each a number or, so that a captured graph does not freeze them, a scalar tensor.
 * found_inf != 0 (grad_norm's nonfinite): nothing is written at all, and the caller does not count the step.
 * Otherwise non-finite gradients reach the parameters. m, v and step are the caller's to keep.
 * On a GPU a bad lr_tensor or step_tensor sets TC_BAD_SCALAR in exec.device_errors, and nothing is written.
 * Not served, KERNEL_NOT_FOUND: L2 decay (added to the gradient), maximize, amsgrad.
 * Errors, INVALID_ARG: step < 1, a beta outside [0, 1), eps too small for f32, a number and its tensor both given, an
 * option without the parameters it is for.
 * Source: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019, algorithm 2. */
#pragma once
#include "traincore/core/call.h"

TC_C_BEGIN
enum { TC_ROUND_NEAREST = 0, TC_ROUND_STOCHASTIC = 1 };
enum { TC_DECAY_DECOUPLED = 0, TC_DECAY_L2 = 1 };
enum { TC_BAD_SCALAR = 8 }; /* of exec.device_errors: lr_tensor or step_tensor held what lr or step may not be */

typedef struct tcx_adamw_args {
  uint32_t size;           /* sizeof(tcx_adamw_args); use tcx_adamw_args_default()                         */
  int32_t rounding;        /* of bf16 parameters: TC_ROUND_NEAREST or TC_ROUND_STOCHASTIC                  */
  int32_t decay;           /* TC_DECAY_DECOUPLED; TC_DECAY_L2 is refused                                   */
  int32_t maximize;        /* 0; 1 is refused                                                              */
  int32_t amsgrad;         /* 0; 1 is refused                                                              */
  int32_t found_inf;       /* 1: do nothing                                                                */
  const tc_tensor* params; /* state  each [dims...] f32 or bf16, dense, as every tensor of a list          */
  int64_t params_count;
  const tc_tensor* grads; /* in     each [dims...] f32, bf16 or f16                                       */
  int64_t grads_count;
  const tc_tensor* m; /* state  each [dims...] f32: first moments; zero before step 1                 */
  int64_t m_count;
  const tc_tensor* v; /* state  each [dims...] f32: second moments; zero before step 1                */
  int64_t v_count;
  const tc_tensor* params_low; /* state  each [dims...] i16, optional: low halves of split bf16 parameters     */
  int64_t params_low_count;
  const tc_tensor* copy_out; /* out    each [dims...] f32, bf16 or f16, optional: the new f32 parameters     */
  int64_t copy_out_count;
  tc_tensor lr_tensor;        /* in     scalar f32, optional, in place of lr                                  */
  tc_tensor step_tensor;      /* in     scalar i64, optional, in place of step                                */
  tc_tensor clip_tensor;      /* in     scalar f32, optional, in place of clip                                */
  tc_tensor found_inf_tensor; /* in     scalar f32 or i64, optional, in place of found_inf                    */
  double lr;                  /* >= 0; 0 if lr_tensor is given                                                */
  double beta1, beta2;        /* 0.9 and 0.999; in [0, 1)                                                     */
  double eps;                 /* 1e-8; > 0 in f32                                                             */
  double weight_decay;        /* 0; >= 0                                                                      */
  double clip;                /* 1; >= 0: every gradient is multiplied by it (clip factor, 1 / loss scale)    */
  int64_t step;               /* >= 1, counted from 1; 0 if step_tensor is given                              */
  int64_t seed, first_index;  /* of stochastic rounding                                                       */
} tcx_adamw_args;

static inline tcx_adamw_args tcx_adamw_args_default(void) {
  tcx_adamw_args a;
  memset(&a, 0, sizeof a);
  a.size = (uint32_t)sizeof a;
  a.beta1 = 0.9;
  a.beta2 = 0.999;
  a.eps = 1e-8;
  a.clip = 1;
  return a;
}

TC_API tc_status_t tcx_adamw(const tcx_adamw_args* args, const tc_exec* exec);
TC_API tc_status_t tcx_adamw_workspace(const tcx_adamw_args* args, const tc_exec* exec, size_t* bytes);
TC_C_END

TC_CXX_FACE(adamw) /* tc::adamw(args, exec), throws tc::Error */
