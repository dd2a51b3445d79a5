// Determinism and batch invariance: comparisons of bits, not of numbers.
#include <cmath>
#include <cstring>
#include <limits>

#include "traincore/core/fail.h"
#include "traincore/core/op.h"
#include "traincore/cpu/streaming.h"
#include "traincore/testing/check.h"
#include "traincore/testing/gpu.h"
#include "traincore/testing/values.h"

namespace tc::testing {
namespace {

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0);
}

// Scratch of exactly the size asked for, poisoned and guarded.
struct Workspace {
  explicit Workspace(size_t size) : bytes(size), memory(size, 0) { memory.take_snapshot(); }
  size_t bytes;
  GuardedBuffer memory;
};

size_t workspace_bytes(const Pass& pass, const void* args) {
  size_t bytes = 0;
  if (call_workspace(pass, args, nullptr, &bytes) != TC_OK) fail(TC_ERR_INTERNAL, "{}", tc_last_error());
  return bytes;
}

// Runs once and returns the outputs; `message` takes what went wrong.
Values run_once(const Pass& pass, const Case& c, int32_t dtype, int32_t device, const Values& inputs, tc_exec exec,
                bool own_workspace, std::string& message) {
  Problem p(pass, c, dtype, Reals::storage);
  p.write_inputs(inputs);
  p.take_snapshots();
  if (device == TC_CUDA) {  // whose workspace is always the caller's
    if (run_on_gpu(pass, p, exec) != TC_OK) message = tc_last_error();
    return p.outputs();
  }
  Workspace scratch(own_workspace ? workspace_bytes(pass, p.args()) : 0);
  if (own_workspace) {
    exec.workspace = scratch.memory.data();
    exec.workspace_bytes = scratch.bytes;
  }
  if (call(pass, p.args(), &exec) != TC_OK) message = tc_last_error();
  scratch.memory.accept(scratch.memory.data(), scratch.bytes);
  if (!scratch.memory.unchanged()) message = "bytes around the workspace were written";
  if (const std::string wrong = p.written_out_of_place(); !wrong.empty()) message = wrong;
  return p.outputs();
}

// While it lives, kernels for the CPU write every output past the caches, however small.
class EverythingStreamed {
 public:
  EverythingStreamed() : before_(streamed_bytes.exchange(0)) {}
  ~EverythingStreamed() { streamed_bytes = before_; }
  EverythingStreamed(const EverythingStreamed&) = delete;
  EverythingStreamed& operator=(const EverythingStreamed&) = delete;

 private:
  int64_t before_;
};

std::string difference(const Values& a, const Values& b) {
  for (const auto& [key, list] : a)
    if (!same_bits(list, b.at(key))) return key;
  return {};
}

// Which operand a NaN takes its sign and payload from is the compiler's choice, instruction by instruction; that it is
// one is the kernel's.
Values with_one_nan(Values values) {
  for (auto& [key, list] : values)
    for (double& v : list)
      if (std::isnan(v)) v = std::numeric_limits<double>::quiet_NaN();
  return values;
}

Outcome outcome_of(const OpCases& op, const PassCases& pass, const char* mode, int32_t dtype, int32_t device,
                   const Case& c) {
  return {std::string(op.name), std::string(pass.pass), mode, tc_dtype_name(dtype), device_name(device), c.text()};
}

}  // namespace

std::string_view row_dimension(const Pass& pass) {
  for (const Field& f : pass.fields)
    if (f.is_tensor() && f.dtypes.full_size && f.shape[0].variadic) return f.shape[0].terms[0].name;
  return {};
}

bool leads_with(const Field& f, std::string_view rows) {
  return f.shape[0].variadic && f.shape[0].terms[0].name == rows;
}

void check_determinism(const OpCases& op, const CheckOptions& options, const Report& report) {
  for (const PassCases& cases : op.passes)
    for (const int32_t dtype : options.dtypes)
      for (const Case& c : cases_of(op, options)) {
        const Pass& pass = find_pass(op.name, cases.pass);
        Outcome o = outcome_of(op, cases, "determinism", dtype, options.device, c);
        if (o.refusal = refusal_of(pass, c, dtype, options); !o.refusal.empty()) {
          report(o);
          continue;
        }
        const Values inputs = inputs_of(op, cases, c, dtype);
        tc_exec exec = tc_exec_default();
        exec.threads = 1;
        const auto run = [&](bool own_workspace) {
          return run_once(pass, c, dtype, options.device, inputs, exec, own_workspace, o.message);
        };
        const Values first = run(false);
        const auto hold = [&](const std::string& key, std::string_view when) {
          if (o.message.empty() && !key.empty())
            o.message =
                fmt::format("{} has other bits with {} threads{} and a caller's workspace", key, exec.threads, when);
        };
        for (const int threads : {1, 2, 3}) {
          exec.threads = threads;
          hold(difference(first, run(true)), "");
        }
        if (options.device == TC_CPU) {
          const EverythingStreamed streamed;
          hold(difference(with_one_nan(first), with_one_nan(run(true))), ", outputs written past the caches");
        }
        report(o);
      }
}

namespace {

// One row of what has a value or more for each; else, as the scalars of a reduction do, all of it.
std::vector<double> row_of(const std::vector<double>& all, int64_t row, int64_t rows) {
  if (static_cast<int64_t>(all.size()) < rows) return all;
  const auto width = static_cast<int64_t>(all.size()) / rows;
  return {all.begin() + row * width, all.begin() + (row + 1) * width};
}

std::string lone_row_differs(const Pass& pass, const Case& c, int32_t dtype, int32_t device, const Values& inputs,
                             std::string_view rows) {
  tc_exec exec = tc_exec_default();
  exec.determinism = TC_BATCH_INVARIANT;
  std::string message;
  const Values batch = run_once(pass, c, dtype, device, inputs, exec, false, message);
  const int64_t count = c.extent(rows);
  Case lone = c;
  lone.dims.find(rows)->second = {1};
  for (const int64_t row : {int64_t{0}, count / 2, count - 1}) {
    Values own = inputs;
    for (const Field& f : pass.fields)
      if (const auto found = own.find(f.name); found != own.end() && leads_with(f, rows))
        found->second = row_of(found->second, row, count);
    const Values alone = run_once(pass, lone, dtype, device, own, exec, false, message);
    if (!message.empty()) return message;
    for (const Field& f : pass.fields)
      if (f.is_tensor() && f.is_written() && leads_with(f, rows) && batch.contains(f.name) &&
          !same_bits(row_of(batch.find(f.name)->second, row, count), alone.find(f.name)->second))
        return fmt::format("{}: row {} alone has other bits than among {} rows", f.name, row, count);
  }
  return {};
}

}  // namespace

void check_batch_invariance(const OpCases& op, const CheckOptions& options, const Report& report) {
  for (const PassCases& cases : op.passes) {
    const Pass& pass = find_pass(op.name, cases.pass);
    const std::string_view rows = row_dimension(pass);
    if (!(pass.offers & kBatchInvariant) || rows.empty()) continue;
    for (const int32_t dtype : options.dtypes)
      for (const Case& c : cases_of(op, options)) {
        const auto found = c.dims.find(rows);
        if (found == c.dims.end() || found->second.size() != 1 || found->second[0] < 2) continue;
        Outcome o = outcome_of(op, cases, "batch-invariance", dtype, options.device, c);
        if (o.refusal = refusal_of(pass, c, dtype, options); o.refusal.empty())
          o.message = lone_row_differs(pass, c, dtype, options.device, inputs_of(op, cases, c, dtype), rows);
        report(o);
      }
  }
}

}  // namespace tc::testing
