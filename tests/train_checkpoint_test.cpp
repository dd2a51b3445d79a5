// Checkpoints: what is saved is loaded, what is damaged is found, a kill loses nothing older.
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "tiny_run.h"
#include "tiny_tokenizer.h"
#include "traincore/train/hash.h"

namespace {

namespace fs = std::filesystem;
using namespace tc::train;
using nlohmann::json;
using tc::testing::content_of;
using tc::testing::error_of;
using tc::testing::expect_same_values;
using tc::testing::mentions;
using tc::testing::ScratchFolder;
using tc::testing::TinyRun;

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

}  // namespace
