// Everything that one training run depends on, in one struct. A preset gives the values, a TOML file and key=value
// pairs change them, validate() checks them, and the whole travels as JSON inside every checkpoint.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace tc::train {

// A Llama-style decoder: RMSNorm, rotary positions, grouped-query attention, SwiGLU, no biases.
struct ModelConfig {
  int64_t dim = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t ffn = 0;
  int64_t vocab = 0;  // 0: as many as the tokenizer has
  int64_t context = 0;
  double rope_theta = 10000;
  double rms_eps = 1e-5;
  bool tied = true;  // the output head is the embedding
  bool operator==(const ModelConfig&) const = default;
};

struct RunConfig {
  std::string dtype = "f32";  // f32 or bf16; bf16 keeps f32 masters
  std::string out = "runs/default";
  int64_t batch = 0;        // sequences per optimizer step
  int64_t micro_batch = 0;  // sequences per pass; their gradients add up
  int64_t steps = 0;
  double minutes = 0;  // stop after this time even if steps are left; 0: no limit
  int64_t seed = 1;
  int64_t eval_every = 50;  // steps; 0: never
  int64_t eval_batches = 8;
  int64_t save_every = 100;  // steps; 0: at the end only
  int64_t keep = 2;          // checkpoints; older ones are removed
  int64_t threads = 0;       // 0: all cores
  bool operator==(const RunConfig&) const = default;
};

struct DataConfig {
  std::vector<std::string> files;
  std::string tokenizer;  // a SentencePiece model; empty: bytes
  double val_fraction = 0.05;
  bool operator==(const DataConfig&) const = default;
};

struct OptimConfig {
  double lr = 1e-3;
  double min_lr = 1e-4;
  int64_t warmup = 0;  // steps
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;  // of matrices; never of norms
  double clip = 1;            // largest norm of the gradient; 0: none
  bool operator==(const OptimConfig&) const = default;
};

struct SampleConfig {
  std::string prompt = "\n";
  int64_t tokens = 256;
  double temperature = 0.8;  // 0: always the likeliest token
  int64_t top_k = 0;         // 0: all
  double top_p = 1;
  bool operator==(const SampleConfig&) const = default;
};

struct TrainConfig {
  std::string preset;
  ModelConfig model;
  RunConfig train;
  DataConfig data;
  OptimConfig optim;
  SampleConfig sample;
  bool operator==(const TrainConfig&) const = default;
};

// One value of a configuration under its dotted name. Numbers must lie in [low, high]; a string with `choices` ("a|b")
// must be one of them.
struct Setting {
  using Target = std::variant<int64_t*, double*, bool*, std::string*, std::vector<std::string>*>;
  std::string_view key;
  Target target;
  double low = 0, high = 0;
  std::string_view choices{};
};
// All of them, bound to `config`: what reading, writing, checking and help texts go through.
std::vector<Setting> settings(TrainConfig& config);

std::vector<std::string_view> preset_names();

// The preset (empty: the file's, else tiny), changed by the TOML file (empty: none) and then by "key=value"
// assignments. Errors, each naming the nearest known word: unknown preset or key; and: a value of another type, a
// malformed file.
TrainConfig resolve_config(std::string_view preset, const std::string& toml_file,
                           std::span<const std::string> assignments);

// Throws on the first value out of range and on values that disagree. resolve_config() leaves this to the caller, who
// may still change values.
void validate(const TrainConfig& config);

std::string to_toml(const TrainConfig& config);
nlohmann::json to_json(const TrainConfig& config);
TrainConfig config_from_json(nlohmann::json tree);  // what to_json made, bit for bit

// The candidate with the fewest edits (Levenshtein) to `word`; of dotted names the last part counts first.
std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace tc::train
