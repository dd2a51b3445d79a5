#include "cli/command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cmath>

#include "traincore/core/error.h"

namespace tc::cli {
namespace {

bool holds(Rule rule, double value) {
  switch (rule) {
    case Rule::any:
      return true;
    case Rule::positive:
      return value > 0;
    case Rule::not_negative:
      return value >= 0;
    case Rule::from_0_to_1:
      return value >= 0 && value <= 1;
  }
  return false;
}

// Refuses a number in a sentence that fits a terminal.
CLI::Validator validator(Rule rule) {
  const char* const names[] = {"", " > 0", " >= 0", " from 0 to 1"};
  const std::string wanted = names[static_cast<int>(rule)];
  const auto check = [rule, wanted](const std::string& text) {
    double value = 0;
    const bool good = CLI::detail::lexical_cast(text, value) && std::isfinite(value) && holds(rule, value);
    return good ? std::string() : fmt::format("{} is given, but a number{} is wanted", text, wanted);
  };
  return {check, "", "number"};
}

// A default that a line of help can show.
bool is_printable(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isprint(c); });
}

}  // namespace

Command Command::subcommand(const std::string& name, const std::string& help) {
  return Command(*parser_->add_subcommand(name, help));
}

void Command::require_subcommand() { parser_->require_subcommand(1); }

void Command::text(const std::string& name, std::string& value, const std::string& help, Need need) {
  CLI::Option* const option = parser_->add_option(name, value, help)->required(need == Need::required);
  if (is_printable(value)) option->capture_default_str();
}

void Command::words(const std::string& name, std::vector<std::string>& values, const std::string& help) {
  parser_->add_option(name, values, help)->take_all();
}

void Command::list(const std::string& name, std::vector<std::string>& values, const std::string& help) {
  parser_->add_option(name, values, help)->delimiter(',');
}

void Command::integers(const std::string& name, std::vector<int32_t>& values, const std::string& help, Need need) {
  parser_->add_option(name, values, help)->required(need == Need::required);
}

template <class T>
void Command::number(const std::string& name, T& value, const std::string& help, Rule rule) {
  parser_->add_option(name, value, help)->capture_default_str()->check(validator(rule));
}
template void Command::number(const std::string&, int&, const std::string&, Rule);
template void Command::number(const std::string&, int64_t&, const std::string&, Rule);
template void Command::number(const std::string&, double&, const std::string&, Rule);

void Command::flag(const std::string& name, bool& value, const std::string& help) {
  parser_->add_flag(name, value, help);
}

void Command::action(std::function<void()> run) { parser_->callback(std::move(run)); }

int run_tool(int argc, char** argv, std::initializer_list<void (*)(Command& tool)> commands) {
  CLI::App parser{"TrainCore: transformer training kernels, checked and measured on your own machine"};
  parser.set_version_flag("--version", tc_version());
  Command tool(parser);
  tool.require_subcommand();
  for (const auto add : commands) add(tool);
  try {
    parser.parse(argc, argv);
    return kOk;
  } catch (const CLI::ParseError& e) {
    return parser.exit(e) == 0 ? kOk : kRefused;
  } catch (const Exit& e) {
    return e.status;
  } catch (const std::exception& e) {
    fmt::print(stderr, "traincore: {}\n", e.what());
    return kRefused;
  }
}

const char* parser_version() { return CLI11_VERSION; }

}  // namespace tc::cli
