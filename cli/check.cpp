// traincore check: every op against its f64 oracle, on the user's own machine.
#include <fmt/core.h>
#include <malloc.h>

#include <nlohmann/json.hpp>
#include <set>

#include "cli/command.h"
#include "cli/select.h"
#include "cli/terminal.h"
#include "traincore/core/fail.h"
#include "traincore/testing/check.h"

namespace tc::cli {
namespace {

using testing::CheckOptions;
using testing::OpCases;
using testing::Outcome;

struct CheckFlags {
  std::vector<std::string> ops;
  std::string device = "cpu", only;
  std::vector<std::string> dtypes;
  bool quick = false, full = false, json = false;
  bool numbers = false, grad = false, determinism = false, batch_invariance = false, mutants = false, refusals = false,
       capture = false, large = false, all = false;
};

// What one (pass, mode, dtype) came to.
struct Line {
  std::string op, pass, mode, dtype;
  int64_t cases = 0, failed = 0, refused = 0;
  double worst = 0;  // largest error / budget
};

class Tally {
 public:
  void add(const Outcome& o) {
    if (lines_.empty() || lines_.back().pass != o.pass || lines_.back().mode != o.mode ||
        lines_.back().dtype != o.dtype)
      lines_.push_back({o.op, o.pass, o.mode, o.dtype});
    Line& line = lines_.back();
    if (!o.refusal.empty()) {
      ++line.refused;
      refusals_.insert(o.refusal);
      return;
    }
    ++line.cases;
    if (o.budget > 0) line.worst = std::max(line.worst, o.error / o.budget);
    if (o.ok()) return;
    ++line.failed;
    failures_.push_back(o);
  }
  int64_t failed() const { return static_cast<int64_t>(failures_.size()); }
  int64_t total() const {
    int64_t n = 0;
    for (const Line& l : lines_) n += l.cases;
    return n;
  }
  void print() const {
    Table table({"pass", "mode", "dtype", "checks", "failed", "worst error / budget"});
    for (const Line& l : lines_)
      table.add({l.pass, l.mode, l.dtype, fmt::format("{:>6}", l.cases),
                 l.failed ? bad(fmt::format("{:>6}", l.failed)) : fmt::format("{:>6}", 0),
                 l.worst > 0 ? fmt::format("{:.2f}", l.worst) : ""});
    table.print();
    constexpr size_t kShown = 20;
    for (size_t i = 0; i < failures_.size() && i < kShown; ++i) {
      const Outcome& o = failures_[i];
      fmt::print("{} {} {} {} [{}] {}: {}\n", bad("FAIL"), o.pass, o.mode, o.dtype, o.case_text, o.field, o.message);
    }
    if (failures_.size() > kShown) fmt::print("... and {} more; --json lists all\n", failures_.size() - kShown);
    int64_t refused = 0;
    for (const Line& l : lines_) refused += l.refused;
    if (refused > 0) fmt::print("{} cases are refused on this device:\n", refused);
    for (const std::string& sentence : refusals_) fmt::print("  {}\n", sentence);
    fmt::print("{} passed, {} failed\n", total() - failed(), failed());
  }
  nlohmann::json json() const {
    nlohmann::json j{{"checks", nlohmann::json::array()},
                     {"failures", nlohmann::json::array()},
                     {"total", total()},
                     {"failed", failed()}};
    for (const Line& l : lines_)
      j["checks"].push_back({{"op", l.op},
                             {"pass", l.pass},
                             {"mode", l.mode},
                             {"dtype", l.dtype},
                             {"cases", l.cases},
                             {"failed", l.failed},
                             {"refused", l.refused},
                             {"worst_error_over_budget", l.worst}});
    for (const Outcome& o : failures_)
      j["failures"].push_back({{"pass", o.pass},
                               {"mode", o.mode},
                               {"dtype", o.dtype},
                               {"case", o.case_text},
                               {"field", o.field},
                               {"error", o.error},
                               {"budget", o.budget},
                               {"message", o.message}});
    return j;
  }

