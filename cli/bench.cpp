// traincore bench: the speed of every op on this machine, as a share of what its memory and its matrix product allow.
#include "traincore/testing/bench.h"

#include <fmt/core.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "cli/bench_report.h"
#include "cli/command.h"
#include "cli/select.h"
#include "cli/terminal.h"
#include "traincore/core/fail.h"
#include "traincore/testing/machine.h"

namespace tc::cli {
namespace {

struct BenchFlags {
  std::vector<std::string> ops, dtypes;
  std::string device = "cpu";
  testing::BenchOptions options;
  std::string html;
  bool json = false;
};

void warn_if_busy() {
  double load = 0;
  if (getloadavg(&load, 1) == 1 && load > 0.5 * testing::machine().processors)
    fmt::print(stderr, "bench: other work runs on this machine (load {:.1f}); the figures will be too low\n", load);
}

void run_bench(BenchFlags& flags) {
  flags.options.device = select_device("bench", flags.device);
  if (!flags.dtypes.empty()) flags.options.dtypes = select_dtypes("bench", flags.dtypes);
  const auto ops = select_ops("bench", flags.ops);
  std::ofstream page;
  const auto require_page = [&](bool good) {
    require(good, "bench: cannot write --html {}: {}", flags.html, std::strerror(errno));
  };
  if (!flags.html.empty()) {  // before the minutes of measuring, not after
    page.open(flags.html, std::ios::binary);
    require_page(page.is_open());
  }
  BenchReport report;
  report.device = flags.options.device;
  if (report.device == TC_CPU) {
    warn_if_busy();
    Progress progress("measuring this machine");
    report.rates =
        testing::measure_rates(flags.options.threads, [&](int64_t done, int64_t total) { progress.show(done, total); });
  }
  for (const testing::OpCases* op : ops) {
    if (report.device == TC_CUDA && !has_gpu_kernel(*op)) continue;
    Progress progress(fmt::format("bench {}", op->name));
    flags.options.progress = [&](int64_t done, int64_t total) { progress.show(done, total); };
    testing::bench(*op, flags.options, report.rates,
                   [&](const testing::Measurement& m) { report.measurements.push_back(m); });
  }
  require(!report.measurements.empty(), "bench: there is nothing to time: {}",
          flags.options.only.empty() ? "no case on this device" : "no case contains " + flags.options.only);
  if (page.is_open()) require_page(!!(page << to_html(report)).flush());
  if (flags.json)
    print_json(to_json(report));
  else
    print(report);
  for (const testing::Measurement& m : report.measurements)
    if (!m.refusal.empty()) throw Exit{kFailed};
}

}  // namespace

void add_bench(Command& tool) {
  Command command = tool.subcommand(
      "bench", "Time ops on this machine and give each as a share of what its memory and its matrix product allow");
  auto flags = std::make_shared<BenchFlags>();
  command.words("op", flags->ops, "ops to time (default: all)");
  command.text("--device", flags->device, "cpu, cuda, cuda:1, ...");
  command.list("--dtype", flags->dtypes, "f32, bf16, f16 (default: f32,bf16)");
  command.number("--threads", flags->options.threads, "threads (0: all cores)", Rule::not_negative);
  command.number("--seconds", flags->options.seconds, "timed seconds a case", Rule::positive);
  command.text("--only", flags->options.only, "only cases whose pass, dtype and shape, as printed, contain this");
  command.text("--html", flags->html, "also write the result as one page to this file");
  command.flag("--json", flags->json, "for machines");
  command.action([flags] { run_bench(*flags); });
}

}  // namespace tc::cli
