#include "cli/bench_report.h"

#include <fmt/chrono.h>

#include "cli/terminal.h"
#include "traincore/testing/gpu.h"
#include "traincore/testing/gpu_bench.h"
#include "traincore/testing/machine.h"

namespace tc::cli {
namespace {

using testing::Measurement;
using testing::Rates;

std::string duration(double seconds) {
  if (seconds >= 1) return fmt::format("{:.3g} s", seconds);
  return seconds >= 1e-3 ? fmt::format("{:.3g} ms", seconds * 1e3) : fmt::format("{:.3g} us", seconds * 1e6);
}

// In the unit of what bounds the case.
std::string speed(const Measurement& m) {
  const auto giga = [&](double amount, const char* unit) {
    return fmt::format("{:.1f} {}", amount / m.time.median * 1e-9, unit);
  };
  if (m.bound == testing::Bound::product) return giga(m.flops, "GFLOP/s");
  if (m.bound == testing::Bound::functions) return giga(m.evaluations, "Geval/s");
  return giga(m.bytes, "GB/s");
}

std::string machine_text(const BenchReport& report) {
  if (report.device == TC_CUDA)
    return fmt::format("{}; {:%Y-%m-%d}", testing::gpu_name(0), fmt::localtime(std::time(nullptr)));
  const testing::Machine& m = testing::machine();
  return fmt::format("{}, {} processors, {} MB last-level cache, {}; {:%Y-%m-%d}", m.cpu, m.processors,
                     m.cache_bytes >> 20, m.simd, fmt::localtime(std::time(nullptr)));
}

std::string rates_text(const BenchReport& report) {
  const Rates& r = report.rates;
  if (report.device == TC_CUDA)
    return fmt::format("copy {:.0f} GB/s, two reads and one write {:.0f} GB/s, read {:.0f} GB/s",
                       testing::gpu_ceiling(1, 1) * 1e-9, testing::gpu_ceiling(2, 1) * 1e-9,
                       testing::gpu_ceiling(1, 0) * 1e-9);
  return fmt::format("copy {:.1f} GB/s ({}), update in place {:.1f} GB/s, exp {:.2f} and tanh {:.2f} G/s, {}",
                     r.copy * 1e-9, r.copied_by, r.update * 1e-9, r.exp * 1e-9, r.tanh * 1e-9,
                     r.gemm > 0 ? fmt::format("2048^3 f32 product {:.1f} GFLOP/s", r.gemm * 1e-9)
                                : std::string("no matrix product in this build"));
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else
      out += c;
  }
  return out;
}

constexpr const char* kPageHead = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>traincore bench</title><style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 75em; padding: 0 1em; color: #222; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .3em .8em .3em 0; border-bottom: 1px solid #ddd; vertical-align: middle; }
th { border-bottom: 2px solid #888; }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.shape { color: #666; font-size: 85%; }
</style></head><body><h1>traincore bench</h1>
)";

// A bar as long as the share of the floor; the line marks the floor itself.
std::string bar(double share) {
  constexpr double kFloor = 160, kWidth = 200;
  const char* colour = share >= 0.8 ? "#2e7d32" : share >= 0.5 ? "#f9a825" : "#c62828";
  return fmt::format(
      R"(<svg width="{0}" height="14" role="img" aria-label="{1:.2f} of the floor"><rect width="{2:.1f}" )"
      R"(height="14" fill="{3}"/><line x1="{4}" x2="{4}" y2="14" stroke="#222"/></svg>)",
      kWidth, share, std::min(share * kFloor, kWidth), colour, kFloor);
}

std::string html_row(const Measurement& m) {
  const std::string name =
      fmt::format("<tr><td>{}</td><td>{}</td><td class=shape>{}</td>", m.pass, m.dtype, escaped(m.case_text));
  if (!m.refusal.empty()) return fmt::format("{}<td colspan=5>{}</td></tr>\n", name, escaped(m.refusal));
  return fmt::format(
      "{}<td class=number>{}</td><td class=number>{:.0f}%</td><td class=number>{}</td><td class=number>{:.2f}</td>"
      "<td>{}</td></tr>\n",
      name, duration(m.time.median), m.time.spread * 100, speed(m), m.of_floor(), bar(m.of_floor()));
}

}  // namespace

