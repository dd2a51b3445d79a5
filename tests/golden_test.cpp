// Every oracle against values that PyTorch computed in f64: no golden tensor may be left unused, and a case whose op is
// here must fit it. A case whose op is not here yet is skipped.
#include "tests/golden_cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "traincore/core/op.h"
#include "traincore/testing/check.h"
#include "traincore/testing/values.h"
#include "traincore/train/safetensors.h"

namespace tc::testing {
namespace {

const train::SafetensorsFile& golden_file() {
  static const train::SafetensorsFile file(TC_SOURCE_DIR "/tests/golden/ops.safetensors");
  return file;
}

std::vector<std::string> case_names() {
  std::vector<std::string> names;
  for (const auto& [name, options] : golden_file().metadata()) names.push_back(name);
  return names;
}

std::vector<double> golden(const std::string& path) {
  const tc_tensor* t = golden_file().find(path);
  if (!t) throw std::runtime_error("the golden file has no " + path);
  return read_all(*t);
}

const GoldenMapping& mapping_of(const std::string& name) {
  for (const GoldenMapping& m : golden_mappings())
    if (name.starts_with(m.prefix)) return m;
  throw std::runtime_error("no mapping for the golden case " + name);
}

void expect_close(const std::string& what, const std::vector<double>& got, const std::vector<double>& want,
                  double tolerance) {
  ASSERT_EQ(got.size(), want.size()) << what;
  double largest = 0;
  for (const double w : want)
    if (std::isfinite(w)) largest = std::max(largest, std::abs(w));
  for (size_t i = 0; i < got.size(); ++i)
    if (got[i] != want[i] && !(std::abs(got[i] - want[i]) <= tolerance * largest)) {
      ADD_FAILURE() << what << "[" << i << "] is " << got[i] << ", golden " << want[i] << ", largest " << largest;
      return;
    }
}

// One golden case, seen through its op's schema.
class GoldenCase {
 public:
  GoldenCase(const std::string& name, const GoldenMapping& mapping, const OpCases& op)
      : mapping_(mapping), op_(op), options_(nlohmann::json::parse(golden_file().metadata().at(name))) {
    for (const auto& [path, tensor] : golden_file().tensors())
      if (path.starts_with(name + "/")) tensors_.emplace(path.substr(name.size() + 1), tensor);
    for (const PassCases& pass : op.passes)
      if (mapping.passes.empty() || std::count(mapping.passes.begin(), mapping.passes.end(), pass.pass))
        passes_.push_back(&pass);
    read_options();
    for (const PassCases* pass : passes_)
      for (const Field& f : find_pass(op.name, pass->pass).fields)
        if (f.is_tensor()) read_field(f);
  }

  void run() {
    for (const PassCases* pass : passes_) run_pass(*pass);
    for (const auto& [golden, tensor] : tensors_)
      EXPECT_TRUE(used_.contains(golden)) << golden << " meets no field of " << op_.name;
  }

 private:
  std::string field_of(const std::string& golden) const {
    const auto found = mapping_.tensors.find(golden);
    return found == mapping_.tensors.end() ? golden : found->second;
  }
  std::vector<std::string> goldens_of(std::string_view field) const {
    std::vector<std::string> names;
    for (const auto& [golden, tensor] : tensors_)
      if (field_of(golden) == field) names.push_back(golden);
    return names;
  }

  void read_options() {
    case_.scalars = {mapping_.set.begin(), mapping_.set.end()};
    for (const auto& [option, value] : options_.items()) {
      const auto renamed = mapping_.options.find(option);
      const std::string name = renamed == mapping_.options.end() ? option : renamed->second;
      if (name.empty() || value.is_null()) continue;
      const Field* field = nullptr;
      for (const PassCases* pass : passes_)
        for (const Field& f : find_pass(op_.name, pass->pass).fields)
          if (f.name == name && !f.is_tensor()) field = &f;
      if (!field) {
        ADD_FAILURE() << "the option " << option << " meets no field of " << op_.name;
        continue;
      }
      case_.scalars[name] = value.is_boolean()  ? value.get<bool>()
                            : value.is_number() ? value.get<double>()
                                                : choice_value(*field, value.get<std::string>());
    }
  }

