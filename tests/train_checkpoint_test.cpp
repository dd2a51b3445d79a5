// Checkpoints: what is saved is loaded, what is damaged is found, a kill loses nothing older; and Hugging Face folders.
#include "traincore/train/checkpoint.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "scratch.h"
#include "tiny_tokenizer.h"
#include "traincore/core/view.h"
#include "traincore/train/hash.h"

namespace {

namespace fs = std::filesystem;
using namespace tc::train;
using nlohmann::json;
using tc::testing::content_of;
using tc::testing::error_of;
using tc::testing::mentions;
using tc::testing::ScratchFolder;

// A small model with memory behind every tensor; each value differs.
class TinyRun {
 public:
  explicit TinyRun(const std::string& out, bool tied = true) {
    state.config = resolve_config("tiny", "", {});
    state.config.model = {.dim = 6,
                          .layers = 2,
                          .heads = 4,
                          .kv_heads = 2,
                          .head_dim = 8,
                          .ffn = 10,
                          .vocab = 11,
                          .context = 5,
                          .tied = tied};
    state.config.train.out = out;
    for (const TensorSpec& spec : llama_tensors(state.config.model)) {
      add(weights, spec.name, spec.shape);
      for (const char* prefix : {"m.", "v."}) add(optimizer, prefix + spec.name, spec.shape);
    }
  }
  std::string save(int64_t step) {
    state.step = step;
    values[0][0] = static_cast<float>(step);
    return save_checkpoint({state, weights, optimizer, *tokenizer});
  }
  void write_weights(const std::string& path, std::span<const NamedTensor> tensors) const {
    OutputFile file(path);
    write_safetensors(file, tensors);
    file.finish();
  }

  TrainState state;
  std::unique_ptr<Tokenizer> tokenizer = make_tokenizer("");
  std::vector<NamedTensor> weights, optimizer;
  std::vector<std::vector<float>> values;

 private:
  void add(std::vector<NamedTensor>& to, const std::string& name, const std::vector<int64_t>& shape) {
    const auto count = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
    std::vector<float>& memory = values.emplace_back(static_cast<size_t>(count));
    std::iota(memory.begin(), memory.end(), static_cast<float>(1000 * values.size()));
    to.push_back(
        {name, tc_tensor_dense(memory.data(), TC_DTYPE_F32, static_cast<int32_t>(shape.size()), shape.data())});
  }
};

void expect_same_values(const tc_tensor& got, const tc_tensor& expected) {
  ASSERT_EQ(tc::element_count(got), tc::element_count(expected));
  EXPECT_EQ(std::memcmp(got.data, expected.data, sizeof(float) * static_cast<size_t>(tc::element_count(got))), 0);
}

TEST(Checkpoint, what_is_saved_is_loaded) {
  const ScratchFolder folder;
  TinyRun run(folder / "run", false);
  run.state.cursor = {3, 17};
  run.state.data_tokens = 123;
  run.state.random_counter = 5;
  run.state.best_validation_loss = 0.1 + 0.2;
  const std::string path = run.save(100);
  EXPECT_EQ(path, folder / "run/step-000100");
  EXPECT_EQ(fs::read_symlink(folder / "run/latest"), "step-000100");

  const Checkpoint checkpoint(folder / "run/latest");
  EXPECT_EQ(checkpoint.model(), run.state.config.model);
  ASSERT_TRUE(checkpoint.resumable());
  EXPECT_EQ(checkpoint.state().step, 100);
  EXPECT_EQ(checkpoint.state().cursor, run.state.cursor);
  EXPECT_EQ(checkpoint.state().data_tokens, 123);
  EXPECT_EQ(checkpoint.state().random_counter, 5);
  EXPECT_EQ(checkpoint.state().best_validation_loss, run.state.best_validation_loss);
  EXPECT_EQ(checkpoint.state().config, run.state.config);
  for (const NamedTensor& t : run.weights) expect_same_values(checkpoint.weight(t.name), t.tensor);
  for (const NamedTensor& t : run.optimizer) expect_same_values(checkpoint.optimizer(t.name), t.tensor);
  EXPECT_NE(error_of([&] { checkpoint.weight("model.layers.2.mlp.up_proj.weight"); }), "");

  const Verification verified = verify_checkpoint(path);
  EXPECT_TRUE(verified.problems.empty()) << verified.problems.front();
  EXPECT_TRUE(verified.notes.empty());
  EXPECT_EQ(verified.tensors, static_cast<int64_t>(run.weights.size() + run.optimizer.size()));
}

TEST(Checkpoint, config_json_is_what_transformers_reads) {
  const ScratchFolder folder;
  TinyRun run(folder / "run");
  const json config = json::parse(content_of(run.save(1) + "/config.json"));
  const json expected = json::parse(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 6,
    "intermediate_size": 10, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "vocab_size": 11, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "rope_scaling": null, "max_position_embeddings": 5,
    "tie_word_embeddings": true, "torch_dtype": "float32", "hidden_act": "silu", "attention_bias": false, "mlp_bias": false,
    "bos_token_id": null, "eos_token_id": null})");
  EXPECT_EQ(config, expected);
}

