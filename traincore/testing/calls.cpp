#include "traincore/testing/calls.h"

#include <algorithm>

#include "traincore/core/fail.h"
#include "traincore/core/op.h"
#include "traincore/testing/machine.h"
#include "traincore/testing/values.h"

namespace tc::testing {
namespace {

// Beyond this many elements a float tensor repeats its values: no kernel can tell, and drawing them would take longer
// than the benchmark. A prime, so that no two rows are the same.
constexpr int64_t kPeriod = 1000003;
constexpr double kMostCopies = 64;

void fill(const Pass& pass, const Case& c, const Field& f, const std::string& key, const tc_tensor& t) {
  Random random(name_hash(key));
  const Fill draw = fill_of(pass, c, f, t.dtype);
  std::vector<double> values(
      static_cast<size_t>(is_float(t.dtype) ? std::min(element_count(t), kPeriod) : element_count(t)));
  for (size_t i = 0; i < values.size(); ++i) values[i] = draw(c, random, static_cast<int64_t>(i));
  write_all(t, values);
}

void fill_inputs(const Case& c, const Problem& problem) {
  problem.for_each([&](const Field& f, const std::string& key, const tc_tensor& t) {
    if (problem.reads(f)) fill(problem.pass(), c, f, key, t);
  });
}

void require_ok(tc_status_t status) {
  if (status != TC_OK) throw Error(status, tc_last_error());
}

// What a backward reads that its forward wrote comes from the forward kernel.
void take_saved(const OpCases& op, const PassCases& forward_cases, const Case& c, int32_t dtype,
                const Problem& backward) {
  const Pass& forward = find_pass(op.name, forward_cases.pass);
  const Case full = with_saved(c, forward, backward);
  Problem problem(forward, full, dtype, Reals::storage, Memory::reserved);
  fill_inputs(full, problem);
  require_ok(call(forward, problem.args(), nullptr));
  backward.for_each([&](const Field& f, const std::string& key, const tc_tensor& to) {
    problem.for_each([&](const Field& made, const std::string& made_key, const tc_tensor& from) {
      if (made_key == key && made.is_written() && backward.reads(f)) copy_all(from, to);
    });
  });
}

void copy_inputs(const Problem& from, const Problem& to) {
  std::map<std::string, tc_tensor> inputs;
  from.for_each([&](const Field& f, const std::string& key, const tc_tensor& t) {
    if (from.reads(f)) inputs.emplace(key, t);
  });
  to.for_each([&](const Field&, const std::string& key, const tc_tensor& t) {
    if (const auto found = inputs.find(key); found != inputs.end()) copy_all(found->second, t);
  });
}

// Together they move four times what the last-level cache holds, and take no more than a quarter of the free memory.
size_t copies_for(const Problem& problem) {
  double held = 0;
  problem.for_each([&](const Field&, const std::string&, const tc_tensor& t) {
    held += static_cast<double>(element_count(t)) * static_cast<double>(tc_dtype_size(t.dtype));
  });
  const double wanted = 4 * static_cast<double>(machine().cache_bytes) / std::max(traffic_of(problem).total(), 1.0);
  const double possible = static_cast<double>(free_memory_bytes()) / 4 / std::max(held, 1.0);
  return 1 + static_cast<size_t>(std::clamp(std::min(wanted, possible), 0.0, kMostCopies));
}

}  // namespace

Calls::Calls(const OpCases& op, const PassCases& cases, const Case& c, int32_t dtype)
    : pass_(find_pass(op.name, cases.pass)) {
  const auto add = [&] {
    problems_.push_back(std::make_unique<Problem>(pass_, c, dtype, Reals::storage, Memory::reserved));
  };
  add();
  fill_inputs(c, *problems_[0]);
  if (const PassCases* forward = forward_of(op, cases)) take_saved(op, *forward, c, dtype, *problems_[0]);
  for (const size_t copies = copies_for(*problems_[0]); problems_.size() < copies;) {
    add();
    copy_inputs(*problems_[0], *problems_.back());
  }
}

void Calls::run(int i, const tc_exec& exec) const {
  require_ok(call(pass_, problems_[static_cast<size_t>(i) % problems_.size()]->args(), &exec));
}

Evaluations Calls::evaluations() const {
  if (!pass_.evaluations) return {};
  const void* args = problems_[0]->args();
  return pass_.evaluations(args, validate(pass_, args));
}

double Calls::flops() const {
  if (!pass_.flops) return 0;
  void* args = problems_[0]->args();
  return pass_.flops(args, validate(pass_, args));
}

}  // namespace tc::testing
