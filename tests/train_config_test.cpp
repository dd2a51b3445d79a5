// Settings, the schedule, metrics and progress.
#include "traincore/train/config.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "scratch.h"
#include "traincore/train/llama_files.h"
#include "traincore/train/metrics.h"
#include "traincore/train/schedule.h"

namespace {

using namespace tc::train;
using tc::testing::content_of;
using tc::testing::error_of;
using tc::testing::mentions;
using tc::testing::ScratchFolder;
using Assignments = std::vector<std::string>;

TrainConfig config_of(const Assignments& assignments) { return resolve_config("tiny", "", assignments); }
std::string refusal(const Assignments& assignments) {
  return error_of([&] { validate(config_of(assignments)); });
}

TEST(Config, presets_are_valid_and_of_the_named_size) {
  const std::map<std::string_view, std::pair<int64_t, int64_t>> sizes{{"tiny", {2'000'000, 3'000'000}},
                                                                      {"small", {10'000'000, 30'000'000}},
                                                                      {"124m", {120'000'000, 128'000'000}},
                                                                      {"1b", {1'000'000'000, 1'300'000'000}}};
  ASSERT_EQ(preset_names().size(), sizes.size());
  for (const std::string_view name : preset_names()) {
    TrainConfig config = resolve_config(name, "", {});
    EXPECT_EQ(error_of([&] { validate(config); }), "") << name;
    if (config.model.vocab == 0) config.model.vocab = 256;
    int64_t parameters = 0;
    for (const TensorSpec& spec : llama_tensors(config.model))
      parameters += std::accumulate(spec.shape.begin(), spec.shape.end(), int64_t{1}, std::multiplies<>());
    EXPECT_GE(parameters, sizes.at(name).first) << name;
    EXPECT_LE(parameters, sizes.at(name).second) << name;
  }
}

TEST(Config, file_over_preset_and_assignment_over_file) {
  const ScratchFolder folder;
  const std::string toml = folder.write("run.toml", R"(
preset = "small"
[optim]
lr = 1            # a whole number where a number is due
warmup = 7
[data]
files = ["a.txt", "b,c.txt"]
[model]
tied = false
)");
  const TrainConfig config =
      resolve_config("", toml, Assignments{"optim.warmup=9", "model.rope_theta=.5e6", "train.out=runs/a=b"});
  EXPECT_EQ(config.preset, "small");
  EXPECT_EQ(config.model.dim, 384);
  EXPECT_EQ(config.optim.lr, 1);
  EXPECT_EQ(config.optim.warmup, 9);
  EXPECT_EQ(config.model.rope_theta, 500000);
  EXPECT_EQ(config.train.out, "runs/a=b");
  EXPECT_EQ(config.data.files, (std::vector<std::string>{"a.txt", "b,c.txt"}));
  EXPECT_FALSE(config.model.tied);
  EXPECT_EQ(resolve_config("1b", toml, {}).preset, "1b");
  EXPECT_EQ(resolve_config("", "", {}).preset, "tiny");
  EXPECT_EQ(config_of({"data.files=x,y"}).data.files, (std::vector<std::string>{"x", "y"}));
}

TEST(Config, unknown_words_are_refused_with_the_nearest) {
  EXPECT_TRUE(mentions(error_of([] { resolve_config("smal", "", {}); }), "nearest is small"));
  EXPECT_TRUE(mentions(refusal({"lr=1"}), "nearest is optim.lr"));
  EXPECT_TRUE(mentions(refusal({"train.lr=1"}), "nearest is optim.lr"));
  EXPECT_TRUE(mentions(refusal({"model.kvheads=1"}), "nearest is model.kv_heads"));
  EXPECT_TRUE(mentions(refusal({"optim.warm_up=1"}), "nearest is optim.warmup"));
  EXPECT_TRUE(mentions(refusal({"=1"}), "no setting \"\""));
  EXPECT_TRUE(mentions(refusal({"optim.lr"}), "key=value"));
  EXPECT_TRUE(mentions(refusal({"preset=small"}), "--preset"));
}

TEST(Config, values_of_the_wrong_type_or_range_are_refused) {
  const struct {
    const char* assignment;
    const char* mention;
  } cases[] = {
      {"model.dim=abc", "model.dim must be a whole number, not \"abc\""},
      {"model.dim=1.5", "whole number"},
      {"model.dim=99999999999999999999", "whole number"},
      {"model.dim=", "whole number"},
      {"model.dim=0", "between 1 and"},
      {"model.dim=-4", "between 1 and"},
      {"optim.lr=fast", "a number, not \"fast\""},
      {"optim.lr=nan", "optim.lr = nan is out of range"},
      {"optim.lr=inf", "out of range"},
      {"optim.beta2=1", "out of range"},
      {"model.tied=yes", "true or false"},
      {"train.dtype=f16", "train.dtype = f16 is not one of f32|bf16"},
      {"train.dtype=f32|bf16", "not one of"},
      {"train.out=\xff", "not valid UTF-8"},
      {"model.kv_heads=3", "multiple of model.kv_heads = 3"},
      {"model.head_dim=33", "must be even"},
      {"train.micro_batch=3", "multiple of train.micro_batch = 3"},
      {"optim.warmup=701", "longer than train.steps = 700"},
      {"optim.min_lr=1", "above optim.lr"},
  };
  for (const auto& c : cases) EXPECT_TRUE(mentions(refusal({c.assignment}), c.mention)) << c.assignment;
}

TEST(Config, bad_toml_is_refused_with_file_and_line) {
  const ScratchFolder folder;
  const auto refused = [&](const char* text) {
    return error_of([&] { resolve_config("", folder.write("run.toml", text), {}); });
  };
  EXPECT_TRUE(mentions(refused("[model]\ndim = = 3\n"), "run.toml:2: not valid TOML"));
  EXPECT_TRUE(mentions(refused("[modle]\ndim = 3\n"), "nearest is model.dim"));
  EXPECT_TRUE(mentions(refused("[model]\ndim = \"wide\"\n"), "model.dim must be a whole number"));
  EXPECT_TRUE(mentions(refused("[model]\ndim = 2020-01-01\n"), "model.dim must be a whole number"));
  EXPECT_TRUE(mentions(refused("[data]\nfiles = [1, 2]\n"), "data.files must be a text or a list of texts"));
  EXPECT_TRUE(mentions(refused("preset = 3\n"), "preset must be a text"));
  EXPECT_TRUE(mentions(refused("preset = \"huge\"\n"), "no preset \"huge\""));
  EXPECT_TRUE(mentions(error_of([&] { resolve_config("", folder / "none.toml", {}); }), "No such file"));
}

TEST(Config, toml_and_json_carry_every_value) {
  const ScratchFolder folder;
  TrainConfig config =
      config_of({"optim.lr=0.1234567890123456789", "optim.eps=1e-30", "train.seed=9223372036854775807",
                 "data.files=a \"b\"\\,\xc3\xa9\n", "sample.prompt=\t", "model.tied=false", "train.minutes=2"});
  EXPECT_EQ(config_from_json(nlohmann::json::parse(to_json(config).dump())), config);
  EXPECT_EQ(resolve_config("", folder.write("run.toml", to_toml(config)), {}), config);
}

TEST(Schedule, warms_up_and_falls_as_a_cosine) {
  OptimConfig optim;
  optim.lr = 2, optim.min_lr = 0.5, optim.warmup = 4;
  constexpr int64_t kSteps = 24;
  EXPECT_DOUBLE_EQ(learning_rate(optim, kSteps, 0), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(optim, kSteps, 3), 2);
  EXPECT_DOUBLE_EQ(learning_rate(optim, kSteps, 4), 2);
  EXPECT_DOUBLE_EQ(learning_rate(optim, kSteps, 14), 1.25);
  EXPECT_DOUBLE_EQ(learning_rate(optim, kSteps, 9), 0.5 + 1.5 * (1 + std::sqrt(0.5)) / 2);
  EXPECT_DOUBLE_EQ(learning_rate(optim, kSteps, 24), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(optim, kSteps, 1000), 0.5);
  optim.warmup = 0;
  EXPECT_DOUBLE_EQ(learning_rate(optim, 1, 0), 2);
  optim.warmup = 1;
  EXPECT_DOUBLE_EQ(learning_rate(optim, 1, 0), 2);
}

StepMetrics metrics_at(int64_t step, double seconds) {
  StepMetrics m;
  m.step = step, m.tokens = step * 2048, m.loss = 3.0 / static_cast<double>(step), m.lr = 1e-3, m.seconds = seconds;
  if (step % 2 == 0) m.validation_loss = 3.1 / static_cast<double>(step);
  return m;
}

TEST(Metrics, a_resumed_run_continues_the_lines) {
  const ScratchFolder folder;
  {
    MetricsWriter writer(folder.path(), 0);
    for (int64_t step = 1; step <= 5; ++step) writer.write(metrics_at(step, 1));
  }
  const std::string jsonl = content_of(folder / "metrics.jsonl"), csv = content_of(folder / "metrics.csv");
  for (const char* name : {"metrics.jsonl", "metrics.csv"})  // as after a kill
    std::ofstream(folder / name, std::ios::app) << "{\"step\":6,\"tok";
  {
    MetricsWriter writer(folder.path(), 3);
    for (int64_t step = 4; step <= 5; ++step) writer.write(metrics_at(step, 1));
  }
  EXPECT_EQ(content_of(folder / "metrics.jsonl"), jsonl);
  EXPECT_EQ(content_of(folder / "metrics.csv"), csv);
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 6);
  MetricsWriter(folder.path(), 0);
  EXPECT_EQ(content_of(folder / "metrics.jsonl"), "");
  MetricsWriter(folder / "new/folder", 0);
  EXPECT_TRUE(std::filesystem::exists(folder / "new/folder/metrics.csv"));
  EXPECT_TRUE(mentions(error_of([&] { MetricsWriter(folder / "metrics.csv", 0); }), "cannot create the folder"));
}

