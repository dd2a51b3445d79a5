// The trainer's model against the golden Llama (Hugging Face, float64), and what a run promises: any micro-batch size gives
// the same step, resuming is exact, non-finite numbers stop it.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "scratch.h"
#include "traincore/core/view.h"
#include "traincore/train/generator.h"
#include "traincore/train/layers.h"
#include "traincore/train/run.h"
#include "traincore/train/trainer.h"

namespace tc::train {
namespace {

namespace fs = std::filesystem;

const char* const kGolden = TC_SOURCE_DIR "/tests/golden/llama.safetensors";

ModelConfig golden_model() {
  return {.dim = 48,
          .layers = 2,
          .heads = 6,
          .kv_heads = 2,
          .head_dim = 8,
          .ffn = 96,
          .vocab = 61,
          .context = 17,
          .rope_theta = 10000,
          .rms_eps = 1e-5,
          .tied = true};
}

void expect_close(const std::string& name, const tc_tensor& got, const tc_tensor& want) {
  constexpr double kOfLargest = 2e-5;  // golden/README.md: what that model, with its f32 softmax, can show
  const auto* g = static_cast<const float*>(got.data);
  const auto* w = static_cast<const double*>(want.data);
  ASSERT_EQ(element_count(got), element_count(want)) << name;
  double largest = 0, worst = 0;
  for (int64_t i = 0; i < element_count(want); ++i) {
    largest = std::max(largest, std::abs(w[i]));
    worst = std::max(worst, std::abs(g[i] - w[i]));
    ASSERT_TRUE(std::isfinite(g[i])) << name << " element " << i;
  }
  ASSERT_GT(largest, 0) << name;
  EXPECT_LE(worst, kOfLargest * largest) << name;
}

TEST(GoldenLlama, LogitsLossAndEveryGradient) {
  const SafetensorsFile golden(kGolden);
  const ModelConfig model = golden_model();
  const auto [state_memory, states] = allocate([&](Arena& a) { return carve_states(model, TC_DTYPE_F32, a); });
  const tc_exec exec = tc_exec_default();
  for (const NamedTensor& t : named_weights(model, states.weights)) {
    const tc_tensor* from = golden.find("param/" + t.name);
    ASSERT_NE(from, nullptr) << t.name;
    for (int64_t i = 0; i < element_count(*from); ++i)
      static_cast<float*>(t.tensor.data)[i] = static_cast<float>(static_cast<const double*>(from->data)[i]);
  }
  RopeTables rope;
  const auto [memory, a] = allocate([&](Arena& arena) {
    rope = carve_rope_tables(model, arena);
    return carve_activations(model, TC_DTYPE_F32, 2, 17, arena);
  });
  fill_rope_tables(model, rope);
  const auto* ids = static_cast<const int64_t*>(golden.find("input_ids")->data);
  const auto* labels = static_cast<const int64_t*>(golden.find("labels")->data);
  float valid = 0;
  for (int64_t i = 0; i < 2 * 17; ++i) {  // the golden labels are shifted inside the loss
    static_cast<int32_t*>(a.tokens.data)[i] = static_cast<int32_t>(ids[i]);
    const int64_t target = i % 17 == 16 ? -100 : labels[i + 1];
    static_cast<int32_t*>(a.targets.data)[i] = static_cast<int32_t>(target);
    valid += target != -100;
  }
  *static_cast<float*>(a.normalizer.data) = valid;
  const Decoder decoder(model, states.weights, rope, exec);
  decoder.forward(a);
  expect_close("logits", a.logits, *golden.find("logits"));
  decoder.loss(a, true);
  EXPECT_NEAR(*static_cast<float*>(a.loss.data), *static_cast<const float*>(golden.find("loss")->data), 2e-5);
  EXPECT_EQ(*static_cast<int64_t*>(a.valid.data), static_cast<int64_t>(valid));
  decoder.backward(a, states.gradients);
  for (const NamedTensor& t : named_weights(model, states.gradients))
    expect_close(t.name, t.tensor, *golden.find("grad/" + t.name));
}

// A tiny run on bytes that any machine can do in a moment.
class Run : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string text = folder / "text.txt";
    std::ofstream out(text, std::ios::binary);
    for (int i = 0; i < 400; ++i) out << "the quick brown fox " << i << " jumps\n";
    config = resolve_config("tiny", "", {});
    config.model = {
        .dim = 24, .layers = 2, .heads = 4, .kv_heads = 2, .head_dim = 6, .ffn = 40, .vocab = 256, .context = 19};
    config.data.files = {text};
    config.train.out = folder / "run";
    config.train.batch = 6;
    config.train.micro_batch = 3;
    config.train.steps = 12;
    config.optim.warmup = 2;
    config.train.threads = 2;
  }
  std::vector<double> losses(Trainer& trainer, int steps) {
    std::vector<double> list;
    for (int i = 0; i < steps; ++i) list.push_back(trainer.step().loss);
    return list;
  }
  testing::ScratchFolder folder;
  TrainConfig config;
  std::unique_ptr<Tokenizer> bytes = make_tokenizer("");
};

