// Folders of Hugging Face: what a plain one gives, and what is refused by name.
#include <nlohmann/json.hpp>

#include "tiny_run.h"

namespace {

namespace fs = std::filesystem;
using namespace tc::train;
using nlohmann::json;
using tc::testing::error_of;
using tc::testing::expect_same_values;
using tc::testing::mentions;
using tc::testing::ScratchFolder;
using tc::testing::TinyRun;

// A folder as save_pretrained() leaves it: no optimizer, no state, no manifest.
class HuggingFaceFolder {
 public:
  HuggingFaceFolder() : run_(folder_ / "unused"), config(to_llama_json(run_.state.config.model, TC_DTYPE_F32, {})) {
    run_.write_weights(folder_ / "model.safetensors", run_.weights);
  }
  std::string refusal() const {
    folder_.write("config.json", config.dump());
    return error_of([&] { Checkpoint{folder_.path()}; });
  }
  ScratchFolder folder_;
  TinyRun run_;
  json config;
};

TEST(HuggingFace, a_plain_folder_opens) {
  HuggingFaceFolder hf;
  EXPECT_EQ(hf.refusal(), "");
  const Checkpoint checkpoint(hf.folder_.path());
  EXPECT_FALSE(checkpoint.resumable());
  EXPECT_TRUE(mentions(error_of([&] { checkpoint.state(); }), "cannot be resumed"));
  EXPECT_TRUE(mentions(error_of([&] { checkpoint.tokenizer(); }), "has no tokenizer.model"));
  EXPECT_NE(error_of([&] { checkpoint.optimizer("m.model.norm.weight"); }), "");
  for (const NamedTensor& t : hf.run_.weights) expect_same_values(checkpoint.weight(t.name), t.tensor);
  const Verification verified = verify_checkpoint(hf.folder_.path());
  EXPECT_TRUE(verified.problems.empty());
  EXPECT_EQ(verified.notes.size(), 2u);
}

TEST(HuggingFace, absent_settings_have_the_defaults_of_transformers) {
  HuggingFaceFolder hf;
  for (const char* key : {"rms_norm_eps", "rope_theta", "tie_word_embeddings", "max_position_embeddings", "torch_dtype",
                          "hidden_act", "architectures", "attention_bias"})
    hf.config.erase(key);
  hf.config["head_dim"] = nullptr;
  hf.config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 500000.0}};
  hf.folder_.write("config.json", hf.config.dump());
  const ModelConfig model = [&] {
    hf.config["hidden_size"] = 32;
    return read_llama_json(hf.folder_.write("config.json", hf.config.dump()));
  }();
  EXPECT_EQ(model.rms_eps, 1e-6);
  EXPECT_EQ(model.rope_theta, 500000);
  EXPECT_EQ(model.context, 2048);
  EXPECT_EQ(model.head_dim, 8);
  EXPECT_FALSE(model.tied);
}

TEST(HuggingFace, what_is_not_supported_is_refused_by_name) {
  const struct {
    const char* key;
    json value;
    const char* mention;
  } cases[] = {
      {"model_type", "mistral", "model_type is \"mistral\""},
      {"model_type", nullptr, "model_type is null"},
      {"architectures", {"LlamaForSequenceClassification"}, "LlamaForSequenceClassification"},
      {"rope_scaling", {{"rope_type", "llama3"}, {"factor", 8}}, "rope_scaling"},
      {"rope_parameters", {{"rope_type", "yarn"}}, "rope_type = \"yarn\""},
      {"rope_parameters", 3, "rope_parameters must be an object"},
      {"partial_rotary_factor", 0.5, "partial_rotary_factor"},
      {"attention_bias", true, "attention_bias = true is not supported"},
      {"mlp_bias", true, "mlp_bias"},
      {"attention_dropout", 0.1, "attention_dropout"},
      {"hidden_act", "gelu", "hidden_act = \"gelu\""},
      {"quantization_config", {{"quant_method", "gptq"}}, "quantization_config"},
      {"hidden_size", "6", "hidden_size must be a whole number"},
      {"hidden_size", nullptr, "hidden_size is missing"},
      {"hidden_size", -6, "model.dim = -6 is out of range"},
      {"hidden_size", 7, "model.embed_tokens.weight has shape [11, 6], but config.json asks for [11, 7]"},
      {"num_attention_heads", 0, "must be positive"},
      {"num_key_value_heads", 3, "multiple of model.kv_heads"},
      {"num_hidden_layers", 1, "model.layers.1.input_layernorm.weight has no place"},
      {"num_hidden_layers", 3, "model.layers.2.input_layernorm.weight is missing"},
      {"vocab_size", 0, "vocab_size"},
      {"tie_word_embeddings", "yes", "true or false"},
      {"tie_word_embeddings", false, "lm_head.weight is missing"},
  };
  for (const auto& c : cases) {
    HuggingFaceFolder hf;
    hf.config[c.key] = c.value;
    EXPECT_TRUE(mentions(hf.refusal(), c.mention)) << c.key << " = " << c.value;
  }
}