TEST(Metrics, lines_hold_exact_values) {
  const ScratchFolder folder;
  MetricsWriter writer(folder.path(), 0);
  StepMetrics m = metrics_at(2, 1);
  m.loss = 0.1 + 0.2;
  writer.write(m);
  const auto line = nlohmann::json::parse(content_of(folder / "metrics.jsonl"));
  EXPECT_EQ(line["loss"].get<double>(), m.loss);
  EXPECT_EQ(line["validation_loss"].get<double>(), *m.validation_loss);
  EXPECT_TRUE(mentions(content_of(folder / "metrics.csv"), "\n2,4096,0.30000000000000004,1.55,0.001,0,0.0,1.000\n"));
}

TEST(Progress, writes_plain_lines_to_a_file) {
  const ScratchFolder folder;
  std::FILE* out = std::fopen((folder / "log").c_str(), "w");
  ProgressLine progress(out, 99);
  for (int64_t step = 1; step <= 99; step += 2) progress.update(metrics_at(step, static_cast<double>(step) / 5), 65);
  progress.finish();
  std::fclose(out);
  const std::string log = content_of(folder / "log");
  EXPECT_TRUE(log.starts_with("step 1/99  loss 3.0000  0.00 tokens/s  1m05s left\n")) << log;
  EXPECT_TRUE(mentions(log, "\nstep 51/99"));
  EXPECT_TRUE(mentions(log, "\nstep 99/99"));
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 3);
  EXPECT_EQ(log.find('\r'), std::string::npos);
}