TEST_F(Run, Learns) {
  config.train.steps = 40;
  Trainer trainer(config, *bytes, nullptr);
  const std::vector<double> list = losses(trainer, 40);
  EXPECT_NEAR(list[0], std::log(256.0), 0.2);
  EXPECT_LT(list.back(), 0.75 * list[0]);
}

TEST_F(Run, MicroBatchesAddUp) {
  Trainer two(config, *bytes, nullptr);
  config.train.micro_batch = 6;
  Trainer one(config, *bytes, nullptr);
  const std::vector<double> a = losses(two, 3), b = losses(one, 3);
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-5 * b[i]);
}

TEST_F(Run, SameBitsWhateverTheThreads) {
  Trainer two(config, *bytes, nullptr);
  config.train.threads = 1;
  Trainer one(config, *bytes, nullptr);
  EXPECT_EQ(losses(two, 4), losses(one, 4));
}

class Resume : public Run, public ::testing::WithParamInterface<const char*> {};
TEST_P(Resume, IsBitwiseTheRunThatNeverStopped) {
  config.train.dtype = GetParam();
  Trainer whole(config, *bytes, nullptr);
  const std::vector<double> want = losses(whole, 7);
  {
    Trainer first(config, *bytes, nullptr);
    losses(first, 4);
    first.save(first.evaluate());
  }
  std::vector<std::string> skipped;
  const std::optional<Checkpoint> newest = open_newest(config.train.out, skipped);
  ASSERT_TRUE(newest);
  Trainer second(config, *bytes, &*newest);
  EXPECT_EQ(second.steps_done(), 4);
  EXPECT_EQ(losses(second, 3), std::vector<double>(want.begin() + 4, want.end()));
  const auto a = named_weights(config.model, whole.states().weights),
             b = named_weights(config.model, second.states().weights);
  for (size_t i = 0; i < a.size(); ++i)
    EXPECT_EQ(std::memcmp(a[i].tensor.data, b[i].tensor.data,
                          static_cast<size_t>(element_count(a[i].tensor)) * tc_dtype_size(a[i].tensor.dtype)),
              0)
        << a[i].name;
}
INSTANTIATE_TEST_SUITE_P(Dtypes, Resume, ::testing::Values("f32", "bf16"));

TEST_F(Run, StopsOnTheFirstNonFiniteNumber) {
  Trainer trainer(config, *bytes, nullptr);
  losses(trainer, 2);
  const std::string saved = trainer.save({});
  const auto weights = named_weights(config.model, trainer.states().weights);
  static_cast<float*>(weights[3].tensor.data)[5] = std::numeric_limits<float>::infinity();
  try {
    trainer.step();
    FAIL();
  } catch (const NonFinite& e) {
    const std::string sentence = e.what();
    EXPECT_NE(sentence.find("step 3"), std::string::npos) << sentence;
    EXPECT_NE(sentence.find(saved), std::string::npos) << sentence;
  }
}