 private:
  std::vector<Line> lines_;
  std::vector<Outcome> failures_;
  std::set<std::string> refusals_;
};

CheckOptions options_of(const CheckFlags& flags) {
  CheckOptions options;
  options.effort = flags.full ? testing::Effort::full : flags.quick ? testing::Effort::quick : testing::Effort::normal;
  options.device = select_device("check", flags.device);
  if (options.device == TC_CUDA && (flags.grad || flags.mutants || flags.refusals))
    fail(TC_ERR_INVALID_ARG, "check: --grad, --mutants and --refusals look at no device; leave --device out");
  if (options.device == TC_CPU && (flags.capture || flags.large))
    fail(TC_ERR_INVALID_ARG, "check: --capture and --large are for a GPU; add --device cuda");
  if (!flags.dtypes.empty()) options.dtypes = select_dtypes("check", flags.dtypes);
  if (!flags.only.empty() && (flags.grad || flags.mutants || flags.refusals || flags.large || flags.all))
    fail(TC_ERR_INVALID_ARG,
         "check: --only chooses among the cases of --numbers, --capture, --determinism and "
         "--batch-invariance, not of other modes");
  options.only = flags.only;
  return options;
}

// Tensors of tens of megabytes come and go by the thousand. glibc would map each anew and fault it in page by page,
// which takes a third of the time of a check; freed memory that stays is used again.
void keep_freed_memory() {
#ifdef __GLIBC__
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, -1);
#endif
}

void run_check(const CheckFlags& flags) {
  keep_freed_memory();
  CheckOptions options = options_of(flags);
  Tally tally;
  const auto report = [&](const Outcome& o) { tally.add(o); };
  const bool chosen = flags.grad || flags.determinism || flags.batch_invariance || flags.mutants || flags.refusals ||
                      flags.capture || flags.large;
  std::vector<std::string> without_kernel;
  for (const OpCases* op : select_ops("check", flags.ops)) {
    if (options.device == TC_CUDA && !has_gpu_kernel(*op)) {
      without_kernel.emplace_back(op->name);
      continue;
    }
    const auto mode = [&](const char* name, bool wanted, auto check) {
      if (!wanted && !flags.all) return;
      Progress progress(fmt::format("{} {}", op->name, name));
      options.progress = [&](int64_t done, int64_t total) { progress.show(done, total); };
      check(*op, options, report);
    };
    mode("numbers", flags.numbers || !chosen, testing::check_numbers);
    if (options.device == TC_CUDA) {
      options.captured = true;
      mode("capture", flags.capture, testing::check_numbers);
      options.captured = false;
      mode("large", flags.large, testing::check_large);
    } else {
      mode("grad", flags.grad, testing::check_gradients);
      mode("mutants", flags.mutants, testing::check_mutants);
      mode("refusals", flags.refusals, testing::check_refusals);
    }
    mode("determinism", flags.determinism, testing::check_determinism);
    mode("batch-invariance", flags.batch_invariance, testing::check_batch_invariance);
  }
  require(flags.only.empty() || tally.total() > 0, "check: there is nothing to check: no case contains {}", flags.only);
  if (flags.json)
    print_json(tally.json());
  else
    tally.print();
  if (!without_kernel.empty() && !flags.json) fmt::print("no GPU kernel yet: {}\n", joined(without_kernel));
  if (!without_kernel.empty() && !flags.ops.empty()) throw Exit{kFailed};
  if (tally.failed() > 0) throw Exit{kFailed};
}

}  // namespace

void add_check(Command& tool) {
  Command command =
      tool.subcommand("check", "Hold ops against their f64 oracle on this machine; exit status 1 if any check fails");
  auto flags = std::make_shared<CheckFlags>();
  command.words("op", flags->ops, "ops to check (default: all)");
  command.text("--device", flags->device, "cpu, cuda, cuda:1, ...");
  command.list("--dtype", flags->dtypes, "f32, bf16, f16 (default: all three)");
  command.text("--only", flags->only, "only cases whose shape, as printed, contains this");
  command.flag("--quick", flags->quick, "few small cases, for sanitizers and CI");
  command.flag("--full", flags->full, "up to 2^26 elements a case");
  command.flag("--numbers", flags->numbers, "errors against the oracle (the default if no mode is named)");
  command.flag("--grad", flags->grad, "the backward oracle against central differences of the forward one");
  command.flag("--determinism", flags->determinism,
               "same bits whatever the threads, the scratch and the way outputs are written");
  command.flag("--batch-invariance", flags->batch_invariance, "a row's bits do not depend on other rows");
  command.flag("--mutants", flags->mutants, "deliberately wrong kernels are caught");
  command.flag("--refusals", flags->refusals, "bad arguments are refused and nothing is written");
  command.flag("--capture", flags->capture,
               "with --device cuda: every case captured into a graph and replayed with new inputs");
  command.flag("--large", flags->large, "with --device cuda: more than 2^31 elements a tensor, a sample of rows held");
  command.flag("--all", flags->all, "every mode");
  command.flag("--json", flags->json, "for machines");
  command.action([flags] { run_check(*flags); });
}

}  // namespace tc::cli
