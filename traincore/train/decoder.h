// The Llama decoder as explicit calls of the ops: what a step keeps for its backward, the forward, the backward.
//
//   h = embedding(tokens);  per layer: h += attention(rope(norm(h) Wqkv)) Wo;  h += (silu(norm(h) Wg) * norm(h) Wu) Wd
//   logits = norm(h) head^T
#pragma once
#include "traincore/ops/attention/attention.h"
#include "traincore/train/weights.h"

namespace tc::train {

struct LayerActivations {
  tc_tensor input, normed, rstd;                 // [rows, dim], [rows, dim], [rows]: the residual stream and its norm
  tc_tensor qkv;                                 // [rows, (heads + 2 kv_heads) head_dim], q and k rotated in place
  tc_tensor attended, row_max, row_log_sum;      // [rows, heads head_dim], [batch, heads, time] twice
  tc_tensor hidden, hidden_normed, hidden_rstd;  // the residual stream after attention, and its norm
  tc_tensor gate_up, gated;                      // [rows, 2 ffn], [rows, ffn]
};

// Everything that one micro-batch needs between and during its two passes; rows = batch * time.
struct Activations {
  int64_t batch = 0, time = 0;
  tc_tensor tokens, targets;  // [batch, time] i32; a target of -100 is ignored
  std::vector<LayerActivations> layers;
  tc_tensor block;                // [rows, dim]: what a block adds to the stream, before it is added
  tc_tensor final, normed, rstd;  // the last residual stream and its norm
  tc_tensor logits;               // [rows, vocab]; after loss_and_gradient, their gradient
  tc_tensor loss;                 // f32 scalar: this micro-batch's share of the step's mean loss
  tc_tensor normalizer;           // f32 scalar: the step's number of valid targets
  tc_tensor valid;                // i64 scalar: this micro-batch's number of valid targets
  tc_tensor dhidden, dnormed, dqkv, dattended, dgate_up, dgated;  // gradients, reused by every layer
};

Activations carve_activations(const ModelConfig& model, int32_t dtype, int64_t batch, int64_t time, Arena& arena);

// Rotary tables for positions 0 .. context - 1.
struct RopeTables {
  tc_tensor cos, sin;  // [context, head_dim / 2] f32
};
RopeTables carve_rope_tables(const ModelConfig& model, Arena& arena);
void fill_rope_tables(const ModelConfig& model, const RopeTables& tables);

class Decoder {
 public:
  Decoder(const ModelConfig& model, const Weights& weights, const RopeTables& rope, const tc_exec& exec)
      : model_(model), weights_(weights), rope_(rope), exec_(exec) {}

  // tokens -> logits.
  void forward(const Activations& a) const;
  // logits, targets, normalizer -> loss, valid; with `gradient`, logits become their own gradient.
  void loss(const Activations& a, bool gradient) const;
  // The workspaces of the ops of both passes, in bytes.
  size_t scratch_bytes(const Activations& a) const;
  // The gradient in a.logits -> every parameter's gradient, added to `gradients` (f32).
  void backward(const Activations& a, const Weights& gradients) const;

 private:
  void attention_forward(const LayerWeights& w, const Activations& a, const LayerActivations& l) const;
  void mlp_forward(const LayerWeights& w, const Activations& a, const LayerActivations& l) const;
  void mlp_backward(const LayerWeights& w, const LayerWeights& d, const Activations& a,
                    const LayerActivations& l) const;
  tcx_attention_backward_args attention_gradient(const Activations& a, const LayerActivations& l) const;
  void attention_backward(const LayerWeights& w, const LayerWeights& d, const Activations& a,
                          const LayerActivations& l) const;

  const ModelConfig& model_;
  const Weights& weights_;
  const RopeTables& rope_;
  const tc_exec& exec_;
};

// The q, k and v parts of a packed projection [rows, ...], as [batch, heads, time, head_dim] views.
struct Heads {
  tc_tensor q, k, v;
};
Heads heads_of(const ModelConfig& model, const tc_tensor& qkv, int64_t batch, int64_t time);
// [rows, heads head_dim] as [batch, heads, time, head_dim].
tc_tensor split_heads(const tc_tensor& t, int64_t batch, int64_t time, int64_t heads);
// Columns [first, first + count) of a [rows, cols] tensor.
tc_tensor columns(const tc_tensor& t, int64_t first, int64_t count);

}  // namespace tc::train
