// check against the oracle, and the mutants that this must catch.
#include <algorithm>
#include <cstring>

#include "traincore/core/fail.h"
#include "traincore/core/op.h"
#include "traincore/testing/check.h"
#include "traincore/testing/compare.h"
#include "traincore/testing/gpu.h"
#include "traincore/testing/values.h"

namespace tc::testing {

const OpCases* find_op(std::string_view name) {
  for (const OpCases* op : all_cases())
    if (op->name == name) return op;
  return nullptr;
}

const Pass& find_pass(std::string_view op, std::string_view pass) {
  for (const OpEntry& entry : all_ops())
    if (entry.name == op)
      for (const Pass& p : entry.passes)
        if (p.name == pass) return p;
  fail(TC_ERR_INTERNAL, "cases of {} name {}, which is no pass of it", op, pass);
}

Runner kernel_runner(const OpCases& op, const Pass& pass, const CheckOptions& options) {
  if (options.device == TC_CUDA)
    return [&op, &pass, captured = options.captured](Problem& problem, const tc_exec& exec) {
      return captured ? run_captured(pass, problem, exec, op.loads_kernels) : run_on_gpu(pass, problem, exec);
    };
  return [&pass](Problem& problem, const tc_exec& exec) { return call(pass, problem.args(), &exec); };
}

std::string refusal_of(const Pass& pass, const Case& c, int32_t dtype, const CheckOptions& options) {
  if (options.device == TC_CPU) return {};
  const Problem problem(pass, c, dtype, Reals::storage, Memory::reserved);
  const Moved there = problem.moved([&](tc_tensor t, const GuardedBuffer&) { return t.device = options.device, t; });
  size_t bytes = 0;
  return call_workspace(pass, there.args(), nullptr, &bytes) == TC_ERR_KERNEL_NOT_FOUND ? tc_last_error() : "";
}

const char* device_name(int32_t device) { return device == TC_CUDA ? "cuda" : "cpu"; }

const PassCases* forward_of(const OpCases& op, const PassCases& pass) {
  constexpr std::string_view kBackward = "_backward";
  if (!pass.pass.ends_with(kBackward)) return nullptr;
  const std::string_view stem = pass.pass.substr(0, pass.pass.size() - kBackward.size());
  for (const PassCases& other : op.passes)
    if (other.pass.starts_with(stem) && other.pass.substr(stem.size()) == "_forward") return &other;
  return nullptr;
}

Values inputs_of(const OpCases& op, const PassCases& cases, const Case& c, int32_t storage_dtype) {
  const Pass& pass = find_pass(op.name, cases.pass);
  const PassCases* forward_cases = forward_of(op, cases);
  if (!forward_cases) return random_inputs(pass, c, storage_dtype);
  const Pass& forward = find_pass(op.name, forward_cases->pass);
  const Case full = with_saved(c, forward, Problem(pass, c, storage_dtype, Reals::storage, Memory::reserved));
  Problem exact(forward, full, storage_dtype, Reals::f64);
  const Problem stored(forward, full, storage_dtype, Reals::storage, Memory::reserved);
  Values drawn = random_inputs(forward, full, storage_dtype);
  exact.write_inputs(drawn);
  forward_cases->exact(exact.args(), stored.args());
  Values known = exact.outputs();
  known.merge(std::move(drawn));
  return random_inputs(pass, c, storage_dtype, known);
}

void run_numbers(const OpCases& op, const PassCases& cases, const Case& c, int32_t dtype, const Runner& run,
                 Outcome outcome, const Report& report) {
  const Pass& pass = find_pass(op.name, cases.pass);
  const Values inputs = inputs_of(op, cases, c, dtype);
  Problem fast(pass, c, dtype, Reals::storage), exact(pass, c, dtype, Reals::f64), honest(pass, c, dtype, Reals::f32);
  for (Problem* p : {&fast, &exact, &honest}) p->write_inputs(inputs);
  fast.take_snapshots();
  if (const tc_status_t status = run(fast, tc_exec_default()); status != TC_OK) {
    outcome.message = fmt::format("refused a valid call: {}: {}", tc_status_string(status), tc_last_error());
    return report(outcome);
  }
  if (outcome.message = fast.written_out_of_place(); !outcome.message.empty()) return report(outcome);
  cases.exact(exact.args(), fast.args());
  cases.honest(honest.args(), fast.args());
  const Values got = fast.outputs(), want = exact.outputs(), plain = honest.outputs();
  fast.for_each([&](const Field& f, const std::string& key, const tc_tensor& t) {
    if (!f.is_written()) return;
    const Terms terms = cases.terms ? cases.terms(f.name, exact.args()) : Terms{};
    const Comparison result =
        compare(got.at(key), want.at(key), plain.at(key), t.dtype, terms, c.nonfinite.contains(f.name),
                c.zero.contains(f.name) || c.is_empty() || !is_float(t.dtype));
    Outcome o = outcome;
    o.field = key;
    o.error = result.error;
    o.budget = result.budget;
    o.message = result.failure;
    report(o);
  });
}

std::vector<Case> cases_of(const OpCases& op, const CheckOptions& options) {
  std::vector<Case> list = op.list(options.effort);
  std::erase_if(list, [&](const Case& c) { return c.text().find(options.only) == std::string::npos; });
  return list;
}

void check_numbers(const OpCases& op, const CheckOptions& options, const Report& report) {
  const std::vector<Case> list = cases_of(op, options);
  const auto total = static_cast<int64_t>(list.size() * options.dtypes.size() * op.passes.size());
  int64_t done = 0;
  for (const PassCases& pass : op.passes)
    for (const int32_t dtype : options.dtypes)
      for (const Case& c : list) {
        Outcome o{std::string(op.name), std::string(pass.pass),      options.captured ? "capture" : "numbers",
                  tc_dtype_name(dtype), device_name(options.device), c.text()};
        const Pass& kernel = find_pass(op.name, pass.pass);
        if (o.refusal = refusal_of(kernel, c, dtype, options); o.refusal.empty())
          run_numbers(op, pass, c, dtype, kernel_runner(op, kernel, options), o, report);
        else
          report(o);
        if (options.progress) options.progress(++done, total);
      }
}

namespace {

// Mutants are written for f32 alone.
bool is_f32(const Case& c) {
  return std::none_of(c.dtypes.begin(), c.dtypes.end(),
                      [](const auto& d) { return is_float(d.second) && d.second != TC_DTYPE_F32; });
}

}  // namespace

void check_mutants(const OpCases& op, const CheckOptions&, const Report& report) {
  for (const Mutant& mutant : op.mutants)
    for (const PassCases& pass : op.passes) {
      if (pass.pass != mutant.pass) continue;
      bool caught = false;
      const Runner wrong = [&](Problem& problem, const tc_exec&) {
        mutant.run(problem.args());
        return TC_OK;
      };
      for (const Case& c : op.list(Effort::quick)) {
        if (caught) break;
        if (!is_f32(c)) continue;
        run_numbers(op, pass, c, TC_DTYPE_F32, wrong, {}, [&](const Outcome& o) { caught |= !o.ok(); });
      }
      report({std::string(op.name), std::string(pass.pass), "mutants", "f32", "cpu", std::string(mutant.name), "", 0, 0,
              caught ? "" : "this wrong variant passes every case"});
    }
}

}  // namespace tc::testing
