#include "cli/command.h"

#include <cmath>

namespace tc::cli {
namespace {

CLI::Validator number_that(const std::string& rule, bool (*holds)(double)) {
  const auto check = [rule, holds](const std::string& text) {
    double value = 0;
    const bool good = CLI::detail::lexical_cast(text, value) && std::isfinite(value) && holds(value);
    return good ? std::string() : fmt::format("{} is given, but a number {} is wanted", text, rule);
  };
  return {check, rule, "number"};
}

}  // namespace

CLI::Validator positive() {
  return number_that("> 0", [](double value) { return value > 0; });
}
CLI::Validator not_negative() {
  return number_that(">= 0", [](double value) { return value >= 0; });
}
CLI::Validator from_0_to_1() {
  return number_that("from 0 to 1", [](double value) { return value >= 0 && value <= 1; });
}

}  // namespace tc::cli
