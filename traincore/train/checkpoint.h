// Checkpoints: folders that either exist whole or not at all.
//
//   <run>/step-000100/  config.json, model.safetensors   the model as Hugging Face `transformers` loads it
//                       optimizer.safetensors            f32: m.<name>, v.<name>, and of bf16 weights master.<name>
//                       tokenizer.model                  the SentencePiece model, unless tokens are bytes
//                       state.json                       step, data cursor, best validation loss, configuration
//                       manifest.json                    size and SHA-256 of each file above
//   <run>/latest        a link to the one saved last
//
// The learning rate is a function of (configuration, step) and every random number one of (seed, its use, a counter),
// so these files are all that a run is made of. Killed at any moment, older checkpoints stay; a *.tmp folder is a save
// that did not end, ignored and removed by the next one.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "traincore/train/config.h"
#include "traincore/train/data.h"
#include "traincore/train/llama_files.h"

namespace tc::train {

struct TrainState {
  int64_t step = 0;            // optimizer steps done
  Cursor cursor;               // the next training window
  int64_t data_tokens = 0;     // what the data held, so that other data is noticed
  int64_t random_counter = 0;  // numbers drawn from streams that the step does not determine
  std::optional<double> best_validation_loss;
  TrainConfig config;
};

// What one save writes; views only.
struct Snapshot {
  const TrainState& state;
  std::span<const NamedTensor> weights;  // exactly llama_tensors(state.config.model), one dtype
  std::span<const NamedTensor> optimizer;
  const Tokenizer& tokenizer;
};

// Writes <state.config.train.out>/step-NNNNNN, points `latest` at it, then removes all but the newest `train.keep`.
// Returns its path. Errors (a full disk, no permission): one sentence; the checkpoints that were there stay.
std::string save_checkpoint(const Snapshot& snapshot);

// A checkpoint, or any folder with a Llama from Hugging Face, open for reading.
class Checkpoint {
 public:
  // Errors: a file that the manifest does not describe, a setting or tensor that is not supported, missing or
  // misshapen.
  explicit Checkpoint(std::string folder);
  const std::string& folder() const { return folder_; }
  const ModelConfig& model() const { return model_; }
  const tc_tensor& weight(std::string_view name) const;  // f32, bf16 or f16, of the shape that llama_tensors() says
  bool resumable() const { return state_.has_value(); }
  // The one that the model was trained with. Errors: a folder that is not ours and has no tokenizer.model.
  std::unique_ptr<Tokenizer> tokenizer() const;
  const TrainState& state() const;                          // Errors: no training state (a plain Hugging Face folder)
  const tc_tensor& optimizer(std::string_view name) const;  // likewise

 private:
  std::string folder_;
  ModelConfig model_;
  LlamaWeights weights_;
  std::optional<SafetensorsFile> optimizer_;
  std::optional<TrainState> state_;
};

// The run's `latest` checkpoint if it opens, else the highest step that does; what is wrong with those that do not is
// appended to `skipped`, a sentence each.
std::optional<Checkpoint> open_newest(const std::string& run, std::vector<std::string>& skipped);

// `path` itself if a model is in it, else the newest checkpoint of the run that it is. Errors: neither, or nothing opens.
Checkpoint open_model(const std::string& path, std::vector<std::string>& skipped);

struct Verification {
  std::vector<std::string> problems;  // none: the folder can be trusted
  std::vector<std::string> notes;     // what could not be checked
  int64_t tensors = 0, values = 0;
};
// Hashes, the model's settings, every tensor's shape, and every value finite: of a checkpoint, or of all of a run's.
// Throws only if `folder` is none; what it finds is in the result.
Verification verify_checkpoint(const std::string& folder);

}  // namespace tc::train