TEST(Progress, numbers_and_times_are_short) {
  EXPECT_EQ(short_number(0), "0.00");
  EXPECT_EQ(short_number(9.996), "10.0");
  EXPECT_EQ(short_number(999.4), "999");
  EXPECT_EQ(short_number(999.6), "1.00k");
  EXPECT_EQ(short_number(12345), "12.3k");
  EXPECT_EQ(short_number(1e9), "1.00G");
  EXPECT_EQ(short_time(-3), "0s");
  EXPECT_EQ(short_time(59.4), "59s");
  EXPECT_EQ(short_time(59.6), "1m00s");
  EXPECT_EQ(short_time(7500), "2h05m");
}

TEST(Curve, is_drawn_or_explained) {
  const ScratchFolder folder;
  MetricsWriter writer(folder.path(), 0);
  writer.write(metrics_at(1, 1));
  EXPECT_TRUE(mentions(draw_loss(folder.path()), "two steps"));
  for (int64_t step = 2; step <= 9; ++step) writer.write(metrics_at(step, 1));
  ::testing::internal::CaptureStdout();
  const std::string sentence = draw_loss(folder.path());
  const std::string drawn = ::testing::internal::GetCapturedStdout();
  if (mentions(sentence, "gnuplot is not installed")) GTEST_SKIP();
  EXPECT_TRUE(mentions(sentence, "loss.svg"));
  EXPECT_TRUE(mentions(drawn, "loss, nats per token"));
  EXPECT_TRUE(mentions(content_of(folder / "loss.svg"), "</svg>"));
  EXPECT_TRUE(content_of(folder / "loss.png").starts_with("\x89PNG"));
}

TEST(Curve, without_gnuplot_is_one_sentence) {
  const ScratchFolder folder;
  MetricsWriter writer(folder.path(), 0);
  for (int64_t step = 1; step <= 3; ++step) writer.write(metrics_at(step, 1));
  const std::string path = getenv("PATH");
  setenv("PATH", folder.path().c_str(), 1);
  const std::string sentence = draw_loss(folder.path());
  setenv("PATH", path.c_str(), 1);
  EXPECT_TRUE(mentions(sentence, "gnuplot is not installed"));
}

}  // namespace
