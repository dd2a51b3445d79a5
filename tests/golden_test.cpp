// The oracles against values that PyTorch computed in float64 (tests/golden). A case of an op is one row here.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

#include "traincore/core/view.h"
#include "traincore/testing/check.h"
#include "traincore/testing/values.h"
#include "traincore/train/safetensors.h"

namespace tc::testing {
namespace {

struct GoldenCase {
  std::string name, op;
  Case options;                              // dimensions, scalars, optional tensors
  std::map<std::string, std::string> names;  // where the file calls a field otherwise: field -> its name
  std::string prefix = op;                   // of the passes: <prefix>_forward, <prefix>_backward
};

std::vector<GoldenCase> golden_cases() {
  std::vector<GoldenCase> all;
  const auto norm = [&](const char* name, int64_t rows, int64_t cols, double eps, double weight_offset = 0) {
    const Case c = Case().dim("rows", rows).dim("cols", cols).set("eps", eps).set("weight_offset", weight_offset);
    all.push_back({name, "rmsnorm", Case(c).with({"weight", "rstd", "dx", "dweight"})});
  };
  norm("rmsnorm_a", 5, 14, 1e-6);
  norm("rmsnorm_b", 5, 257, 1e-5);
  norm("rmsnorm_gemma", 4, 38, 1e-6, 1);
  all.push_back({"rmsnorm_residual", "rmsnorm",
                 Case()
                     .dim("rows", 4)
                     .dim("cols", 23)
                     .set("eps", 1e-5)
                     .with({"weight", "rstd", "residual", "residual_out", "dresidual_out", "dx", "dweight"})});
  const std::pair<const char*, int64_t> kinds[] = {{"silu", 33},     {"sigmoid", 28},    {"gelu_tanh", 20},
                                                   {"gelu_erf", 39}, {"quick_gelu", 40}, {"relu", 37},
                                                   {"relu2", 39},    {"tanh", 17}};
  int kind = 0;
  for (const auto& [name, cols] : kinds) {
    const Case c = Case().dim("rows", std::vector<int64_t>{}).dim("cols", cols).set("kind", ++kind);
    all.push_back(
        {std::string("activation_") + name, "activation", Case(c).with({"dgate"}), {{"gate", "x"}, {"dgate", "dx"}}});
    all.push_back({std::string("gated_") + name, "activation", Case(c).with({"up", "dgate", "dup"})});
  }
  all.push_back({"gemm_bias_gelu",
                 "gemm",
                 Case()
                     .dim("batch", std::vector<int64_t>{})
                     .dim("m", 9)
                     .dim("n", 12)
                     .dim("k", 6)
                     .set("activation", TC_ACTIVATION_GELU_TANH)
                     .with({"a", "b", "bias", "preactivation", "da", "db", "dbias"}),
                 {{"c", "y"}, {"dc", "dy"}}});
  return all;
}

const train::SafetensorsFile& golden_file() {
  static const train::SafetensorsFile file(TC_SOURCE_DIR "/tests/golden/ops.safetensors");
  return file;
}

// The golden tensor of a field; NULL if the file has none.
const tc_tensor* golden(const GoldenCase& g, const std::string& field) {
  const auto renamed = g.names.find(field);
  return golden_file().find(g.name + "/" + (renamed == g.names.end() ? field : renamed->second));
}

// Runs one pass's oracle on golden inputs, and on what the forward oracle `made` where the file lacks one. Adds its
// outputs to `made` and returns how many were compared.
int expect_pass(const GoldenCase& g, const PassCases& cases, Values& made) {
  SCOPED_TRACE(g.name + " " + std::string(cases.pass));
  const Problem call(find_pass(g.op, cases.pass), g.options, TC_DTYPE_F64, Reals::f64);
  call.for_each([&](const Field& f, const std::string& key, const tc_tensor& t) {
    if (!call.reads(f)) return;
    const tc_tensor* want = golden(g, key);
    ASSERT_TRUE(want || made.contains(key)) << key << " is not in the file";
    const std::vector<double> values = want ? read_all(*want) : made[key];
    ASSERT_EQ(static_cast<int64_t>(values.size()), element_count(t)) << key;
    write_all(t, values);
  });
  cases.exact(call.args());
  made = call.outputs();
  int compared = 0;
  for (const auto& [key, got] : made) {
    const tc_tensor* golden_tensor = golden(g, key);
    if (!golden_tensor) continue;
    const std::vector<double> want = read_all(*golden_tensor);
    EXPECT_EQ(got.size(), want.size()) << key;
    double largest = 0;
    for (const double v : want) largest = std::max(largest, std::abs(v));
    for (size_t i = 0; i < std::min(got.size(), want.size()); ++i)
      EXPECT_NEAR(got[i], want[i], 1e-12 * largest) << key << " element " << i;
    ++compared;
  }
  return compared;
}

TEST(Golden, OraclesAgreeWithPyTorch) {
  for (const GoldenCase& g : golden_cases()) {
    const OpCases* op = find_op(g.op);
    if (!op) continue;  // TC_OPS leaves it out
    int passes = 0;
    Values made;
    for (const PassCases& cases : op->passes) {
      if (!cases.pass.starts_with(g.prefix + "_")) continue;
      EXPECT_GT(expect_pass(g, cases, made), 0) << g.name << " " << cases.pass;
      ++passes;
    }
    EXPECT_EQ(passes, 2) << g.name;
  }
}

}  // namespace
}  // namespace tc::testing
