/* The tables of cos and sin that rope turns by.  C11 and C++20.
 *
 *   cos[r, i] = attention_scaling cos(positions[r] f_i)        sin alike
 *   f_i = base^(-i / half), scaled as below
 *
 * Frequencies and angles are in f64, with one cast at the end, so that position 10^6 is right. half is half the number
 * of elements that turn, not half the head where the rotation is partial.
 *
 * Sources: Su et al., "RoFormer", arXiv 2104.09864. Scalings: Chen et al., arXiv 2306.15595 (linear); bloc97,
 * "NTK-Aware Scaled RoPE", 2023; Peng et al., "YaRN", arXiv 2309.00071, sections 3.2 to 3.4; Llama 3.1's model code. */
#pragma once
#include "traincore/core/call.h"

TC_C_BEGIN
/* The frequency of pair i, from f = base^(-i / half):
 *   NONE    f
 *   LINEAR  f / factor
 *   NTK     (base factor^(d / (d - 2)))^(-i / half), d = 2 half
 *   YARN    f where a pair turns more than beta_fast times within original_max_position, f / factor where it turns
 *           less than beta_slow times, and between them a linear ramp over i
 *   LLAMA3  f for wavelengths below original_max_position / high_freq_factor, f / factor for those above
 *           original_max_position / low_freq_factor, and between them a linear ramp over 1 / wavelength
 *
 * "Dynamic" NTK is NTK with the factor  factor * length / original_max_position - (factor - 1). */
enum {
  TC_ROPE_SCALING_NONE = 0,
  TC_ROPE_SCALING_LINEAR = 1,
  TC_ROPE_SCALING_NTK = 2,
  TC_ROPE_SCALING_YARN = 3,
  TC_ROPE_SCALING_LLAMA3 = 4
};

typedef struct tcx_rope_tables_args {
  uint32_t size;                 /* sizeof(tcx_rope_tables_args); use tcx_rope_tables_args_default()         */
  int32_t scaling;               /* TC_ROPE_SCALING_*                                                          */
  int32_t truncate;              /* YARN: 1 (default) rounds the ramp's ends to whole pairs                    */
  tc_tensor positions;           /* in     [rows...] i32 or i64, any strides, optional; absent: 0 .. rows - 1  */
  tc_tensor cos;                 /* out    [rows... half] f32, bf16 or f16, optional                           */
  tc_tensor sin;                 /* out    as cos, optional                                                    */
  tc_tensor inv_freq;            /* out    [half] f32, optional: f after scaling                               */
  double base;                   /* > 1; there is no default                                                   */
  double factor;                 /* > 0; 1 (default) for NONE                                                  */
  double low_freq_factor;        /* LLAMA3: > 0                                                                */
  double high_freq_factor;       /* LLAMA3: > low_freq_factor                                                  */
  double beta_fast, beta_slow;   /* YARN: 32 and 1 by default, beta_fast > beta_slow > 0                       */
  double attention_scaling;      /* 0 (default): 1, but for YARN with factor > 1: 0.1 ln(factor) + 1           */
  int64_t original_max_position; /* YARN and LLAMA3: the length that the model was trained with                */
} tcx_rope_tables_args;

static inline tcx_rope_tables_args tcx_rope_tables_args_default(void) {
  tcx_rope_tables_args a;
  memset(&a, 0, sizeof a);
  a.size = (uint32_t)sizeof a;
  a.truncate = 1;
  a.factor = 1;
  a.beta_fast = 32;
  a.beta_slow = 1;
  return a;
}

TC_API tc_status_t tcx_rope_tables(const tcx_rope_tables_args* args, const tc_exec* exec);
TC_API tc_status_t tcx_rope_tables_workspace(const tcx_rope_tables_args* args, const tc_exec* exec, size_t* bytes);
TC_C_END

TC_CXX_FACE(rope_tables) /* tc::rope_tables(args, exec), throws tc::Error */
