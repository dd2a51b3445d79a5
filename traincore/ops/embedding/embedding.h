/* Embedding: rows of a table, by id.  C11 and C++20.
 *
 *   y[r] = weight[ids[r]]      dweight[v] = sum of dy[r] over the rows r with ids[r] = v, in their order
 *
 * weight, y and dy share one dtype (f32, bf16, f16); dweight may have any of them; the sum is in f32, with one cast at
 * the end. Rows of dweight that no id names become 0, or keep their values when accumulating.
 * An id outside [0, vocab) is refused before anything is written; on a GPU it sets TC_BAD_ID in exec.device_errors, and
 * its row of y is NaN, its row of dy left out. */
#pragma once
#include "traincore/core/call.h"

TC_C_BEGIN
typedef struct tcx_embedding_forward_args {
  uint32_t size;    /* sizeof(tcx_embedding_forward_args); use tcx_embedding_forward_args_default() */
  tc_tensor ids;    /* in     [rows...] i32 or i64, any strides                                     */
  tc_tensor weight; /* in     [vocab dim], dim > 0                                                  */
  tc_tensor y;      /* out    [rows... dim]                                                         */
} tcx_embedding_forward_args;

typedef struct tcx_embedding_backward_args {
  uint32_t size;
  int32_t accumulate; /* 1: dweight (f32) += this call's sum; 0: overwritten                          */
  tc_tensor dy;       /* in     [rows... dim]                                                         */
  tc_tensor ids;      /* in     [rows...] i32 or i64, any strides                                     */
  tc_tensor dweight;  /* out    [vocab dim] f32, bf16 or f16                                          */
} tcx_embedding_backward_args;

static inline tcx_embedding_forward_args tcx_embedding_forward_args_default(void) {
  tcx_embedding_forward_args a;
  memset(&a, 0, sizeof a);
  a.size = (uint32_t)sizeof a;
  return a;
}
static inline tcx_embedding_backward_args tcx_embedding_backward_args_default(void) {
  tcx_embedding_backward_args a;
  memset(&a, 0, sizeof a);
  a.size = (uint32_t)sizeof a;
  return a;
}

TC_API tc_status_t tcx_embedding_forward(const tcx_embedding_forward_args* args, const tc_exec* exec);
TC_API tc_status_t tcx_embedding_forward_workspace(const tcx_embedding_forward_args* args, const tc_exec* exec,
                                                   size_t* bytes);
TC_API tc_status_t tcx_embedding_backward(const tcx_embedding_backward_args* args, const tc_exec* exec);
TC_API tc_status_t tcx_embedding_backward_workspace(const tcx_embedding_backward_args* args, const tc_exec* exec,
                                                    size_t* bytes);
TC_C_END

TC_CXX_FACE(embedding_forward) /* tc::embedding_forward(args, exec), throws tc::Error */
TC_CXX_FACE(embedding_backward)