TEST(HuggingFace, tensors_that_do_not_belong_are_refused_and_redundant_ones_are_not) {
  HuggingFaceFolder hf;
  const auto refusal_with = [&](const char* name, int32_t dtype) {
    std::vector<NamedTensor> tensors = hf.run_.weights;
    std::vector<double> extra(4);
    const int64_t shape[] = {4};
    tensors.push_back({name, tc_tensor_dense(extra.data(), dtype, 1, shape)});
    hf.run_.write_weights(hf.folder_ / "model.safetensors", tensors);
    return hf.refusal();
  };
  EXPECT_TRUE(mentions(refusal_with("model.layers.0.self_attn.q_proj.bias", TC_DTYPE_F32), "q_proj.bias has no place"));
  EXPECT_EQ(refusal_with("model.layers.0.self_attn.rotary_emb.inv_freq", TC_DTYPE_F32), "");
  EXPECT_EQ(refusal_with("lm_head.weight", TC_DTYPE_F32), "");
  std::vector<NamedTensor> tensors = hf.run_.weights;
  tensors.back().tensor.dtype = TC_DTYPE_I32;
  hf.run_.write_weights(hf.folder_ / "model.safetensors", tensors);
  EXPECT_TRUE(mentions(hf.refusal(), "has dtype i32"));
}

TEST(HuggingFace, shards_are_read_through_their_index) {
  HuggingFaceFolder hf;
  fs::remove(hf.folder_ / "model.safetensors");
  EXPECT_TRUE(mentions(hf.refusal(), "neither model.safetensors nor"));
  const std::span<const NamedTensor> all = hf.run_.weights;
  hf.run_.write_weights(hf.folder_ / "one.safetensors", all.first(5));
  hf.run_.write_weights(hf.folder_ / "two.safetensors", all.subspan(5));
  json index = {{"metadata", {{"total_size", 1}}}};
  for (size_t i = 0; i < all.size(); ++i)
    index["weight_map"][all[i].name] = i < 5 ? "one.safetensors" : "two.safetensors";
  const auto refusal_of = [&](const json& tree) {
    hf.folder_.write("model.safetensors.index.json", tree.dump());
    return hf.refusal();
  };
  EXPECT_EQ(refusal_of(index), "");
  const Checkpoint checkpoint(hf.folder_.path());
  for (const NamedTensor& t : all) expect_same_values(checkpoint.weight(t.name), t.tensor);

  EXPECT_TRUE(mentions(refusal_of(json::object()), "weight_map"));
  json wrong = index;
  wrong["weight_map"][all[0].name] = "two.safetensors";
  EXPECT_TRUE(mentions(refusal_of(wrong), "should be in two.safetensors, but is not"));
  wrong["weight_map"][all[0].name] = "../elsewhere.safetensors";
  EXPECT_TRUE(mentions(refusal_of(wrong), "no file name"));
  wrong["weight_map"][all[0].name] = "three.safetensors";
  EXPECT_TRUE(mentions(refusal_of(wrong), "three.safetensors: No such file"));
}

}  // namespace
