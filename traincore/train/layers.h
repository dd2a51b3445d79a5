// The decoder's ops with the arguments that every layer has in common, so that a layer reads as its formula.
#pragma once
#include "traincore/ops/activation/activation.h"
#include "traincore/ops/cast/cast.h"
#include "traincore/ops/embedding/embedding.h"
#include "traincore/ops/gemm/gemm.h"
#include "traincore/ops/rmsnorm/rmsnorm.h"
#include "traincore/ops/rope/rope.h"
#include "traincore/train/decoder.h"

namespace tc::train {

// y = x w^T; w is [out, in] as Hugging Face stores it.
inline void linear(const tc_tensor& x, const tc_tensor& w, const tc_tensor& y, const tc_exec& exec) {
  auto args = tcx_gemm_forward_args_default();
  args.a = x;
  args.b = w;
  args.transpose_b = 1;
  args.c = y;
  gemm_forward(args, exec);
}

// dx = dy w (if dx is given); dw += dy^T x.
inline void linear_backward(const tc_tensor& dy, const tc_tensor& x, const tc_tensor& w, const tc_tensor& dx,
                            const tc_tensor& dw, const tc_exec& exec) {
  auto args = tcx_gemm_backward_args_default();
  args.dc = dy;
  args.a = x;
  args.b = w;
  args.transpose_b = 1;
  args.da = dx;
  args.db = dw;
  args.accumulate = 1;
  gemm_backward(args, exec);
}

struct NormForward {
  tc_tensor x, residual, residual_out, y, rstd;  // residual, residual_out and rstd may be absent
};
// y = norm(x + residual) gain; residual_out = x + residual.
inline void norm(const NormForward& n, const tc_tensor& gain, double eps, const tc_exec& exec) {
  auto args = tcx_rmsnorm_forward_args_default();
  args.x = n.x;
  args.residual = n.residual;
  args.residual_out = n.residual_out;
  args.weight = gain;
  args.y = n.y;
  args.rstd = n.rstd;
  args.eps = eps;
  rmsnorm_forward(args, exec);
}

struct NormBackward {
  tc_tensor dy, x, rstd, arriving,
      dx;  // x: the sum that was normalised; arriving: its gradient from elsewhere, may be absent
};
// dx = d norm(x) + arriving; dgain += ...
inline void norm_backward(const NormBackward& n, const tc_tensor& gain, const tc_tensor& dgain, const tc_exec& exec) {
  auto args = tcx_rmsnorm_backward_args_default();
  args.dy = n.dy;
  args.x = n.x;
  args.rstd = n.rstd;
  args.dresidual_out = n.arriving;
  args.weight = gain;
  args.dx = n.dx;
  args.dweight = dgain;
  args.accumulate = 1;
  rmsnorm_backward(args, exec);
}

// Turns q and k in place; their first position is row `first` of the tables.
inline void rotate(const Heads& h, const RopeTables& rope, int64_t first, const tc_exec& exec) {
  auto args = tcx_rope_forward_args_default();
  args.pairing = TC_ROPE_HALF;
  args.q = args.q_out = h.q;
  args.k = args.k_out = h.k;
  args.cos = row_range(rope.cos, first, h.q.shape[2]);
  args.sin = row_range(rope.sin, first, h.q.shape[2]);
  rope_forward(args, exec);
}
// Turns their gradients back, in place.
inline void rotate_backward(const Heads& d, const RopeTables& rope, const tc_exec& exec) {
  auto args = tcx_rope_backward_args_default();
  args.pairing = TC_ROPE_HALF;
  args.dq_out = args.dq = d.q;
  args.dk_out = args.dk = d.k;
  args.cos = row_range(rope.cos, 0, d.q.shape[2]);
  args.sin = row_range(rope.sin, 0, d.q.shape[2]);
  rope_backward(args, exec);
}

// y = silu(gate) up; gate and up are the halves of `gate_up`.
inline void gate(const tc_tensor& gate_up, const tc_tensor& y, const tc_exec& exec) {
  auto args = tcx_activation_forward_args_default();
  args.kind = TC_ACTIVATION_SILU;
  args.gate = columns(gate_up, 0, y.shape[1]);
  args.up = columns(gate_up, y.shape[1], y.shape[1]);
  args.y = y;
  activation_forward(args, exec);
}
inline void gate_backward(const tc_tensor& gate_up, const tc_tensor& dy, const tc_tensor& dgate_up,
                          const tc_exec& exec) {
  auto args = tcx_activation_backward_args_default();
  const int64_t half = dy.shape[1];
  args.kind = TC_ACTIVATION_SILU;
  args.dy = dy;
  args.gate = columns(gate_up, 0, half);
  args.up = columns(gate_up, half, half);
  args.dgate = columns(dgate_up, 0, half);
  args.dup = columns(dgate_up, half, half);
  activation_backward(args, exec);
}

// y = rows of the table.
inline void embed(const tc_tensor& table, const tc_tensor& tokens, const tc_tensor& y, const tc_exec& exec) {
  auto args = tcx_embedding_forward_args_default();
  args.weight = table;
  args.ids = reshaped(tokens, {y.shape[0]});
  args.y = y;
  embedding_forward(args, exec);
}
inline void embed_backward(const tc_tensor& tokens, const tc_tensor& dy, const tc_tensor& dtable, const tc_exec& exec) {
  auto args = tcx_embedding_backward_args_default();
  args.dy = dy;
  args.ids = reshaped(tokens, {dy.shape[0]});
  args.dweight = dtable;
  args.accumulate = 1;
  embedding_backward(args, exec);
}

// y = x in y's dtype and layout.
inline void convert(const tc_tensor& x, const tc_tensor& y, const tc_exec& exec) {
  auto args = tcx_cast_args_default();
  args.x = x;
  args.y = y;
  cast(args, exec);
}

}  // namespace tc::train
