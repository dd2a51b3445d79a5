// One training run: its states, its steps, its checkpoints.
#pragma once
#include <functional>

#include "traincore/train/checkpoint.h"
#include "traincore/train/decoder.h"
#include "traincore/train/metrics.h"

namespace tc::train {

// What a model that is being trained consists of. For f32 the masters are the weights themselves.
struct States {
  Weights weights;    // what the decoder computes with: f32 or bf16
  Weights masters;    // f32, what AdamW updates
  Weights gradients;  // f32, summed over the micro-batches of a step
  Weights m, v;       // f32, AdamW's moments
};
States carve_states(const ModelConfig& model, int32_t dtype, Arena& arena);

int32_t dtype_of_run(const RunConfig& run);

// N(0, 0.02^2), the projections back into the residual stream narrower by sqrt(2 layers); gains 1. Pure in the seed.
void initialise(const ModelConfig& model, int64_t seed, const Weights& masters);

// What a run that trains occupies, in bytes. A checkpoint that is resumed is read through the page cache besides.
struct MemoryPlan {
  size_t states;       // parameters, gradients and moments
  size_t activations;  // of a micro-batch, and their gradients
  size_t others;       // the most that the program, the tokens and the scratch of the threads take
  size_t peak() const { return states + activations + others; }
};

// A step met a number that is not finite. The weights are as before that step.
struct NonFinite : Error {
  using Error::Error;
};

class Trainer {
 public:
  // A new run, or the continuation of a checkpoint of it. The tokenizer must outlive the trainer.
  Trainer(const TrainConfig& config, const Tokenizer& tokenizer, const Checkpoint* from);

  // One optimizer step. Throws NonFinite naming step and tensor.
  StepMetrics step();
  // Mean loss over the first eval_batches * batch validation windows, nats; nothing if there are none.
  std::optional<double> evaluate();
  // Writes a checkpoint and returns its folder.
  std::string save(std::optional<double> validation_loss);

  int64_t steps_done() const { return state_.step; }
  const States& states() const { return states_; }
  const MemoryPlan& memory_plan() const { return memory_plan_; }
  // Gives back the memory of the activations; no step and no evaluation may follow.
  void release_activations() { activation_memory_ = {}; }
  const std::string& data_note() const { return split_.note; }

 private:
  size_t scratch_bytes() const;
  void load(const Checkpoint& from);
  void refresh_weights();
  double accumulate_gradients();
  double gradient_norm();
  void update(double lr);
  [[noreturn]] void fail_non_finite(const std::string& what) const;
  std::vector<NamedTensor> optimizer_tensors() const;

  TrainConfig config_;
  const Tokenizer& tokenizer_;
  tc_exec exec_;
  int32_t dtype_;
  TokenStream tokens_;
  Split split_;
  Sampler sampler_;
  TrainState state_;
  Memory state_memory_;
  States states_;
  Memory activation_memory_;
  Activations activations_;
  RopeTables rope_;
  Decoder decoder_;
  MemoryPlan memory_plan_;
  std::string last_saved_;
  float clip_factor_ = 1;
};

}  // namespace tc::train
