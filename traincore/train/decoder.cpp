#include "traincore/train/decoder.h"

#include <algorithm>

#include "traincore/core/view.h"
#include "traincore/ops/attention/attention.h"
#include "traincore/ops/cross_entropy/cross_entropy.h"
#include "traincore/ops/rope_tables/rope_tables.h"
#include "traincore/train/layers.h"

namespace tc::train {

Activations carve_activations(const ModelConfig& m, int32_t dtype, int64_t batch, int64_t time, Arena& arena) {
  const int64_t rows = batch * time, q = m.heads * m.head_dim, qkv = q + 2 * m.kv_heads * m.head_dim;
  const auto take = [&](std::initializer_list<int64_t> shape) { return take_tensor(arena, dtype, shape); };
  const auto f32 = [&](std::initializer_list<int64_t> shape) { return take_tensor(arena, TC_DTYPE_F32, shape); };
  const auto i32 = [&](std::initializer_list<int64_t> shape) { return take_tensor(arena, TC_DTYPE_I32, shape); };
  Activations a;
  a.batch = batch;
  a.time = time;
  a.tokens = i32({batch, time});
  a.targets = i32({batch, time});
  for (int64_t i = 0; i < m.layers; ++i)
    a.layers.push_back({.input = take({rows, m.dim}),
                        .normed = take({rows, m.dim}),
                        .rstd = f32({rows}),
                        .qkv = take({rows, qkv}),
                        .attended = take({rows, q}),
                        .row_max = f32({batch, m.heads, time}),
                        .row_log_sum = f32({batch, m.heads, time}),
                        .hidden = take({rows, m.dim}),
                        .hidden_normed = take({rows, m.dim}),
                        .hidden_rstd = f32({rows}),
                        .gate_up = take({rows, 2 * m.ffn}),
                        .gated = take({rows, m.ffn})});
  a.block = take({rows, m.dim});
  a.final = take({rows, m.dim});
  a.normed = take({rows, m.dim});
  a.rstd = f32({rows});
  a.logits = take({rows, m.vocab});
  a.loss = f32({});
  a.normalizer = f32({});
  a.valid = take_tensor(arena, TC_DTYPE_I64, {});
  a.dhidden = take({rows, m.dim});
  a.dnormed = take({rows, m.dim});
  a.dqkv = take({rows, qkv});
  a.dattended = take({rows, q});
  a.dgate_up = take({rows, 2 * m.ffn});
  a.dgated = take({rows, m.ffn});
  return a;
}

RopeTables carve_rope_tables(const ModelConfig& m, Arena& arena) {
  const auto table = [&] { return take_tensor(arena, TC_DTYPE_F32, {m.context, m.head_dim / 2}); };
  return {.cos = table(), .sin = table()};
}

void fill_rope_tables(const ModelConfig& m, const RopeTables& tables) {
  auto args = tcx_rope_tables_args_default();
  args.base = m.rope_theta;
  args.cos = tables.cos;
  args.sin = tables.sin;
  rope_tables(args);
}

tc_tensor columns(const tc_tensor& t, int64_t first, int64_t count) {
  tc_tensor part = t;
  part.data = static_cast<std::byte*>(t.data) + first * static_cast<int64_t>(tc_dtype_size(t.dtype));
  part.shape[1] = count;
  return part;
}

tc_tensor split_heads(const tc_tensor& t, int64_t batch, int64_t time, int64_t heads) {
  const int64_t row = t.stride[0], dim = t.shape[1] / heads;
  tc_tensor view = t;
  view.rank = 4;
  const int64_t shape[] = {batch, heads, time, dim}, stride[] = {time * row, dim, row, 1};
  std::copy_n(shape, 4, view.shape);
  std::copy_n(stride, 4, view.stride);
  return view;
}

Heads heads_of(const ModelConfig& m, const tc_tensor& qkv, int64_t batch, int64_t time) {
  const int64_t q = m.heads * m.head_dim, kv = m.kv_heads * m.head_dim;
  return {.q = split_heads(columns(qkv, 0, q), batch, time, m.heads),
          .k = split_heads(columns(qkv, q, kv), batch, time, m.kv_heads),
          .v = split_heads(columns(qkv, q + kv, kv), batch, time, m.kv_heads)};
}

void Decoder::attention_forward(const LayerWeights& w, const Activations& a, const LayerActivations& l) const {
  linear(l.normed, w.qkv, l.qkv, exec_);
  const Heads h = heads_of(model_, l.qkv, a.batch, a.time);
  rotate(h, rope_, 0, exec_);
  auto args = tcx_attention_forward_args_default();
  args.q = h.q;
  args.k = h.k;
  args.v = h.v;
  args.o = split_heads(l.attended, a.batch, a.time, model_.heads);
  args.row_max = l.row_max;
  args.row_log_sum = l.row_log_sum;
  args.causal = 1;
  tc::attention_forward(args, exec_);
  linear(l.attended, w.attention_out, a.block, exec_);
}

void Decoder::mlp_forward(const LayerWeights& w, const Activations& a, const LayerActivations& l) const {
  linear(l.hidden_normed, w.gate_up, l.gate_up, exec_);
  gate(l.gate_up, l.gated, exec_);
  linear(l.gated, w.mlp_down, a.block, exec_);
}

void Decoder::forward(const Activations& a) const {
  embed(weights_.embedding, a.tokens, a.layers[0].input, exec_);
  const double eps = model_.rms_eps;
  for (size_t i = 0; i < a.layers.size(); ++i) {
    const LayerWeights& w = weights_.layers[i];
    const LayerActivations& l = a.layers[i];
    if (i == 0)
      norm({.x = l.input, .y = l.normed, .rstd = l.rstd}, w.attention_norm, eps, exec_);
    else
      norm({.x = a.block, .residual = a.layers[i - 1].hidden, .residual_out = l.input, .y = l.normed, .rstd = l.rstd},
           w.attention_norm, eps, exec_);
    attention_forward(w, a, l);
    norm({.x = a.block, .residual = l.input, .residual_out = l.hidden, .y = l.hidden_normed, .rstd = l.hidden_rstd},
         w.mlp_norm, eps, exec_);
    mlp_forward(w, a, l);
  }
  norm({.x = a.block, .residual = a.layers.back().hidden, .residual_out = a.final, .y = a.normed, .rstd = a.rstd},
       weights_.norm, eps, exec_);
  linear(a.normed, weights_.head, a.logits, exec_);
}

void Decoder::loss(const Activations& a, bool gradient) const {
  auto args = tcx_cross_entropy_forward_args_default();
  args.logits = a.logits;
  args.target = reshaped(a.targets, {a.batch * a.time});
  args.reduction = TC_REDUCTION_MEAN;
  args.normalizer = a.normalizer;
  args.loss = a.loss;
  args.valid_count = a.valid;
  args.fuse_backward = gradient;
  if (gradient) args.dlogits = a.logits;
  cross_entropy_forward(args, exec_);
}

void Decoder::mlp_backward(const LayerWeights& w, const LayerWeights& d, const Activations& a,
                           const LayerActivations& l) const {
  linear_backward(a.dhidden, l.gated, w.mlp_down, a.dgated, d.mlp_down, exec_);
  gate_backward(l.gate_up, a.dgated, a.dgate_up, exec_);
  linear_backward(a.dgate_up, l.hidden_normed, w.gate_up, a.dnormed, d.gate_up, exec_);
  norm_backward({.dy = a.dnormed, .x = l.hidden, .rstd = l.hidden_rstd, .arriving = a.dhidden, .dx = a.dhidden},
                w.mlp_norm, d.mlp_norm, exec_);
}

tcx_attention_backward_args Decoder::attention_gradient(const Activations& a, const LayerActivations& l) const {
  const Heads h = heads_of(model_, l.qkv, a.batch, a.time), dh = heads_of(model_, a.dqkv, a.batch, a.time);
  auto args = tcx_attention_backward_args_default();
  args.q = h.q;
  args.k = h.k;
  args.v = h.v;
  args.o = split_heads(l.attended, a.batch, a.time, model_.heads);
  args.dout = split_heads(a.dattended, a.batch, a.time, model_.heads);
  args.row_max = l.row_max;
  args.row_log_sum = l.row_log_sum;
  args.dq = dh.q;
  args.dk = dh.k;
  args.dv = dh.v;
  args.causal = 1;
  return args;
}

void Decoder::attention_backward(const LayerWeights& w, const LayerWeights& d, const Activations& a,
                                 const LayerActivations& l) const {
  linear_backward(a.dhidden, l.attended, w.attention_out, a.dattended, d.attention_out, exec_);
  tc::attention_backward(attention_gradient(a, l), exec_);
  rotate_backward(heads_of(model_, a.dqkv, a.batch, a.time), rope_, exec_);
  linear_backward(a.dqkv, l.normed, w.qkv, a.dnormed, d.qkv, exec_);
  norm_backward({.dy = a.dnormed, .x = l.input, .rstd = l.rstd, .arriving = a.dhidden, .dx = a.dhidden},
                w.attention_norm, d.attention_norm, exec_);
}

size_t Decoder::scratch_bytes(const Activations& a) const {
  size_t attention = 0;
  const auto args = attention_gradient(a, a.layers[0]);
  const tc_status_t status = tcx_attention_backward_workspace(&args, &exec_, &attention);
  if (status != TC_OK) throw Error(status, tc_last_error());
  return attention + static_cast<size_t>(a.batch * a.time + model_.vocab) * sizeof(int64_t);  // of embedding's backward
}

void Decoder::backward(const Activations& a, const Weights& gradients) const {
  linear_backward(a.logits, a.normed, weights_.head, a.dnormed, gradients.head, exec_);
  norm_backward({.dy = a.dnormed, .x = a.final, .rstd = a.rstd, .dx = a.dhidden}, weights_.norm, gradients.norm, exec_);
  for (size_t i = a.layers.size(); i-- > 0;) {
    mlp_backward(weights_.layers[i], gradients.layers[i], a, a.layers[i]);
    attention_backward(weights_.layers[i], gradients.layers[i], a, a.layers[i]);
  }
  embed_backward(a.tokens, a.dhidden, gradients.embedding, exec_);
}

}  // namespace tc::train