  static double choice_value(const Field& f, const std::string& name) {
    for (int v = 0; v < 32; ++v)
      if (choice_name(f, v) == name) return v;
    ADD_FAILURE() << f.name << " has no choice " << name;
    return 0;
  }

  // The dimensions that a golden tensor gives to its field's names.
  void read_field(const Field& f) {
    const std::vector<std::string> names = goldens_of(f.name);
    if (names.empty()) {
      if (f.is_read() && !f.is_optional) case_.given.insert(std::string(f.name));  // forward makes it
      return;
    }
    case_.given.insert(std::string(f.name));
    const tc_tensor& t = tensors_.at(names[0]);
    for (int i = 0; i < f.shape.count(); ++i) {
      const ShapeAlternative& s = f.shape[i];
      const auto when = case_.scalars.find(s.when_field);
      const bool applies = s.when_field.empty() || (when != case_.scalars.end() && when->second == s.when_value);
      if (!applies || !s.fits(t.rank)) continue;
      case_.alternatives[std::string(f.name)] = i;
      return bind(s, t);
    }
    ADD_FAILURE() << names[0] << " of rank " << t.rank << " does not fit " << f.name << " [" << f.shape.text() << "]";
  }
  void bind(const ShapeAlternative& s, const tc_tensor& t) {
    const int64_t* extent = t.shape;
    for (int i = 0; i < s.count; ++i) {
      const Term& term = s.terms[i];
      const int64_t* end = extent + (term.variadic ? t.rank - (s.count - 1) : 1);
      if (!term.name.empty()) {
        std::vector<int64_t> extents(extent, end);
        for (int64_t& e : extents) e = (e - term.add) / term.multiply;
        case_.dims[std::string(term.name)] = extents;
      }
      extent = end;
    }
  }

  Values inputs_of_pass(const Problem& problem) {
    Values inputs;
    problem.for_each([&](const Field& f, const std::string& key, const tc_tensor& t) {
      if (!problem.reads(f)) return;
      if (const auto constant = mapping_.constants.find(key); constant != mapping_.constants.end())
        inputs[key].assign(static_cast<size_t>(element_count(t)), constant->second);
      for (const std::string& name : goldens_of(f.name)) {
        inputs[key] = read_all(tensors_.at(name));
        used_.insert(name);
      }
      if (inputs.contains(key)) return;
      ASSERT_TRUE(made_.contains(key)) << "nothing gives " << key << " to " << problem.pass().name;
      inputs[key] = made_.at(key);
    });
    return inputs;
  }

  void run_pass(const PassCases& cases) {
    const Pass& pass = find_pass(op_.name, cases.pass);
    Problem problem(pass, case_, TC_DTYPE_F32, Reals::f64);
    problem.write_inputs(inputs_of_pass(problem));
    cases.exact(problem.args(), problem.args());
    for (const auto& [key, values] : problem.outputs()) {
      made_[key] = values;
      for (const std::string& name : goldens_of(key)) {
        expect_close(fmt::format("{} {}", pass.name, name), values, read_all(tensors_.at(name)), mapping_.tolerance);
        used_.insert(name);
      }
    }
  }