void print(const BenchReport& report) {
  fmt::print("{}\n{}\n\n", machine_text(report), rates_text(report));
  Table table({"pass", "dtype", "    median", "spread", "speed", "of floor", "case"});
  for (const Measurement& m : report.measurements) {
    if (!m.refusal.empty()) {
      table.add({m.pass, m.dtype, bad("   refused"), "", "", "", m.case_text});
      continue;
    }
    table.add({m.pass, m.dtype, fmt::format("{:>10}", duration(m.time.median)),
               fmt::format("{:>5.0f}%", m.time.spread * 100), fmt::format("{:>14}", speed(m)),
               fmt::format("{:>8.2f}", m.of_floor()), faint(m.case_text)});
  }
  table.print();
  for (const Measurement& m : report.measurements)
    if (!m.refusal.empty()) fmt::print("{} {} {}: {}\n", bad("REFUSED"), m.dtype, m.case_text, m.refusal);
  fmt::print(
      "\nof floor: 1 is the time that bytes / copy rate, operations / product rate, or evaluations / rates of exp and "
      "tanh allow, whichever is longest; spread: the middle half of the runs.\n");
}

nlohmann::json to_json(const BenchReport& report) {
  const testing::Machine& m = testing::machine();
  const bool on_gpu = report.device == TC_CUDA;
  nlohmann::json j{
      {"device", on_gpu ? testing::gpu_name(0) : "cpu"},
      {"machine", {{"cpu", m.cpu}, {"processors", m.processors}, {"cache_bytes", m.cache_bytes}, {"simd", m.simd}}},
      {"date", fmt::format("{:%Y-%m-%d}", fmt::localtime(std::time(nullptr)))},
      {"copy_bytes_per_second", on_gpu ? testing::gpu_ceiling(1, 1) : report.rates.copy},
      {"copied_by", report.rates.copied_by},
      {"update_bytes_per_second", report.rates.update},
      {"gemm_flops_per_second", report.rates.gemm},
      {"exp_per_second", report.rates.exp},
      {"tanh_per_second", report.rates.tanh},
      {"measurements", nlohmann::json::array()}};
  for (const Measurement& x : report.measurements) {
    nlohmann::json row{{"op", x.op}, {"pass", x.pass}, {"dtype", x.dtype}, {"case", x.case_text}};
    if (!x.refusal.empty())
      row["refusal"] = x.refusal;
    else
      row.update({{"median_seconds", x.time.median},
                  {"spread", x.time.spread},
                  {"runs", x.time.runs},
                  {"bytes", x.bytes},
                  {"flops", x.flops},
                  {"evaluations", x.evaluations},
                  {"floor_seconds", x.floor},
                  {"of_floor", x.of_floor()}});
    j["measurements"].push_back(row);
  }
  return j;
}

std::string to_html(const BenchReport& report) {
  std::string page = kPageHead;
  page += fmt::format(
      "<p>{}<br>{}</p>\n"
      "<table><tr><th>pass<th>dtype<th>case<th>median<th>spread<th>speed<th>of floor<th></tr>\n",
      escaped(machine_text(report)), escaped(rates_text(report)));
  for (const Measurement& m : report.measurements) page += html_row(m);
  page +=
      "</table>\n<p>The black line is the floor: the time that bytes / copy rate, operations / product rate, or "
      "evaluations / rates of exp and tanh allow, whichever is longest. Spread is that of the middle half of the "
      "runs.</p></body></html>\n";
  return page;
}

}  // namespace tc::cli