TEST(Checkpoint, the_tokenizer_travels_with_the_model) {
  const ScratchFolder folder;
  TinyRun run(folder / "run");
  EXPECT_EQ(Checkpoint(run.save(1)).tokenizer()->vocab(), 256);
  const std::string path = folder.write("a.model", tc::testing::sentencepiece_model());
  if (mentions(error_of([&] { run.tokenizer = make_tokenizer(path); }), "without SentencePiece")) GTEST_SKIP();
  const std::string saved = run.save(2);
  fs::remove(path);
  EXPECT_EQ(Checkpoint(saved).tokenizer()->encode("ab"), (std::vector<int32_t>{7}));
  EXPECT_EQ(json::parse(content_of(saved + "/config.json")).at("eos_token_id"), 2);
}

TEST(Checkpoint, a_run_or_a_folder_with_a_model_opens) {
  const ScratchFolder folder;
  TinyRun run(folder / "run");
  std::vector<std::string> skipped;
  const std::string first = run.save(1), second = run.save(2);
  EXPECT_EQ(open_model(folder / "run", skipped).state().step, 2);
  EXPECT_EQ(open_model(first, skipped).state().step, 1);
  EXPECT_TRUE(
      mentions(error_of([&] { open_model(folder.path(), skipped); }), "holds neither a model (config.json) nor"));
  EXPECT_TRUE(mentions(error_of([&] { open_model(folder / "absent", skipped); }), "absent holds neither"));
  fs::remove(first + "/state.json");
  fs::remove(second + "/state.json");
  EXPECT_TRUE(mentions(error_of([&] { open_model(folder / "run", skipped); }),
                       "step-000002/state.json is missing (and 1 more)"));
}

TEST(Checkpoint, the_manifest_holds_every_file_and_only_whole_folders_count) {
  const ScratchFolder folder;
  TinyRun run(folder / "run");
  const std::string path = run.save(7);
  const json files = json::parse(content_of(path + "/manifest.json")).at("files");
  std::set<std::string> listed, present;
  for (const auto& [name, entry] : files.items()) {
    listed.insert(name);
    EXPECT_EQ(entry.at("bytes"), fs::file_size(path + "/" + name));
    EXPECT_EQ(entry.at("sha256"), sha256_of_file(path + "/" + name));
  }
  for (const auto& entry : fs::directory_iterator(path)) present.insert(entry.path().filename());
  listed.insert("manifest.json");
  EXPECT_EQ(present, listed);
}

TEST(Checkpoint, only_the_newest_are_kept_and_leftovers_go) {
  const ScratchFolder folder;
  TinyRun run(folder / "run");
  run.state.config.train.keep = 2;
  fs::create_directories(folder / "run/step-000005.tmp");
  fs::create_directories(folder / "run/mine.tmp");
  fs::create_directories(folder / "run/step-other");
  for (const int64_t step : {10, 20, 1000000, 30, 30}) run.save(step);
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder / "run")) names.insert(entry.path().filename());
  EXPECT_EQ(names,
            (std::set<std::string>{"latest", "mine.tmp", "step-000020", "step-000030", "step-1000000", "step-other"}));
  std::vector<std::string> skipped;
  EXPECT_EQ(open_newest(folder / "run", skipped)->state().step, 30);  // saved last
  fs::remove(folder / "run/latest");
  EXPECT_EQ(open_newest(folder / "run", skipped)->state().step, 1000000);
  EXPECT_TRUE(skipped.empty());
  EXPECT_FALSE(open_newest(folder / "absent", skipped));
}

TEST(Checkpoint, damage_is_found_and_the_one_before_is_opened) {
  const ScratchFolder folder;
  TinyRun run(folder / "run");
  run.save(1);
  const std::string path = run.save(2);
  const auto damage = [&](const char* file, auto&& change, const char* mention) {
    const std::string good = content_of(path + "/" + file);
    change(path + "/" + file);
    std::vector<std::string> skipped;
    const auto newest = open_newest(folder / "run", skipped);
    ASSERT_TRUE(newest);
    EXPECT_EQ(newest->state().step, 1);
    EXPECT_EQ(static_cast<const float*>(newest->weight(run.weights[0].name).data)[0], 1);
    ASSERT_EQ(skipped.size(), 1u);
    EXPECT_TRUE(mentions(skipped[0], mention));
    EXPECT_TRUE(mentions(skipped[0], file));
    const Verification verified = verify_checkpoint(path);
    ASSERT_FALSE(verified.problems.empty());
    EXPECT_TRUE(mentions(verified.problems[0], mention));
    std::ofstream(path + "/" + file, std::ios::binary) << good;
  };
  for (const char* file : {"model.safetensors", "optimizer.safetensors", "state.json", "config.json"}) {
    damage(
        file, [](const std::string& p) { fs::remove(p); }, "is missing");
    damage(
        file, [](const std::string& p) { fs::resize_file(p, fs::file_size(p) / 2); }, "bytes instead of");
    damage(
        file,
        [](const std::string& p) {
          std::fstream f(p, std::ios::in | std::ios::out | std::ios::binary);
          f.seekp(-3, std::ios::end);
          f.put('\x7f');
        },
        "SHA-256");
  }
  damage(
      "manifest.json", [](const std::string& p) { fs::resize_file(p, 20); }, "not valid JSON: parse error");
  damage(
      "manifest.json", [](const std::string& p) { std::ofstream(p) << "{}"; }, "no \"files\"");
  damage(
      "manifest.json", [](const std::string& p) { std::ofstream(p) << R"({"files": {"a": 1}})"; }, "malformed");
  EXPECT_TRUE(verify_checkpoint(path).problems.empty());
}

