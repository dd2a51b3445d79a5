/* Random numbers that are a pure function of (seed, stream, index): no generator state.  C11 and C++20.
 *
 * Element i takes w = word (i + first_index) of the Philox4x32-10 sequence (seed, stream), of 32 bits:
 *   uniform    y = low + (high - low) u,  u = (floor(w / 2^9) + 1/2) 2^-23, in (0, 1)
 *   normal     y = mean + std z,  z = sign Q(t),  t = ((w mod 2^31) + 1/2) 2^-32,  sign from the top bit (1: negative)
 *   bernoulli  y = 1 if u < probability, else 0
 * Q(t) is the z above which a standard normal has the probability t. truncate > 0 draws z from the normal law
 * restricted to |z| <= truncate: t becomes c + (1 - 2c) t, c being the probability above truncate.
 *
 * So a tensor filled in parts (first_index), by other threads or in another layout has the same values. The bits of
 * uniform and bernoulli are the same on every device; normal is within 2e-6 std of the exact value.
 * y is f32, bf16 or f16 with any strides; values are made in f32 and rounded once. No backward pass.
 * Errors: distribution not set, a bad parameter, one that belongs to another distribution, y overlaps itself
 * (INVALID_ARG).
 * Sources: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011; Q: Wichura, AS 241, 1988. */
#pragma once
#include "traincore/core/call.h"

TC_C_BEGIN
enum { TC_RANDOM_UNIFORM = 1, TC_RANDOM_NORMAL = 2, TC_RANDOM_BERNOULLI = 3 };

typedef struct tcx_random_args {
  uint32_t size;        /* sizeof(tcx_random_args); use tcx_random_args_default()        */
  int32_t distribution; /* required: one of TC_RANDOM_*                                  */
  tc_tensor y;          /* out    [dims...] f32, bf16 or f16, any strides                */
  int64_t seed;         /* any value; its 64 bits are the key                            */
  int64_t stream;       /* any value; streams of one seed are independent (one a tensor) */
  int64_t first_index;  /* 0; >= 0: the index of y's first element                       */
  double low, high;     /* uniform: 0 and 1, low <= high                                 */
  double mean, std;     /* normal: 0 and 1, std >= 0                                     */
  double truncate;      /* normal: 0 (not truncated), in units of std                    */
  double probability;   /* bernoulli: 0 to 1                                             */
} tcx_random_args;

static inline tcx_random_args tcx_random_args_default(void) {
  tcx_random_args a;
  memset(&a, 0, sizeof a);
  a.size = (uint32_t)sizeof a;
  a.high = 1;
  a.std = 1;
  return a;
}

TC_API tc_status_t tcx_random(const tcx_random_args* args, const tc_exec* exec);
TC_API tc_status_t tcx_random_workspace(const tcx_random_args* args, const tc_exec* exec, size_t* bytes);
TC_C_END

TC_CXX_FACE(random) /* tc::random(args, exec), throws tc::Error */
