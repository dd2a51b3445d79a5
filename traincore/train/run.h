// The main job: train until the steps are done, telling how it goes, saving as it goes.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "traincore/train/config.h"

namespace tc::train {

// Trains as `config` says (already validated but for model.vocab, where 0 takes the tokenizer's) and writes
// checkpoints, metrics, the loss curve and a sample into config.train.out. `resume` continues its newest checkpoint;
// without it a folder that holds a run is refused. Throws NonFinite if the numbers break.
void run_training(TrainConfig config, bool resume);

// Text by the model in a checkpoint, a run (its newest checkpoint) or a Hugging Face folder: the prompt and what
// follows.
struct SampleRequest {
  std::string folder;
  std::string tokenizer;  // a SentencePiece model; empty: what the run was trained with, else bytes
  SampleConfig sample;
  int64_t seed = 1;
  int64_t threads = 0;
};
std::string sample_text(const SampleRequest& request);

// What a model, found as above, answers to `tokens`: row i holds the logits of the token that follows tokens[0 .. i].
struct Logits {
  int64_t vocab = 0;
  std::vector<float> values;  // [tokens, vocab]
};
Logits logits_of(const std::string& folder, std::span<const int32_t> tokens);

}  // namespace tc::train