TEST(Checkpoint, verify_of_a_run_looks_at_all_its_checkpoints) {
  const ScratchFolder folder;
  TinyRun run(folder / "run");
  const std::string first = run.save(1);
  run.save(2);
  const Verification good = verify_checkpoint(folder / "run"), one = verify_checkpoint(first);
  EXPECT_TRUE(good.problems.empty());
  EXPECT_EQ(good.tensors, 2 * one.tensors);
  fs::remove(first + "/model.safetensors");
  const Verification bad = verify_checkpoint(folder / "run");
  ASSERT_FALSE(bad.problems.empty());
  EXPECT_TRUE(mentions(bad.problems[0], first));
}

TEST(Checkpoint, verify_finds_values_that_are_not_finite) {
  const ScratchFolder folder;
  TinyRun run(folder / "run");
  run.values[1][4] = std::numeric_limits<float>::infinity();
  run.values[3][2] = std::nanf("");
  run.values[3][5] = std::nanf("");
  const Verification verified = verify_checkpoint(run.save(1));
  ASSERT_EQ(verified.problems.size(), 2u);
  EXPECT_TRUE(mentions(verified.problems[0],
                       run.weights[1].name + ": 2 of 6 values are NaN or infinite, the first at index 2"));
  EXPECT_TRUE(mentions(verified.problems[1], "m.model.embed_tokens.weight: 1 of 66"));
}

TEST(Checkpoint, an_optimizer_that_does_not_fit_is_refused) {
  const ScratchFolder folder;
  TinyRun run(folder / "run");
  run.optimizer.pop_back();
  const std::string path = run.save(1);
  EXPECT_TRUE(mentions(error_of([&] { Checkpoint{path}; }), "v.model.norm.weight is missing"));
  run.weights.pop_back();
  EXPECT_TRUE(mentions(error_of([&] { run.save(2); }), "19 weights are given, but the model has 20"));
}

// A child saves without end and tells each step that is done; whatever the moment of its death, that step or a later
// one opens.
TEST(Checkpoint, kill_9_at_any_moment_loses_nothing_older) {
  const ScratchFolder folder;
  std::srand(1);
  int64_t step = 0;
  for (int round = 0; round < 15; ++round) {
    int channel[2];
    ASSERT_EQ(pipe(channel), 0);
    const pid_t child = fork();
    if (child == 0) {
      TinyRun run(folder / "run");
      for (int64_t s = step + 1;; ++s) {
        run.save(s);
        if (write(channel[1], &s, sizeof s) != sizeof s) _exit(1);
      }
    }
    close(channel[1]);
    int64_t done = 0;
    ASSERT_EQ(read(channel[0], &done, sizeof done), static_cast<ssize_t>(sizeof done));
    usleep(static_cast<useconds_t>(std::rand() % 30000));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    for (int64_t more = 0; read(channel[0], &more, sizeof more) == sizeof more;) done = more;
    close(channel[0]);

    std::vector<std::string> skipped;
    const auto newest = open_newest(folder / "run", skipped);
    ASSERT_TRUE(newest) << "after step " << done;
    EXPECT_TRUE(skipped.empty()) << skipped.front();
    EXPECT_GE(newest->state().step, done);
    EXPECT_EQ(static_cast<const float*>(newest->weight("model.embed_tokens.weight").data)[0],
              static_cast<float>(newest->state().step));
    step = newest->state().step;
  }
}

TEST(Checkpoint, a_full_disk_is_one_sentence_and_the_one_before_stays) {
  const ScratchFolder folder;
  TinyRun run(folder / "run");
  run.save(1);
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{5000, 5000};
    setrlimit(RLIMIT_FSIZE, &limit);
    _exit(mentions(error_of([&] { run.save(2); }), "cannot write " + (folder / "run/step-000002.tmp/model.safetensors"))
              ? 0
              : 1);
  }
  int status = 1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(fs::exists(folder / "run/step-000002.tmp"));
  EXPECT_FALSE(fs::exists(folder / "run/step-000002"));
  std::vector<std::string> skipped;
  EXPECT_EQ(open_newest(folder / "run", skipped)->state().step, 1);
}

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
