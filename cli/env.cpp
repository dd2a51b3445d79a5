// traincore env: what this build and this machine are, and one real computation on each device.
#include <dnnl.h>
#include <fmt/core.h>
#include <hwy/highway.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/command.h"
#include "cli/select.h"
#include "cli/terminal.h"
#include "traincore/testing/check.h"
#include "traincore/testing/gpu.h"
#include "traincore/testing/machine.h"

namespace tc::cli {
namespace {

std::string compiler() {
#ifdef __clang__
  return fmt::format("clang {}", __clang_version__);
#else
  return fmt::format("gcc {}", __VERSION__);
#endif
}

nlohmann::ordered_json libraries() {
  const dnnl_version_t* dnnl = dnnl_version();
  return {{"Highway", fmt::format("{}.{}.{}", HWY_MAJOR, HWY_MINOR, HWY_PATCH)},
          {"oneDNN", fmt::format("{}.{}.{}", dnnl->major, dnnl->minor, dnnl->patch)},
          {"OpenMP", std::to_string(_OPENMP)},
          {"fmt", fmt::format("{}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100)},
          {"CLI11", parser_version()},
          {"nlohmann-json", fmt::format("{}.{}.{}", NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR,
                                        NLOHMANN_JSON_VERSION_PATCH)}};
}

// The first executable of that name on the PATH; empty if there is none.
std::string find_program(const char* name) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::filesystem::path file = std::filesystem::path(folder) / name;
    if (access(file.c_str(), X_OK) == 0) return file.string();
  }
  return {};
}

nlohmann::ordered_json optional_pieces() {
  const std::string gnuplot = find_program("gnuplot");
#ifdef TC_WITH_SENTENCEPIECE
  const char* sentencepiece = "built in";
#else
  const char* sentencepiece = "not in this build: --tokenizer is refused";
#endif
  return {{"gnuplot", gnuplot.empty() ? "not found: no loss curves are drawn" : gnuplot},
          {"SentencePiece", sentencepiece}};
}

// One small call of rmsnorm on the device, held against the oracle.
struct Computation {
  double worst = 0;  // error / budget
  std::string failure;
};

Computation compute(int32_t device) {
  Computation result;
  const testing::OpCases* op = testing::find_op("rmsnorm");
  if (!op) return {0, "rmsnorm is not in this build"};
  testing::CheckOptions options;
  options.effort = testing::Effort::quick;
  options.dtypes = {TC_DTYPE_F32};
  options.device = device;
  testing::check_numbers(*op, options, [&](const testing::Outcome& o) {
    if (!o.ok()) result.failure = o.message;
    if (o.budget > 0) result.worst = std::max(result.worst, o.error / o.budget);
  });
  return result;
}

nlohmann::ordered_json cpu_device(const Computation& computed) {
  const testing::Machine& m = testing::machine();
  return {{"name", "cpu"},
          {"model", m.cpu},
          {"processors", m.processors},
          {"threads", m.threads},
          {"memory_bytes", m.memory_bytes},
          {"cache_bytes", m.cache_bytes},
          {"simd", m.simd},
          {"simd_compiled", m.simd_compiled},
          {"rmsnorm_error_over_budget", computed.worst},
          {"works", computed.failure.empty()},
          {"failure", computed.failure}};
}

// Every GPU by name; the computation is that of the first.
nlohmann::ordered_json gpu_device(int index, const Computation& computed) {
  nlohmann::ordered_json j{{"name", fmt::format("cuda:{}", index)}, {"model", testing::gpu_name(index)}};
  if (index == 0)
    j.update(nlohmann::ordered_json{{"rmsnorm_error_over_budget", computed.worst},
                                    {"works", computed.failure.empty()},
                                    {"failure", computed.failure}});
  return j;
}

nlohmann::ordered_json environment(const Computation& on_cpu, const Computation& on_gpu) {
  nlohmann::ordered_json devices{cpu_device(on_cpu)};
  for (int i = 0; i < testing::gpu_count(); ++i) devices.push_back(gpu_device(i, on_gpu));
  return {{"version", tc_version()},  {"compiler", compiler()},        {"build_type", TC_BUILD_TYPE},
          {"libraries", libraries()}, {"optional", optional_pieces()}, {"devices", devices}};
}

std::string verdict(const Computation& computed) {
  return computed.failure.empty() ? good(fmt::format("right: largest error {:.2f} of its budget", computed.worst))
                                  : bad("WRONG: " + computed.failure);
}

void add_gpus(Table& table, const Computation& computed) {
#ifndef TC_WITH_CUDA
  table.add({"cuda", "not in this build"});
#endif
  for (int i = 0; i < testing::gpu_count(); ++i) table.add({fmt::format("cuda:{}", i), testing::gpu_name(i)});
  if (testing::gpu_count() > 0) table.add({"  rmsnorm", verdict(computed)});
}

void print(const nlohmann::ordered_json& env, const Computation& on_cpu, const Computation& on_gpu) {
  const testing::Machine& m = testing::machine();
  constexpr double kGiB = 1 << 30;
  Table table({"TrainCore", fmt::format("{}, {} build, {}", tc_version(), TC_BUILD_TYPE, compiler())});
  for (const char* group : {"libraries", "optional"})
    for (const auto& [name, value] : env.at(group).items()) table.add({name, value.get<std::string>()});
  table.add({"cpu", fmt::format("{}, {} processors, {} threads, {:.1f} GiB memory, {} MB last-level cache", m.cpu,
                                m.processors, m.threads, m.memory_bytes / kGiB, m.cache_bytes >> 20)});
  table.add({"  SIMD", fmt::format("{} (compiled: {})", m.simd, joined(m.simd_compiled))});
  table.add({"  rmsnorm", verdict(on_cpu)});
  add_gpus(table, on_gpu);
  table.print();
}

void run_env(bool json) {
  const Computation on_cpu = compute(TC_CPU), on_gpu = testing::gpu_count() ? compute(TC_CUDA) : Computation{};
  const nlohmann::ordered_json env = environment(on_cpu, on_gpu);
  if (json)
    print_json(env);
  else
    print(env, on_cpu, on_gpu);
  if (!on_cpu.failure.empty() || !on_gpu.failure.empty()) throw Exit{kFailed};
}

}  // namespace

void add_env(Command& tool) {
  Command command = tool.subcommand(
      "env", "This build, its libraries and this machine; runs one call on each device, exit status 1 if it is wrong");
  auto json = std::make_shared<bool>(false);
  command.flag("--json", *json, "for machines");
  command.action([json] { run_env(*json); });
}

}  // namespace tc::cli
