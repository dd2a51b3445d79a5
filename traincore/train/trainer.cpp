#include "traincore/train/trainer.h"

#include <unistd.h>

#include <chrono>
#include <cmath>
#include <fstream>
#include <limits>
#include <thread>

#include "traincore/core/fail.h"
#include "traincore/core/view.h"
#include "traincore/ops/adamw/adamw.h"
#include "traincore/ops/fill/fill.h"
#include "traincore/ops/grad_norm/grad_norm.h"
#include "traincore/ops/random/random.h"
#include "traincore/train/layers.h"
#include "traincore/train/random_use.h"
#include "traincore/train/schedule.h"

namespace tc::train {
namespace {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void fill_all(const std::vector<tc_tensor>& tensors, double value, const tc_exec& exec) {
  for (const tc_tensor& t : tensors) {
    auto args = tcx_fill_args_default();
    args.y = t;
    args.value = value;
    fill(args, exec);
  }
}

// What this process occupies of the memory now.
size_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  size_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

// Matrices and gains in one list: the order in which the gradient's norm is summed.
std::vector<tc_tensor> all_tensors(const Weights& w) {
  std::vector<tc_tensor> list = matrices(w);
  const std::vector<tc_tensor> rest = gains(w);
  list.insert(list.end(), rest.begin(), rest.end());
  return list;
}

struct Norm {
  float norm, factor;
  int64_t nonfinite;
};
Norm norm_of(const std::vector<tc_tensor>& gradients, double max_norm, const tc_exec& exec) {
  Norm n{};
  auto args = tcx_grad_norm_args_default();
  args.grads = gradients.data();
  args.grads_count = static_cast<int64_t>(gradients.size());
  args.norm = tc_tensor_dense(&n.norm, TC_DTYPE_F32, 0, nullptr);
  args.clip = tc_tensor_dense(&n.factor, TC_DTYPE_F32, 0, nullptr);
  args.nonfinite = tc_tensor_dense(&n.nonfinite, TC_DTYPE_I64, 0, nullptr);
  args.max_norm = max_norm;
  grad_norm(args, exec);
  return n;
}

}  // namespace

int32_t dtype_of_run(const RunConfig& run) { return run.dtype == "bf16" ? TC_DTYPE_BF16 : TC_DTYPE_F32; }

States carve_states(const ModelConfig& model, int32_t dtype, Arena& arena) {
  States s;
  s.masters = carve_weights(model, TC_DTYPE_F32, arena);
  s.weights = dtype == TC_DTYPE_F32 ? s.masters : carve_weights(model, dtype, arena);
  s.gradients = carve_weights(model, TC_DTYPE_F32, arena);
  s.m = carve_weights(model, TC_DTYPE_F32, arena);
  s.v = carve_weights(model, TC_DTYPE_F32, arena);
  return s;
}

void initialise(const ModelConfig& model, int64_t seed, const Weights& masters) {
  constexpr double kDeviation = 0.02;
  int64_t number = 0;
  for (const NamedTensor& t : named_weights(model, masters)) {
    const bool into_stream = t.name.ends_with("o_proj.weight") || t.name.ends_with("down_proj.weight");
    const Philox random = random_for(static_cast<uint64_t>(seed), RandomUse::initial_weights, number++);
    if (t.tensor.rank == 1) {
      fill_all({t.tensor}, 1, tc_exec_default());
      continue;
    }
    auto args = tcx_random_args_default();
    args.y = t.tensor;
    args.distribution = TC_RANDOM_NORMAL;
    args.std = into_stream ? kDeviation / std::sqrt(2.0 * static_cast<double>(model.layers)) : kDeviation;
    args.seed = static_cast<int64_t>(random.seed);
    args.stream = static_cast<int64_t>(random.stream);
    tc::random(args);
  }
}

Trainer::Trainer(const TrainConfig& config, const Tokenizer& tokenizer, const Checkpoint* from)
    : config_(config),
      tokenizer_(tokenizer),
      exec_(tc_exec_default()),
      dtype_(dtype_of_run(config.train)),
      tokens_(config.data.files, tokenizer, config.model.vocab),
      split_(split_tokens(tokens_.size(), config.model.context, config.data.val_fraction)),
      sampler_(split_.train, config.model.context, static_cast<uint64_t>(config.train.seed)),
      decoder_(config_.model, states_.weights, rope_, exec_) {
  exec_.threads = static_cast<int32_t>(config.train.threads);
  memory_plan_.others = resident_bytes();
  std::tie(state_memory_, states_) = allocate([&](Arena& arena) { return carve_states(config_.model, dtype_, arena); });
  std::tie(activation_memory_, activations_) = allocate([&](Arena& arena) {
    rope_ = carve_rope_tables(config_.model, arena);
    return carve_activations(config_.model, dtype_, config_.train.micro_batch, config_.model.context, arena);
  });
  memory_plan_.states = state_memory_.bytes();
  memory_plan_.activations = activation_memory_.bytes();
  memory_plan_.others += scratch_bytes();
  fill_rope_tables(config_.model, rope_);
  state_.config = config_;
  state_.data_tokens = tokens_.size();
  if (from)
    load(*from);
  else
    initialise(config_.model, config_.train.seed, states_.masters);
  refresh_weights();
}

size_t Trainer::scratch_bytes() const {
  constexpr size_t kThread = 8 << 20;    // tiles and panels of a product, oneDNN's copies of them, a stack
  constexpr size_t kProgram = 32 << 20;  // code, the kernels that oneDNN makes, what a step allocates in small pieces
  const size_t threads = exec_.threads > 0 ? exec_.threads : std::thread::hardware_concurrency();
  return decoder_.scratch_bytes(activations_) + threads * kThread + kProgram;
}

void Trainer::load(const Checkpoint& from) {
  state_ = from.state();
  state_.config = config_;
  require(state_.data_tokens == tokens_.size(), "{}: was trained on data of {} tokens, but the files given now hold {}",
          from.folder(), state_.data_tokens, tokens_.size());
  sampler_.seek(state_.cursor);
  const bool own_masters = dtype_ != TC_DTYPE_F32;
  for (const NamedTensor& t : named_weights(config_.model, states_.masters))
    convert(own_masters ? from.optimizer("master." + t.name) : from.weight(t.name), t.tensor, exec_);
  for (const NamedTensor& t : named_weights(config_.model, states_.m))
    convert(from.optimizer("m." + t.name), t.tensor, exec_);
  for (const NamedTensor& t : named_weights(config_.model, states_.v))
    convert(from.optimizer("v." + t.name), t.tensor, exec_);
  last_saved_ = from.folder();
}

void Trainer::refresh_weights() {
  if (dtype_ == TC_DTYPE_F32) return;
  const std::vector<tc_tensor> from = all_tensors(states_.masters), to = all_tensors(states_.weights);
  for (size_t i = 0; i < from.size(); ++i) convert(from[i], to[i], exec_);
}

void Trainer::fail_non_finite(const std::string& what) const {
  throw NonFinite(TC_ERR_INVALID_ARG, fmt::format("step {}: {} is not finite; {}", state_.step + 1, what,
                                                  last_saved_.empty() ? "no checkpoint was saved before it"
                                                                      : "the last good checkpoint is " + last_saved_));
}

double Trainer::accumulate_gradients() {
  const int64_t batch = config_.train.batch, micro = config_.train.micro_batch, context = config_.model.context;
  fill_all(all_tensors(states_.gradients), 0, exec_);
  *static_cast<float*>(activations_.normalizer.data) = static_cast<float>(batch * context);
  double loss = 0;
  for (int64_t done = 0; done < batch; done += micro) {
    read_windows(tokens_, sampler_.next(micro), context, static_cast<int32_t*>(activations_.tokens.data),
                 static_cast<int32_t*>(activations_.targets.data));
    decoder_.forward(activations_);
    decoder_.loss(activations_, true);
    loss += *static_cast<const float*>(activations_.loss.data);
    if (!std::isfinite(loss)) fail_non_finite("the loss");
    decoder_.backward(activations_, states_.gradients);
  }
  return loss;
}

double Trainer::gradient_norm() {
  const double limit = config_.optim.clip > 0 ? config_.optim.clip : std::numeric_limits<float>::max();
  const Norm n = norm_of(all_tensors(states_.gradients), limit, exec_);
  clip_factor_ = n.factor;
  if (n.nonfinite == 0) return n.norm;
  for (const NamedTensor& t : named_weights(config_.model, states_.gradients))
    if (norm_of({t.tensor}, limit, exec_).nonfinite > 0) fail_non_finite("the gradient of " + t.name);
  fail_non_finite("the gradient's norm");
}

void Trainer::update(double lr) {
  const auto update_group = [&](auto group, double weight_decay) {
    const std::vector<tc_tensor> params = group(states_.masters), copies = group(states_.weights),
                                 grads = group(states_.gradients), m = group(states_.m), v = group(states_.v);
    auto args = tcx_adamw_args_default();
    const auto count = static_cast<int64_t>(params.size());
    args.params = params.data(), args.params_count = count;
    args.grads = grads.data(), args.grads_count = count;
    args.m = m.data(), args.m_count = count;
    args.v = v.data(), args.v_count = count;
    if (dtype_ != TC_DTYPE_F32) args.copy_out = copies.data(), args.copy_out_count = count;
    args.clip = clip_factor_;
    args.lr = lr;
    args.beta1 = config_.optim.beta1;
    args.beta2 = config_.optim.beta2;
    args.eps = config_.optim.eps;
    args.weight_decay = weight_decay;
    args.step = state_.step + 1;
    adamw(args, exec_);
  };
  update_group(matrices, config_.optim.weight_decay);
  update_group(gains, 0);
}

StepMetrics Trainer::step() {
  const double start = seconds_now();
  StepMetrics metrics;
  const Cursor before = sampler_.cursor();
  try {
    metrics.loss = accumulate_gradients();
    metrics.gradient_norm = gradient_norm();
  } catch (const NonFinite&) {
    sampler_.seek(before);
    throw;
  }
  metrics.lr = learning_rate(config_.optim, config_.train.steps, state_.step);
  update(metrics.lr);
  state_.cursor = sampler_.cursor();
  metrics.step = ++state_.step;
  metrics.tokens = state_.step * config_.train.batch * config_.model.context;
  metrics.tokens_per_second =
      static_cast<double>(config_.train.batch * config_.model.context) / (seconds_now() - start);
  return metrics;
}

std::optional<double> Trainer::evaluate() {
  const int64_t micro = config_.train.micro_batch, context = config_.model.context;
  std::vector<int64_t> starts =
      evaluation_windows(split_.validation, context, config_.train.eval_batches * config_.train.batch);
  if (starts.empty()) return {};
  auto* const targets = static_cast<int32_t*>(activations_.targets.data);
  double total = 0;
  int64_t count = 0;
  for (size_t first = 0; first < starts.size(); first += static_cast<size_t>(micro)) {
    std::vector<int64_t> rows(starts.begin() + static_cast<int64_t>(first),
                              starts.begin() + std::min<int64_t>(first + micro, starts.size()));
    const auto present = static_cast<int64_t>(rows.size());
    rows.resize(static_cast<size_t>(micro),
                rows[0]);  // the shape of a micro-batch is fixed; what fills it up is ignored
    read_windows(tokens_, rows, context, static_cast<int32_t*>(activations_.tokens.data), targets);
    std::fill(targets + present * context, targets + micro * context, -100);
    *static_cast<float*>(activations_.normalizer.data) = static_cast<float>(present * context);
    decoder_.forward(activations_);
    decoder_.loss(activations_, false);
    total += static_cast<double>(*static_cast<const float*>(activations_.loss.data)) * static_cast<double>(present);
    count += present;
  }
  return total / static_cast<double>(count);
}

std::vector<NamedTensor> Trainer::optimizer_tensors() const {
  std::vector<NamedTensor> list = named_weights(config_.model, states_.m, "m.");
  const auto append = [&](const std::vector<NamedTensor>& more) { list.insert(list.end(), more.begin(), more.end()); };
  append(named_weights(config_.model, states_.v, "v."));
  if (dtype_ != TC_DTYPE_F32) append(named_weights(config_.model, states_.masters, "master."));
  return list;
}

std::string Trainer::save(std::optional<double> validation_loss) {
  if (validation_loss && (!state_.best_validation_loss || *validation_loss < *state_.best_validation_loss))
    state_.best_validation_loss = validation_loss;
  const std::vector<NamedTensor> weights = named_weights(config_.model, states_.weights),
                                 optimizer = optimizer_tensors();
  last_saved_ = save_checkpoint({state_, weights, optimizer, tokenizer_});
  return last_saved_;
}

}  // namespace tc::train
