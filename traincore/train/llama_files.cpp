#include "traincore/train/llama_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "traincore/core/fail.h"

namespace tc::train {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kModel = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

bool absent(const json& config, const char* key) {
  const auto at = config.find(key);
  return at == config.end() || at->is_null();
}

int64_t whole(const std::string& path, const json& config, const char* key, std::optional<int64_t> otherwise = {}) {
  require(!absent(config, key) || otherwise, "{}: {} is missing", path, key);
  if (absent(config, key)) return *otherwise;
  const json& value = config.at(key);
  require(value.is_number_integer(), "{}: {} must be a whole number, not {}", path, key, value.dump());
  return value.get<int64_t>();
}

double real(const std::string& path, const json& config, const char* key, double otherwise) {
  if (absent(config, key)) return otherwise;
  require(config.at(key).is_number(), "{}: {} must be a number, not {}", path, key, config.at(key).dump());
  return config.at(key).get<double>();
}

void check_architecture(const std::string& path, const json& config) {
  const json type = config.value("model_type", json()), architectures = config.value("architectures", json());
  require(type == "llama", "{}: model_type is {}; only \"llama\" is supported", path, type.dump());
  require(architectures.is_null() || architectures == json::array({"LlamaForCausalLM"}),
          "{}: architectures is {}; only [\"LlamaForCausalLM\"] is supported", path, architectures.dump());
}

// A setting that changes the result is accepted only with the value that this trainer computes.
void check_only(const std::string& path, const json& config, const char* key, const json& supported) {
  require(absent(config, key) || config.at(key) == supported, "{}: {} = {} is not supported; only {} is", path, key,
          config.value(key, json()).dump(), supported.dump());
}

// `rope_theta` and `rope_scaling`, or since transformers 5 both inside `rope_parameters`.
double rope_theta(const std::string& path, const json& config) {
  constexpr double kDefault = 10000;
  check_only(path, config, "rope_scaling", nullptr);
  check_only(path, config, "partial_rotary_factor", 1.0);
  const double theta = real(path, config, "rope_theta", kDefault);
  if (absent(config, "rope_parameters")) return theta;
  const json& rope = config.at("rope_parameters");
  require(rope.is_object(), "{}: rope_parameters must be an object, not {}", path, rope.dump());
  check_only(path, rope, "rope_type", "default");
  check_only(path, rope, "partial_rotary_factor", 1.0);
  return real(path, rope, "rope_theta", theta);
}

void check_ranges(const std::string& path, const ModelConfig& model) {
  TrainConfig config = resolve_config("tiny", "", {});
  config.model = model;
  try {
    validate(config);
  } catch (const Error& e) {
    fail(e.code, "{}: {}", path, e.what());
  }
}

std::string shape_text(std::span<const int64_t> shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

bool is_float(int32_t dtype) { return dtype == TC_DTYPE_F32 || dtype == TC_DTYPE_BF16 || dtype == TC_DTYPE_F16; }

// Buffers that old versions of transformers stored and that follow from config.json, and the second copy of a tied
// head.
bool is_redundant(const std::string& name, const ModelConfig& model) {
  return name.ends_with(".rotary_emb.inv_freq") || (model.tied && name == "lm_head.weight");
}

// The shards that an index names, each once; checks that every tensor is where the index says.
std::vector<SafetensorsFile> open_shards(const std::string& folder) {
  const std::string path = (fs::path(folder) / kIndex).string();
  const json index = read_json(path);
  const json map = index.value("weight_map", json());
  require(map.is_object() && !map.empty(), "{}: there is no \"weight_map\"", path);
  std::map<std::string, std::vector<std::string>> names_by_file;
  for (const auto& [tensor, file] : map.items()) {
    require(file.is_string() && file.get<std::string>().find('/') == std::string::npos,
            "{}: tensor {} is said to be in {}, which is no file name", path, tensor, file.dump());
    names_by_file[file.get<std::string>()].push_back(tensor);
  }
  std::vector<SafetensorsFile> files;
  for (const auto& [name, tensors] : names_by_file) {
    const SafetensorsFile& file = files.emplace_back((fs::path(folder) / name).string());
    for (const std::string& tensor : tensors)
      require(file.find(tensor) != nullptr, "{}: tensor {} should be in {}, but is not", path, tensor, name);
  }
  return files;
}

}  // namespace

std::vector<TensorSpec> llama_tensors(const ModelConfig& m) {
  const int64_t q = m.heads * m.head_dim, kv = m.kv_heads * m.head_dim;
  std::vector<TensorSpec> specs{{"model.embed_tokens.weight", {m.vocab, m.dim}}};
  for (int64_t layer = 0; layer < m.layers; ++layer) {
    const std::string prefix = fmt::format("model.layers.{}.", layer);
    specs.push_back({prefix + "input_layernorm.weight", {m.dim}});
    specs.push_back({prefix + "self_attn.q_proj.weight", {q, m.dim}});
    specs.push_back({prefix + "self_attn.k_proj.weight", {kv, m.dim}});
    specs.push_back({prefix + "self_attn.v_proj.weight", {kv, m.dim}});
    specs.push_back({prefix + "self_attn.o_proj.weight", {m.dim, q}});
    specs.push_back({prefix + "post_attention_layernorm.weight", {m.dim}});
    specs.push_back({prefix + "mlp.gate_proj.weight", {m.ffn, m.dim}});
    specs.push_back({prefix + "mlp.up_proj.weight", {m.ffn, m.dim}});
    specs.push_back({prefix + "mlp.down_proj.weight", {m.dim, m.ffn}});
  }
  specs.push_back({"model.norm.weight", {m.dim}});
  if (!m.tied) specs.push_back({"lm_head.weight", {m.vocab, m.dim}});
  return specs;
}

json to_llama_json(const ModelConfig& m, int32_t dtype, const SpecialTokens& tokens) {
  require(is_float(dtype), "config.json: weights of dtype {} are not supported (f32, bf16, f16 are)",
          tc_dtype_name(dtype));
  const char* torch_dtype = dtype == TC_DTYPE_F32 ? "float32" : dtype == TC_DTYPE_BF16 ? "bfloat16" : "float16";
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"hidden_size", m.dim},
          {"intermediate_size", m.ffn},
          {"num_hidden_layers", m.layers},
          {"num_attention_heads", m.heads},
          {"num_key_value_heads", m.kv_heads},
          {"head_dim", m.head_dim},
          {"vocab_size", m.vocab},
          {"rms_norm_eps", m.rms_eps},
          {"rope_theta", m.rope_theta},
          {"rope_scaling", nullptr},
          {"max_position_embeddings", m.context},
          {"tie_word_embeddings", m.tied},
          {"torch_dtype", torch_dtype},
          {"hidden_act", "silu"},
          {"attention_bias", false},
          {"mlp_bias", false},
          {"bos_token_id", tokens.bos ? json(*tokens.bos) : json()},
          {"eos_token_id", tokens.eos ? json(*tokens.eos) : json()}};
}

