#include "traincore/train/run.h"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>

#include "traincore/core/fail.h"
#include "traincore/train/atomic_file.h"
#include "traincore/train/generator.h"
#include "traincore/train/layers.h"
#include "traincore/train/trainer.h"

namespace tc::train {
namespace {

namespace fs = std::filesystem;

class Clock {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// The checkpoint to continue, if `resume`; a run that is already there is never overwritten.
std::optional<Checkpoint> find_checkpoint(const TrainConfig& config, bool resume) {
  std::vector<std::string> skipped;
  auto newest = fs::exists(config.train.out) ? open_newest(config.train.out, skipped) : std::optional<Checkpoint>{};
  for (const std::string& sentence : skipped) fmt::print("passed over: {}\n", sentence);
  require(!newest || resume,
          "{} already holds a run (step {}); continue it with --resume, or choose another --set train.out=FOLDER",
          config.train.out, newest ? newest->state().step : 0);
  require(newest || !resume, "{} holds no checkpoint to resume", config.train.out);
  if (newest)
    require(newest->model() == config.model, "{} holds a model of another shape than this configuration",
            newest->folder());
  return newest;
}

std::string gigabytes(size_t bytes) { return fmt::format("{:.3f} GB", static_cast<double>(bytes) * 1e-9); }

void describe(const TrainConfig& config, const Trainer& trainer) {
  const ModelConfig& m = config.model;
  fmt::print(
      "model   {} parameters: {} layers of width {}, {} heads ({} for keys) of {}, mlp {}, vocabulary {}, context {}, "
      "{}\n",
      short_number(static_cast<double>(parameter_count(m))), m.layers, m.dim, m.heads, m.kv_heads, m.head_dim, m.ffn,
      m.vocab, m.context, config.train.dtype);
  const MemoryPlan& memory = trainer.memory_plan();
  fmt::print("memory  {} at most: {} of states ({} bytes a parameter), {} of activations, {} for all else\n",
             gigabytes(memory.peak()), gigabytes(memory.states), memory.states / parameter_count(m),
             gigabytes(memory.activations), gigabytes(memory.others));
  fmt::print("steps   {} of {} sequences ({} at a time), {} tokens each\n", config.train.steps, config.train.batch,
             config.train.micro_batch, config.train.batch * m.context);
  if (!trainer.data_note().empty()) fmt::print("data    {}\n", trainer.data_note());
  std::fflush(stdout);
}

bool due(int64_t every, int64_t step) { return every > 0 && step % every == 0; }

// Steps until the last one or the time limit.
void train_steps(const TrainConfig& config, Trainer& trainer) {
  MetricsWriter metrics(config.train.out, trainer.steps_done());
  ProgressLine progress(stdout, config.train.steps);
  const Clock clock;
  const int64_t first = trainer.steps_done(), last = config.train.steps;
  while (trainer.steps_done() < last) {
    StepMetrics m = trainer.step();
    m.seconds = clock.seconds();
    const bool out_of_time = config.train.minutes > 0 && m.seconds >= 60 * config.train.minutes;
    const bool final = m.step == last || out_of_time;
    if (final || due(config.train.eval_every, m.step)) m.validation_loss = trainer.evaluate();
    metrics.write(m);  // before the checkpoint: a resumed run drops lines that are too many, but none may be missing
    if (final || due(config.train.save_every, m.step)) trainer.save(m.validation_loss);
    const double per_step = clock.seconds() / static_cast<double>(m.step - first);
    progress.update(m, per_step * static_cast<double>(last - m.step));
    if (!final) continue;
    progress.finish();
    if (out_of_time && m.step < last)
      fmt::print("stopped after {} of {} steps: the time limit of {} minutes\n", m.step, last, config.train.minutes);
    return;
  }
}

std::string continuation(Generator& generator, const Tokenizer& tokenizer, const SampleConfig& sample, int64_t seed) {
  const std::vector<int32_t> prompt = tokenizer.encode(sample.prompt);
  require(!prompt.empty(), "the prompt is empty; a sample needs at least one token to start from");
  return sample.prompt + tokenizer.decode(generator.generate(prompt, sample, static_cast<uint64_t>(seed)));
}

// A checkpoint with its weights in memory, in their own dtype.
struct LoadedModel {
  Checkpoint checkpoint;
  int32_t dtype;
  Memory memory;
  Weights weights;
};

LoadedModel load_model(const std::string& folder, const tc_exec& exec) {
  std::vector<std::string> skipped;
  Checkpoint checkpoint = open_model(folder, skipped);
  for (const std::string& sentence : skipped) fmt::print(stderr, "passed over: {}\n", sentence);
  const int32_t dtype = checkpoint.weight("model.norm.weight").dtype;
  auto [memory, weights] = allocate([&](Arena& arena) { return carve_weights(checkpoint.model(), dtype, arena); });
  for (const NamedTensor& t : named_weights(checkpoint.model(), weights))
    convert(checkpoint.weight(t.name), t.tensor, exec);
  return {std::move(checkpoint), dtype, std::move(memory), std::move(weights)};
}

}  // namespace

void run_training(TrainConfig config, bool resume) {
  const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(config.data.tokenizer);
  if (config.model.vocab == 0) config.model.vocab = tokenizer->vocab();
  validate(config);
  require(config.model.vocab >= tokenizer->vocab(), "model.vocab is {}, but the tokenizer has {} tokens",
          config.model.vocab, tokenizer->vocab());
  const std::optional<Checkpoint> from = find_checkpoint(config, resume);
  Trainer trainer(config, *tokenizer, from ? &*from : nullptr);
  create_folders(config.train.out);  // not before all that can be refused was: a refused run leaves nothing behind
  const Descriptor lock = lock_folder(config.train.out);
  describe(config, trainer);
  if (from) fmt::print("resume  {} at step {}\n", from->folder(), trainer.steps_done());
  train_steps(config, trainer);
  trainer.release_activations();
  fmt::print("{}\n", draw_loss(config.train.out));
  tc_exec exec = tc_exec_default();
  exec.threads = static_cast<int32_t>(config.train.threads);
  Generator generator(config.model, trainer.states().weights, dtype_of_run(config.train), exec);
  fmt::print("sample:\n{}\n", continuation(generator, *tokenizer, config.sample, config.train.seed));
}

std::string sample_text(const SampleRequest& request) {
  tc_exec exec = tc_exec_default();
  exec.threads = static_cast<int32_t>(request.threads);
  const LoadedModel loaded = load_model(request.folder, exec);
  const std::unique_ptr<Tokenizer> tokenizer =
      request.tokenizer.empty() ? loaded.checkpoint.tokenizer() : make_tokenizer(request.tokenizer);
  const ModelConfig& model = loaded.checkpoint.model();
  require(model.vocab >= tokenizer->vocab(), "{}: the model has {} tokens, but the tokenizer {}; give --tokenizer",
          loaded.checkpoint.folder(), model.vocab, tokenizer->vocab());
  Generator generator(model, loaded.weights, loaded.dtype, exec);
  return continuation(generator, *tokenizer, request.sample, request.seed);
}

Logits logits_of(const std::string& folder, std::span<const int32_t> tokens) {
  const tc_exec exec = tc_exec_default();
  const LoadedModel loaded = load_model(folder, exec);
  const ModelConfig& model = loaded.checkpoint.model();
  const auto count = static_cast<int64_t>(tokens.size());
  require(count > 0 && count <= model.context, "--tokens: {} are given, but this model takes 1 to {}", count,
          model.context);
  for (const int32_t id : tokens)
    require(id >= 0 && id < model.vocab, "--tokens: {} is no token of this model, which has 0 to {}", id,
            model.vocab - 1);
  RopeTables rope;
  const auto [memory, a] = allocate([&](Arena& arena) {
    rope = carve_rope_tables(model, arena);
    return carve_activations(model, loaded.dtype, 1, count, arena);
  });
  fill_rope_tables(model, rope);
  std::copy(tokens.begin(), tokens.end(), static_cast<int32_t*>(a.tokens.data));
  Decoder(model, loaded.weights, rope, exec).forward(a);
  Logits found{.vocab = model.vocab, .values = std::vector<float>(tokens.size() * static_cast<size_t>(model.vocab))};
  tc_tensor wide = a.logits;
  wide.data = found.values.data();
  wide.dtype = TC_DTYPE_F32;
  convert(a.logits, wide, exec);
  return found;
}

}  // namespace tc::train
