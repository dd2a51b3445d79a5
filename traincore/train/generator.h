// Writing text with a model: one token at a time, keys and values of earlier positions kept.
#pragma once
#include "traincore/train/decoder.h"
#include "traincore/train/tokenizer.h"

namespace tc::train {

class Generator {
 public:
  // `weights` must outlive the generator and may change between calls of start().
  Generator(const ModelConfig& model, const Weights& weights, int32_t dtype, const tc_exec& exec);

  // Continues `prompt` (at least one token) by `sample.tokens` tokens. When the context is full the model goes on from
  // its second half. The same seed gives the same text.
  std::vector<int32_t> generate(std::span<const int32_t> prompt, const SampleConfig& sample, uint64_t seed);

 private:
  // Runs tokens at positions [past_, past_ + count) and returns the logits of the last one.
  std::vector<float> advance(std::span<const int32_t> tokens);
  std::vector<float> forward(int64_t count);

  struct LayerCache {
    tc_tensor k, v;  // [1, kv_heads, context, head_dim]
  };
  struct Buffers {
    tc_tensor tokens, stream, normed, qkv, attended, block, gate_up, gated;  // one row per position in flight
    tc_tensor logits, logits_f32;                                            // [1, vocab]
    std::vector<LayerCache> caches;
    RopeTables rope;
  };
  Buffers carve(Arena& arena) const;
  void layer(const LayerWeights& w, const LayerCache& cache, bool first, int64_t count) const;

  const ModelConfig& model_;
  const Weights& weights_;
  int32_t dtype_;
  tc_exec exec_;
  Memory memory_;
  Buffers buffers_;
  int64_t past_ = 0;
};

// The next token: logits / temperature, then the top_k likeliest, then the fewest that hold top_p of what is left.
// temperature 0 takes the likeliest, the lowest id of equals. `uniform` is in (0, 1).
int32_t sample_token(std::span<const float> logits, const SampleConfig& sample, double uniform);

}  // namespace tc::train