ModelConfig read_llama_json(const std::string& path) {
  const json config = read_json(path);
  check_architecture(path, config);
  check_only(path, config, "hidden_act", "silu");
  check_only(path, config, "attention_bias", false);
  check_only(path, config, "mlp_bias", false);
  check_only(path, config, "attention_dropout", 0.0);
  check_only(path, config, "quantization_config", nullptr);
  ModelConfig m;
  m.dim = whole(path, config, "hidden_size");
  m.ffn = whole(path, config, "intermediate_size");
  m.layers = whole(path, config, "num_hidden_layers");
  m.heads = whole(path, config, "num_attention_heads");
  m.kv_heads = whole(path, config, "num_key_value_heads", m.heads);
  require(m.heads > 0, "{}: num_attention_heads = {} must be positive", path, m.heads);
  m.head_dim = whole(path, config, "head_dim", m.dim / m.heads);
  m.vocab = whole(path, config, "vocab_size");
  require(m.vocab > 0, "{}: vocab_size = {} must be positive", path, m.vocab);
  m.context = whole(path, config, "max_position_embeddings", 2048);
  m.rms_eps = real(path, config, "rms_norm_eps", 1e-6);
  m.rope_theta = rope_theta(path, config);
  const json tied = config.value("tie_word_embeddings", json(false));
  require(tied.is_boolean(), "{}: tie_word_embeddings must be true or false, not {}", path, tied.dump());
  m.tied = tied.get<bool>();
  check_ranges(path, m);
  return m;
}

LlamaWeights::LlamaWeights(const std::string& folder) : folder_(folder) {
  const fs::path at(folder);
  if (fs::exists(at / kModel)) {
    files_.emplace_back((at / kModel).string());
  } else {
    require(fs::exists(at / kIndex), "{} holds neither {} nor {} (PyTorch's .bin files are not read)", folder, kModel,
            kIndex);
    files_ = open_shards(folder);
  }
}

std::vector<NamedTensor> LlamaWeights::tensors() const {
  std::vector<NamedTensor> all;
  for (const SafetensorsFile& file : files_) all.insert(all.end(), file.tensors().begin(), file.tensors().end());
  return all;
}

const tc_tensor* LlamaWeights::find(std::string_view name) const {
  for (const SafetensorsFile& file : files_)
    if (const tc_tensor* tensor = file.find(name)) return tensor;
  return nullptr;
}

std::vector<std::string> LlamaWeights::problems(const ModelConfig& model) const {
  std::vector<std::string> problems;
  std::set<std::string> expected;
  for (const TensorSpec& spec : llama_tensors(model)) {
    expected.insert(spec.name);
    const tc_tensor* tensor = find(spec.name);
    if (!tensor) {
      problems.push_back(fmt::format("{}: tensor {} is missing", folder_, spec.name));
      continue;
    }
    const std::span<const int64_t> shape(tensor->shape, static_cast<size_t>(tensor->rank));
    if (!std::equal(shape.begin(), shape.end(), spec.shape.begin(), spec.shape.end()))
      problems.push_back(fmt::format("{}: tensor {} has shape {}, but config.json asks for {}", folder_, spec.name,
                                     shape_text(shape), shape_text(spec.shape)));
    if (!is_float(tensor->dtype))
      problems.push_back(fmt::format("{}: tensor {} has dtype {}; f32, bf16 and f16 are supported", folder_, spec.name,
                                     tc_dtype_name(tensor->dtype)));
  }
  for (const NamedTensor& t : tensors())
    if (!expected.contains(t.name) && !is_redundant(t.name, model))
      problems.push_back(fmt::format("{}: tensor {} has no place in this model", folder_, t.name));
  return problems;
}

json read_json(const std::string& path) {
  try {
    json tree = json::parse(read_text(path));
    require(tree.is_object(), "{}: not a JSON object", path);
    return tree;
  } catch (const json::exception& e) {
    fail(TC_ERR_INVALID_ARG, "{}: not valid JSON: {}", path, reason_of(e));
  }
}

}  // namespace tc::train
