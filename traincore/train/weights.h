// The parameters of a Llama as tensors in one block of memory; its gradients, moments and masters have the same shape.
//
// q, k and v lie together as one matrix, and so do gate and up: one product serves each group, and the names under
// which Hugging Face stores them are views of rows.
#pragma once
#include <memory>
#include <vector>

#include "traincore/core/arena.h"
#include "traincore/train/config.h"
#include "traincore/train/safetensors.h"

namespace tc::train {

struct LayerWeights {
  tc_tensor attention_norm;  // [dim]
  tc_tensor qkv;             // [(heads + 2 kv_heads) head_dim, dim]
  tc_tensor attention_out;   // [dim, heads head_dim]
  tc_tensor mlp_norm;        // [dim]
  tc_tensor gate_up;         // [2 ffn, dim]
  tc_tensor mlp_down;        // [dim, ffn]
};

struct Weights {
  tc_tensor embedding;  // [vocab, dim]
  std::vector<LayerWeights> layers;
  tc_tensor norm;  // [dim]
  tc_tensor head;  // [vocab, dim]; the embedding itself if tied
};

// A dense tensor in an arena; `data` is NULL while the arena only counts.
tc_tensor take_tensor(Arena& arena, int32_t dtype, std::initializer_list<int64_t> shape);
// Rows [first, first + count) of a tensor's first dimension.
tc_tensor row_range(const tc_tensor& t, int64_t first, int64_t count);
// The same memory as another shape; `t` must be dense.
tc_tensor reshaped(const tc_tensor& t, std::initializer_list<int64_t> shape);

Weights carve_weights(const ModelConfig& model, int32_t dtype, Arena& arena);

// Every tensor once: matrices (decayed by AdamW), then norm gains.
std::vector<tc_tensor> matrices(const Weights& w);
std::vector<tc_tensor> gains(const Weights& w);

// In the order and under the names of llama_tensors(model), each name behind `prefix`.
std::vector<NamedTensor> named_weights(const ModelConfig& model, const Weights& w, const std::string& prefix = "");

int64_t parameter_count(const ModelConfig& model);

struct UnmapPages {
  size_t bytes = 0;
  void operator()(std::byte* p) const;
};

// One zeroed block of page-aligned memory of the size that `carve` counts; the operating system hands out its pages on
// first use.
class Memory {
 public:
  Memory() = default;
  explicit Memory(size_t bytes);
  std::byte* data() const { return data_.get(); }
  size_t bytes() const { return bytes_; }

 private:
  static std::unique_ptr<std::byte, UnmapPages> map(size_t bytes);
  size_t bytes_ = 0;
  std::unique_ptr<std::byte, UnmapPages> data_;
};

// Counts with `carve`, allocates, and carves for real: {the memory, what carve returned}.
template <class Carve>
auto allocate(Carve&& carve) {
  Arena counting;
  carve(counting);
  Memory memory(counting.used());
  Arena arena(memory.data());
  auto parts = carve(arena);
  return std::pair(std::move(memory), std::move(parts));
}

}  // namespace tc::train
