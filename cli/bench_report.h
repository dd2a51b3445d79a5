// The result of one run of bench, in the three forms it can leave in.
#pragma once
#include <nlohmann/json.hpp>

#include "traincore/testing/bench.h"

namespace tc::cli {

struct BenchReport {
  int32_t device = TC_CPU;
  testing::Rates rates;  // of the CPU
  std::vector<testing::Measurement> measurements;
};

void print(const BenchReport& report);
nlohmann::json to_json(const BenchReport& report);
std::string to_html(const BenchReport& report);  // one self-contained page

}  // namespace tc::cli
