// A Llama as Hugging Face `transformers` stores it: config.json plus model.safetensors, or shards listed in
// model.safetensors.index.json, under the tensor names of LlamaForCausalLM.
#pragma once
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "traincore/train/config.h"
#include "traincore/train/safetensors.h"

namespace tc::train {

struct TensorSpec {
  std::string name;
  std::vector<int64_t> shape;  // matrices are [out, in]
};

// Every parameter, in the order of the forward pass; lm_head.weight only if the head is not tied.
std::vector<TensorSpec> llama_tensors(const ModelConfig& model);

// Token ids that config.json names; absent ones are null there.
struct SpecialTokens {
  std::optional<int32_t> bos, eos;
};

// config.json as LlamaForCausalLM reads it; `dtype` is that of the stored weights (f32, bf16 or f16).
nlohmann::json to_llama_json(const ModelConfig& model, int32_t dtype, const SpecialTokens& tokens);

// Reads config.json. Refused: other architectures, and what would change the result but is not supported here: biases,
// scaled or partial rotary positions, quantised weights, dropout, other activations.
ModelConfig read_llama_json(const std::string& path);

// The weights of a folder under one roof, however many files hold them.
class LlamaWeights {
 public:
  // Errors: no weights, a malformed file or index, a tensor that the index promises and the shard lacks.
  explicit LlamaWeights(const std::string& folder);
  std::vector<NamedTensor> tensors() const;
  const tc_tensor* find(std::string_view name) const;  // NULL if there is none
  // What keeps these weights from being `model`, one sentence each: tensors missing, too many, of another shape or
  // dtype.
  std::vector<std::string> problems(const ModelConfig& model) const;

 private:
  std::string folder_;
  std::vector<SafetensorsFile> files_;
};

// Parses a JSON file into an object. Errors: as InputFile, and malformed JSON.
nlohmann::json read_json(const std::string& path);

}  // namespace tc::train
