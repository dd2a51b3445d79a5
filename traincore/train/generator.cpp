#include "traincore/train/generator.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "traincore/core/view.h"
#include "traincore/ops/attention/attention.h"
#include "traincore/train/layers.h"
#include "traincore/train/random_use.h"

namespace tc::train {
namespace {

constexpr int64_t kChunk = 128;  // positions in flight while a prompt is read

// Positions [first, first + count) of a cache.
tc_tensor positions(const tc_tensor& cache, int64_t first, int64_t count) {
  tc_tensor part = cache;
  part.data =
      static_cast<std::byte*>(cache.data) + first * cache.stride[2] * static_cast<int64_t>(tc_dtype_size(cache.dtype));
  part.shape[2] = count;
  return part;
}

}  // namespace

Generator::Generator(const ModelConfig& model, const Weights& weights, int32_t dtype, const tc_exec& exec)
    : model_(model), weights_(weights), dtype_(dtype), exec_(exec) {
  std::tie(memory_, buffers_) = allocate([&](Arena& arena) { return carve(arena); });
  fill_rope_tables(model_, buffers_.rope);
}

Generator::Buffers Generator::carve(Arena& arena) const {
  const ModelConfig& m = model_;
  const auto take = [&](std::initializer_list<int64_t> shape) { return take_tensor(arena, dtype_, shape); };
  Buffers b;
  b.tokens = take_tensor(arena, TC_DTYPE_I32, {kChunk});
  b.stream = take({kChunk, m.dim});
  b.normed = take({kChunk, m.dim});
  b.qkv = take({kChunk, (m.heads + 2 * m.kv_heads) * m.head_dim});
  b.attended = take({kChunk, m.heads * m.head_dim});
  b.block = take({kChunk, m.dim});
  b.gate_up = take({kChunk, 2 * m.ffn});
  b.gated = take({kChunk, m.ffn});
  b.logits = take({1, m.vocab});
  b.logits_f32 = take_tensor(arena, TC_DTYPE_F32, {1, m.vocab});
  for (int64_t i = 0; i < m.layers; ++i)
    b.caches.push_back(
        {.k = take({1, m.kv_heads, m.context, m.head_dim}), .v = take({1, m.kv_heads, m.context, m.head_dim})});
  b.rope = carve_rope_tables(m, arena);
  return b;
}

void Generator::layer(const LayerWeights& w, const LayerCache& cache, bool first, int64_t count) const {
  const auto rows = [&](const tc_tensor& t) { return row_range(t, 0, count); };
  const tc_tensor stream = rows(buffers_.stream), normed = rows(buffers_.normed), block = rows(buffers_.block);
  if (first)
    norm({.x = stream, .y = normed}, w.attention_norm, model_.rms_eps, exec_);
  else
    norm({.x = block, .residual = stream, .residual_out = stream, .y = normed}, w.attention_norm, model_.rms_eps,
         exec_);
  linear(normed, w.qkv, rows(buffers_.qkv), exec_);
  const Heads h = heads_of(model_, rows(buffers_.qkv), 1, count);
  rotate(h, buffers_.rope, past_, exec_);
  convert(h.k, positions(cache.k, past_, count), exec_);
  convert(h.v, positions(cache.v, past_, count), exec_);
  auto args = tcx_attention_forward_args_default();
  args.q = h.q;
  args.k = positions(cache.k, 0, past_ + count);
  args.v = positions(cache.v, 0, past_ + count);
  args.o = split_heads(rows(buffers_.attended), 1, count, model_.heads);
  args.causal = 1;
  attention_forward(args, exec_);
  linear(rows(buffers_.attended), w.attention_out, block, exec_);
  norm({.x = block, .residual = stream, .residual_out = stream, .y = normed}, w.mlp_norm, model_.rms_eps, exec_);
  linear(normed, w.gate_up, rows(buffers_.gate_up), exec_);
  gate(rows(buffers_.gate_up), rows(buffers_.gated), exec_);
  linear(rows(buffers_.gated), w.mlp_down, block, exec_);
}

std::vector<float> Generator::forward(int64_t count) {
  embed(weights_.embedding, row_range(buffers_.tokens, 0, count), row_range(buffers_.stream, 0, count), exec_);
  for (size_t i = 0; i < buffers_.caches.size(); ++i) layer(weights_.layers[i], buffers_.caches[i], i == 0, count);
  const auto last = [&](const tc_tensor& t) { return row_range(t, count - 1, 1); };
  norm({.x = last(buffers_.block), .residual = last(buffers_.stream), .y = last(buffers_.normed)}, weights_.norm,
       model_.rms_eps, exec_);
  linear(last(buffers_.normed), weights_.head, buffers_.logits, exec_);
  convert(buffers_.logits, buffers_.logits_f32, exec_);
  past_ += count;
  const auto* logits = static_cast<const float*>(buffers_.logits_f32.data);
  return {logits, logits + model_.vocab};
}

std::vector<float> Generator::advance(std::span<const int32_t> tokens) {
  std::vector<float> logits;
  while (!tokens.empty()) {
    const auto count = std::min<size_t>(tokens.size(), kChunk);
    std::copy_n(tokens.begin(), count, static_cast<int32_t*>(buffers_.tokens.data));
    logits = forward(static_cast<int64_t>(count));
    tokens = tokens.subspan(count);
  }
  return logits;
}

std::vector<int32_t> Generator::generate(std::span<const int32_t> prompt, const SampleConfig& sample, uint64_t seed) {
  const auto context = static_cast<size_t>(model_.context);
  std::vector<int32_t> text(prompt.begin(), prompt.end());
  const auto recent = [&](size_t most) { return std::span<const int32_t>(text).last(std::min(text.size(), most)); };
  const Philox random = random_for(seed, RandomUse::sampling, 0);
  past_ = 0;
  std::vector<float> logits = advance(recent(context));
  for (int64_t i = 0; i < sample.tokens; ++i) {
    text.push_back(sample_token(logits, sample, uniform01(random(static_cast<uint64_t>(i)).x)));
    if (i + 1 == sample.tokens) break;
    const bool full = past_ == model_.context;
    if (full) past_ = 0;
    logits = advance(recent(full ? std::max<size_t>(context / 2, 1) : 1));
  }
  return {text.begin() + static_cast<int64_t>(prompt.size()), text.end()};
}

int32_t sample_token(std::span<const float> logits, const SampleConfig& sample, double uniform) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto likelier = [&](int32_t a, int32_t b) {
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
  };
  if (sample.temperature == 0) return *std::min_element(order.begin(), order.end(), likelier);
  std::sort(order.begin(), order.end(), likelier);
  if (sample.top_k > 0 && sample.top_k < static_cast<int64_t>(order.size()))
    order.resize(static_cast<size_t>(sample.top_k));
  std::vector<double> weight;
  double total = 0;
  for (const int32_t id : order) {
    weight.push_back(std::exp((static_cast<double>(logits[id]) - logits[order[0]]) / sample.temperature));
    total += weight.back();
  }
  double kept = 0;
  size_t most = 0;
  while (most < weight.size() && (most == 0 || kept < sample.top_p * total)) kept += weight[most++];
  double left = uniform * kept;
  for (size_t i = 0; i < most; ++i)
    if ((left -= weight[i]) < 0) return order[i];
  return order[most - 1];
}

}  // namespace tc::train