TEST_F(Run, ShortDataIsRefused) {
  for (const int64_t bytes_in_file : {0, 1, 19}) {
    std::ofstream(config.data.files[0], std::ios::binary) << std::string(static_cast<size_t>(bytes_in_file), 'x');
    EXPECT_THROW(Trainer(config, *bytes, nullptr), Error) << bytes_in_file;
  }
  std::ofstream(config.data.files[0], std::ios::binary) << std::string(20, 'x');
  Trainer trainer(config, *bytes, nullptr);
  EXPECT_FALSE(trainer.evaluate());
  trainer.step();
}

TEST_F(Run, LogitsAreOfTokensThatTheModelHas) {
  Trainer trainer(config, *bytes, nullptr);
  losses(trainer, 1);
  const std::string model = trainer.save({});
  const auto refusal = [&](std::vector<int32_t> tokens) {
    return testing::error_of([&] { logits_of(model, tokens); });
  };
  EXPECT_EQ(refusal({255, 0}), "");
  EXPECT_EQ(refusal({1, 256}), "--tokens: 256 is no token of this model, which has 0 to 255");
  EXPECT_EQ(refusal({-1}), "--tokens: -1 is no token of this model, which has 0 to 255");
  EXPECT_EQ(refusal({}), "--tokens: 0 are given, but this model takes 1 to 19");
}

TEST_F(Run, CachedGenerationIsTheFullForward) {
  Trainer trainer(config, *bytes, nullptr);
  losses(trainer, 12);
  const ModelConfig& model = config.model;
  SampleConfig sample{.prompt = "the quick", .tokens = 9, .temperature = 0};
  Generator generator(model, trainer.states().weights, TC_DTYPE_F32, tc_exec_default());
  const std::vector<int32_t> prompt = bytes->encode(sample.prompt), next = generator.generate(prompt, sample, 1);
  ASSERT_EQ(next.size(), 9u);
  RopeTables rope;
  std::vector<int32_t> text = prompt;
  for (const int32_t token : next) {
    const auto [memory, a] = allocate([&](Arena& arena) {
      rope = carve_rope_tables(model, arena);
      return carve_activations(model, TC_DTYPE_F32, 1, static_cast<int64_t>(text.size()), arena);
    });
    fill_rope_tables(model, rope);
    std::copy(text.begin(), text.end(), static_cast<int32_t*>(a.tokens.data));
    const tc_exec exec = tc_exec_default();
    Decoder(model, trainer.states().weights, rope, exec).forward(a);
    const auto* logits =
        static_cast<const float*>(a.logits.data) + (text.size() - 1) * static_cast<size_t>(model.vocab);
    EXPECT_EQ(token, std::max_element(logits, logits + model.vocab) - logits);
    text.push_back(token);
  }
  sample.tokens = 60;  // beyond the context
  EXPECT_EQ(generator.generate(prompt, sample, 1).size(), 60u);
}

TEST(SampleToken, Choices) {
  const std::vector<float> logits = {1, 3, 2, 3};
  EXPECT_EQ(sample_token(logits, {.temperature = 0}, 0.9), 1);
  EXPECT_EQ(sample_token(logits, {.temperature = 1, .top_k = 1}, 0.99), 1);
  EXPECT_EQ(sample_token(logits, {.temperature = 1, .top_k = 2}, 0.99), 3);
  EXPECT_EQ(sample_token(logits, {.temperature = 1, .top_p = 0.3}, 0.99), 1);
  EXPECT_EQ(sample_token(logits, {.temperature = 1}, 0.9999), 0);
}

}  // namespace
}  // namespace tc::train
