// The backward oracle against central differences of the forward oracle, both in f64, before any kernel is trusted.
#include <algorithm>
#include <cmath>

#include "traincore/core/fail.h"
#include "traincore/testing/check.h"
#include "traincore/testing/values.h"

namespace tc::testing {
namespace {

constexpr int64_t kLargest = 4096;  // elements of the largest tensor: differences cost two forwards an element
constexpr int64_t kSamples = 16;    // elements tried per tensor
constexpr double kStep = 1e-5, kTolerance = 1e-6;

struct Pair {
  const Pass* forward;
  const Pass* backward;
  const PassCases* forward_cases;
  const PassCases* backward_cases;
};

// Every output of the forward oracle, whether or not the case asks for it.
Values forward_outputs(const Pair& p, const Case& c, const Values& inputs) {
  Case full = c;
  for (const Field& f : p.forward->fields)
    if (f.is_tensor() && f.is_written()) full.given.insert(std::string(f.name));
  Problem forward(*p.forward, full, TC_DTYPE_F64, Reals::f64);
  forward.write_inputs(inputs);
  p.forward_cases->exact(forward.args(), forward.args());
  return forward.outputs();
}

// sum over outputs of <output, its cotangent>, in f64.
double projected(const Pair& p, const Case& c, const Values& inputs, const Values& cotangents) {
  double sum = 0;
  for (const auto& [key, values] : forward_outputs(p, c, inputs))
    if (const auto d = cotangents.find("d" + key); d != cotangents.end())
      for (size_t i = 0; i < values.size(); ++i) sum += values[i] * d->second[i];
  return sum;
}

// The gradients that the backward oracle gives, with what the forward oracle saved, unrounded.
Values derived(const Pair& p, const Case& c, const Values& inputs, const Values& cotangents) {
  Values all = cotangents;
  for (const auto& [key, values] : inputs) all[key] = values;
  for (const auto& [key, values] : forward_outputs(p, c, inputs)) all[key] = values;
  Problem backward(*p.backward, c, TC_DTYPE_F64, Reals::f64);
  backward.write_inputs(all);
  p.backward_cases->exact(backward.args(), backward.args());
  return backward.outputs();
}

std::string compare_input(const Pair& p, const Case& c, const Values& inputs, const Values& cotangents,
                          const std::string& key, const std::vector<double>& gradient) {
  double scale = 0;
  for (const double g : gradient) scale = std::max(scale, std::abs(g));
  const auto n = static_cast<int64_t>(gradient.size());
  for (int64_t k = 0; k < std::min(n, kSamples); ++k) {
    const auto i = static_cast<size_t>(n <= kSamples ? k : k * (n - 1) / (kSamples - 1));
    Values moved = inputs;
    const double x = inputs.at(key)[i], h = kStep * std::max(1.0, std::abs(x));
    moved[key][i] = x + h;
    const double up = projected(p, c, moved, cotangents);
    moved[key][i] = x - h;
    const double down = projected(p, c, moved, cotangents);
    const double difference = (up - down) / (2 * h);
    const double noise = 1e-15 * (std::abs(up) + std::abs(down)) / h;
    if (!(std::abs(difference - gradient[i]) <= kTolerance * (scale + std::abs(difference)) + noise))
      return fmt::format("element {}: the oracle gives {:.9g}, central differences {:.9g}", i, gradient[i], difference);
  }
  return {};
}

// Differences need tame numbers: adversarial float fills are replaced by N(0, 1), except where the input is a constant.
Case tamed(const OpCases& op, const Pair& p, Case c) {
  for (const Pass* pass : {p.forward, p.backward})  // backward's are the cotangents
    for (const Field& f : pass->fields)
      if (f.is_tensor() && f.dtypes.has(TC_DTYPE_F32) && !op.constant_inputs.contains(f.name))
        c.fills.erase(std::string(f.name));
  if (c.scalars.contains("accumulate")) c.scalars["accumulate"] = 0;
  return c;
}

// Every gradient that the backward oracle gives in one case.
void check_case(const OpCases& op, const Pair& p, const Case& c, const Report& report) {
  const Values inputs = random_inputs(*p.forward, c, TC_DTYPE_F32);
  int64_t largest = 0;
  for (const auto& [key, values] : inputs) largest = std::max(largest, static_cast<int64_t>(values.size()));
  if (largest > kLargest) return;
  const Values cotangents = random_inputs(*p.backward, c, TC_DTYPE_F32);
  for (const auto& [key, gradient] : derived(p, c, inputs, cotangents)) {
    const std::string name = key.substr(1);
    if (!inputs.contains(name) || op.constant_inputs.contains(name)) continue;
    report({std::string(op.name), std::string(p.backward->name), "grad", "f64", "cpu", c.text(), key, 0, 0,
            compare_input(p, c, inputs, cotangents, name, gradient)});
  }
}

}  // namespace

void check_gradients(const OpCases& op, const CheckOptions& options, const Report& report) {
  const std::vector<Case> list = op.list(Effort::quick);
  const auto pairs = std::count_if(op.passes.begin(), op.passes.end(),
                                   [&](const PassCases& cases) { return forward_of(op, cases) != nullptr; });
  const int64_t total = pairs * static_cast<int64_t>(list.size());
  int64_t done = 0;
  for (const PassCases& cases : op.passes) {
    const PassCases* forward = forward_of(op, cases);
    if (!forward) continue;
    const Pair p{&find_pass(op.name, forward->pass), &find_pass(op.name, cases.pass), forward, &cases};
    for (const Case& c : list) {
      check_case(op, p, tamed(op, p, c), report);
      if (options.progress) options.progress(++done, total);
    }
  }
}

}  // namespace tc::testing
