// traincore train, sample, checkpoint: the main job and what it leaves behind.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/terminal.h"
#include "traincore/core/fail.h"
#include "traincore/train/checkpoint.h"
#include "traincore/train/run.h"
#include "traincore/train/trainer.h"

namespace tc::cli {
namespace {

struct TrainFlags {
  std::vector<std::string> data, assignments;
  std::string preset, config, tokenizer;
  bool resume = false, print_config = false;
};

void run_train(const TrainFlags& flags) {
  train::TrainConfig config = train::resolve_config(flags.preset, flags.config, flags.assignments);
  if (!flags.data.empty()) config.data.files = flags.data;
  if (!flags.tokenizer.empty()) config.data.tokenizer = flags.tokenizer;
  if (flags.print_config) {
    fmt::print("{}", train::to_toml(config));
    return;
  }
  require(!config.data.files.empty(), "train: no data; give text files with --data FILES...");
  try {
    train::run_training(config, flags.resume);
  } catch (const train::NonFinite& e) {
    fmt::print(stderr, "traincore: {}\n", e.what());
    throw Exit{kFailed};
  }
}

void run_verify(const std::string& folder, bool json) {
  const train::Verification v = train::verify_checkpoint(folder);
  if (json) {
    print_json(nlohmann::json{{"folder", folder},
                              {"problems", v.problems},
                              {"notes", v.notes},
                              {"tensors", v.tensors},
                              {"values", v.values}});
  } else {
    for (const std::string& note : v.notes) fmt::print("note: {}\n", note);
    for (const std::string& problem : v.problems) fmt::print("{} {}\n", bad("problem:"), problem);
    if (v.problems.empty())
      fmt::print("{} {}: {} tensors, {} values, all finite and as written\n", good("good"), folder, v.tensors,
                 v.values);
  }
  if (!v.problems.empty()) throw Exit{kFailed};
}

void print_logits(const std::string& folder, const std::vector<int32_t>& tokens) {
  const train::Logits found = train::logits_of(folder, tokens);
  const auto vocab = static_cast<size_t>(found.vocab);
  for (size_t i = 0; i < tokens.size(); ++i)
    fmt::print("{}\n", fmt::join(std::span(found.values).subspan(i * vocab, vocab), " "));
}

}  // namespace

void add_train(Command& tool) {
  Command command = tool.subcommand("train", "Train a Llama-style model on text files");
  auto flags = std::make_shared<TrainFlags>();
  command.words("--data", flags->data, "text files, or token ids as .bin (u16) and .u32.bin");
  command.text("--preset", flags->preset, fmt::format("{} (default: tiny)", fmt::join(train::preset_names(), ", ")));
  command.text("--config", flags->config, "a TOML file with sections model, train, data, optim, sample");
  command.words("--set", flags->assignments, "key=value over preset and file, e.g. --set train.steps=100");
  command.text("--tokenizer", flags->tokenizer, "a SentencePiece model (default: bytes)");
  command.flag("--resume", flags->resume, "continue the newest checkpoint in train.out, bit for bit");
  command.flag("--print-config", flags->print_config, "print the configuration as TOML and stop");
  command.action([flags] { run_train(*flags); });
}

void add_sample(Command& tool) {
  Command command = tool.subcommand("sample", "Write text with a trained model");
  auto request = std::make_shared<train::SampleRequest>();
  command.text("folder", request->folder, "a run, a checkpoint, or a Hugging Face Llama folder", Need::required);
  command.text("--prompt", request->sample.prompt, "what the text starts with");
  command.number("--tokens", request->sample.tokens, "how many tokens to write", Rule::positive);
  command.number("--temperature", request->sample.temperature, "0: always the likeliest token", Rule::not_negative);
  command.number("--top-k", request->sample.top_k, "choose among the k likeliest; 0: all", Rule::not_negative);
  command.number("--top-p", request->sample.top_p, "choose among the fewest that hold this probability",
                 Rule::from_0_to_1);
  command.number("--seed", request->seed, "the same seed writes the same text");
  command.text("--tokenizer", request->tokenizer, "a SentencePiece model (default: the run's own, else bytes)");
  command.number("--threads", request->threads, "0: all cores", Rule::not_negative);
  command.action([request] { fmt::print("{}\n", train::sample_text(*request)); });
}

void add_checkpoint(Command& tool) {
  Command command = tool.subcommand("checkpoint", "Look into checkpoints");
  command.require_subcommand();
  Command verify = command.subcommand("verify", "Check hashes, shapes, and that every number is finite");
  auto folder = std::make_shared<std::string>();
  auto json = std::make_shared<bool>(false);
  verify.text("folder", *folder, "a checkpoint, e.g. runs/demo/latest, or a run: all of its checkpoints",
              Need::required);
  verify.flag("--json", *json, "for machines");
  verify.action([folder, json] { run_verify(*folder, *json); });
  Command logits = command.subcommand(
      "logits", "Print what a model answers to tokens, a line for each, to hold against another implementation");
  auto tokens = std::make_shared<std::vector<int32_t>>();
  logits.text("folder", *folder, "a run, a checkpoint, or a Hugging Face Llama folder", Need::required);
  logits.integers("--tokens", *tokens, "ids, e.g. --tokens 5 17 3", Need::required);
  logits.action([folder, tokens] { print_logits(*folder, *tokens); });
}

}  // namespace tc::cli