  const GoldenMapping& mapping_;
  const OpCases& op_;
  nlohmann::json options_;
  std::map<std::string, tc_tensor> tensors_;
  std::vector<const PassCases*> passes_;
  Case case_;
  Values made_;
  std::set<std::string> used_;
};

Values outputs_of(const PassCases& cases, const OpCases& op, const Case& c, const Values& inputs) {
  Problem problem(find_pass(op.name, cases.pass), c, TC_DTYPE_F32, Reals::f64);
  problem.write_inputs(inputs);
  cases.exact(problem.args(), problem.args());
  return problem.outputs();
}

// Four steps, each on what the one before left.
void run_adamw(const OpCases& op) {
  constexpr int64_t kSize = 23, kSteps = 4;
  const std::vector<double> grads = golden("adamw/grads"), params = golden("adamw/params");
  Values state{
      {"params[0]", golden("adamw/p0")}, {"m[0]", std::vector<double>(kSize)}, {"v[0]", std::vector<double>(kSize)}};
  Case c = Case().lists({{kSize}});
  c.set("lr", 0.003).set("beta1", 0.9).set("beta2", 0.95).set("eps", 1e-8).set("weight_decay", 0.1);
  for (int64_t step = 0; step < kSteps; ++step) {
    const auto row = [&](const std::vector<double>& all) {
      return std::vector<double>(all.begin() + step * kSize, all.begin() + (step + 1) * kSize);
    };
    state["grads[0]"] = row(grads);
    state = outputs_of(op.passes[0], op, c.set("step", static_cast<double>(step + 1)), state);
    expect_close(fmt::format("params after step {}", step + 1), state["params[0]"], row(params), 1e-12);
  }
  expect_close("m", state["m[0]"], golden("adamw/m"), 1e-12);
  expect_close("v", state["v[0]"], golden("adamw/v"), 1e-12);
}

// The norm over three tensors, then their clipping by the factor that it gives.
void run_clip(const OpCases& op) {
  const Case c = Case().lists({{7}, {3, 5}, {11}}).set("max_norm", 1).with({"clip"});
  Values grads;
  for (const auto& [key, name] : {std::pair{"grads[0]", "a"}, {"grads[1]", "b"}, {"grads[2]", "c"}})
    grads[key] = golden(fmt::format("clip_grad_norm/{}", name));
  const Values norm = outputs_of(op.passes[0], op, c, grads);
  expect_close("norm", norm.at("norm"), golden("clip_grad_norm/norm"), 1e-12);
  grads["clip"] = norm.at("clip");
  expect_close("a_clipped", outputs_of(op.passes[1], op, c, grads).at("grads[0]"), golden("clip_grad_norm/a_clipped"),
               1e-12);
}

// Rounding to bf16 in two places is a matter of bits, so the kernel itself is held against them.
void run_before_weight(const OpCases& op) {
  const Pass& pass = find_pass(op.name, "rmsnorm_forward");
  const Case c = Case().dim("rows", 4).dim("cols", 64).set("eps", 1e-6).set("rounding", 1).with({"weight"});
  Problem problem(pass, c, TC_DTYPE_BF16, Reals::storage);
  const std::string folder = "rmsnorm_before_weight_bf16/";
  problem.write_inputs({{"x", golden(folder + "x")}, {"weight", golden(folder + "weight")}});
  if (call(pass, problem.args(), nullptr) == TC_ERR_KERNEL_NOT_FOUND) GTEST_SKIP() << tc_last_error();
  EXPECT_EQ(problem.outputs().at("y"), golden(folder + "y"));
}

// Lists of tensors, several calls, a kernel: what the schema alone does not say.
const std::map<std::string, void (*)(const OpCases&)> special_cases = {
    {"adamw", run_adamw}, {"clip_grad_norm", run_clip}, {"rmsnorm_before_weight_bf16", run_before_weight}};

class Golden : public ::testing::TestWithParam<std::string> {};

TEST_P(Golden, OracleAgrees) {
  const std::string& name = GetParam();
  const GoldenMapping& mapping = mapping_of(name);
  const OpCases* op = find_op(mapping.op);
  if (!op) GTEST_SKIP() << "op " << mapping.op << " is not in this build";
  if (const auto special = special_cases.find(name); special != special_cases.end())
    special->second(*op);
  else
    GoldenCase(name, mapping, *op).run();
}

INSTANTIATE_TEST_SUITE_P(Ops, Golden, ::testing::ValuesIn(case_names()), [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tc::testing
