// The commands of the tool. Each file adds one to the parser; its callback throws an ExitCode to end with something but
// 0.
#pragma once
#include <fmt/core.h>

#include <CLI/CLI.hpp>

namespace tc::cli {

// What scripts can rely on: 0 done and well, 1 done and found wrong (a failed check), 2 refused (bad use, bad input).
enum ExitStatus { kOk = 0, kFailed = 1, kRefused = 2 };
struct Exit {
  int status;
};

// Of an option that is a finite number: refused, in a sentence that fits a terminal, unless the rule holds.
CLI::Validator positive();
CLI::Validator not_negative();
CLI::Validator from_0_to_1();

// JSON for machines. Bytes that are not UTF-8, as in a file's name, become U+FFFD.
template <class Json>
void print_json(const Json& tree) {
  fmt::print("{}\n", tree.dump(2, ' ', false, Json::error_handler_t::replace));
}

void add_env(CLI::App& app);
void add_ops(CLI::App& app);
void add_check(CLI::App& app);
void add_bench(CLI::App& app);
void add_explain(CLI::App& app);
void add_train(CLI::App& app);
void add_sample(CLI::App& app);
void add_checkpoint(CLI::App& app);

}  // namespace tc::cli
