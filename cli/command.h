// The commands of the tool. Each file adds one to the parser; its action throws an Exit to end with something but 0.
#pragma once
#include <fmt/core.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace tc::cli {

// What scripts can rely on: 0 done and well, 1 done and found wrong (a failed check), 2 refused (bad use, bad input).
enum ExitStatus { kOk = 0, kFailed = 1, kRefused = 2 };
struct Exit {
  int status;
};

// What a number must be, besides finite.
enum class Rule : uint8_t { any, positive, not_negative, from_0_to_1 };
enum class Need : uint8_t { optional, required };

// A command's place in the parser. Values are written where the options point to, before the action runs. It stands
// before CLI11, whose templates every file would otherwise compile again.
class Command {
 public:
  explicit Command(CLI::App& parser) : parser_(&parser) {}
  Command subcommand(const std::string& name, const std::string& help);
  void require_subcommand();
  // `name` begins with --, or is that of a positional argument.
  void text(const std::string& name, std::string& value, const std::string& help, Need need = Need::optional);
  void words(const std::string& name, std::vector<std::string>& values, const std::string& help);
  void list(const std::string& name, std::vector<std::string>& values, const std::string& help);  // "a,b" or "a b"
  void integers(const std::string& name, std::vector<int32_t>& values, const std::string& help,
                Need need = Need::optional);
  template <class T>  // int, int64_t or double
  void number(const std::string& name, T& value, const std::string& help, Rule rule = Rule::any);
  void flag(const std::string& name, bool& value, const std::string& help);
  void action(std::function<void()> run);

 private:
  CLI::App* parser_;
};

// Reads the command line, runs the command that it names and returns the exit status.
int run_tool(int argc, char** argv, std::initializer_list<void (*)(Command& tool)> commands);
const char* parser_version();

// JSON for machines. Bytes that are not UTF-8, as in a file's name, become U+FFFD.
template <class Json>
void print_json(const Json& tree) {
  fmt::print("{}\n", tree.dump(2, ' ', false, Json::error_handler_t::replace));
}

void add_env(Command& tool);
void add_ops(Command& tool);
void add_check(Command& tool);
void add_bench(Command& tool);
void add_explain(Command& tool);
void add_train(Command& tool);
void add_sample(Command& tool);
void add_checkpoint(Command& tool);

}  // namespace tc::cli
