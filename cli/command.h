// The commands of the tool. Each file adds one to the parser; its callback throws an ExitCode to end with something but
// 0.
#pragma once
#include <CLI/CLI.hpp>

namespace tc::cli {

// What scripts can rely on: 0 done and well, 1 done and found wrong (a failed check), 2 refused (bad use, bad input).
enum ExitStatus { kOk = 0, kFailed = 1, kRefused = 2 };
struct Exit {
  int status;
};

void add_env(CLI::App& app);
void add_ops(CLI::App& app);
void add_check(CLI::App& app);
void add_bench(CLI::App& app);
void add_explain(CLI::App& app);
void add_train(CLI::App& app);
void add_sample(CLI::App& app);
void add_checkpoint(CLI::App& app);

}  // namespace tc::cli
