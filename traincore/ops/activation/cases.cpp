// What check and bench run for the activations.
#include <limits>

#include "traincore/core/view.h"
#include "traincore/ops/activation/activation.h"
#include "traincore/testing/cases.h"

namespace tc::ops::activation {

using Forward = tcx_activation_forward_args;
using Backward = tcx_activation_backward_args;
template <class Real>
void forward_oracle(const Forward&);
template <class Real>
void backward_oracle(const Backward&);

namespace {

using testing::Case;
using testing::Effort;
using testing::Layout;

Case unary(int kind) { return Case().set("kind", kind).with({"dgate"}); }
Case gated(int kind) { return Case().set("kind", kind).with({"up", "dgate", "dup", "y"}); }

void add_kind(std::vector<Case>& all, int kind) {
  constexpr double kInf = std::numeric_limits<double>::infinity(), kNaN = std::numeric_limits<double>::quiet_NaN();
  for (const Case& base : {unary(kind), gated(kind)}) {
    const auto sized = [&] { return Case(base).dim("rows", {3, 5}).dim("cols", 129); };
    all.push_back(sized());
    all.push_back(sized().fill("gate", testing::normal(8)));
    all.push_back(sized().fill("gate", testing::values({-20, -88, -100, -200, 100, 0, -0.0, 1, -3, 11, -11})));
    all.push_back(sized()
                      .fill("gate", testing::values({3e38, -3e38, kInf, -kInf, kNaN, -1, 0.5}))
                      .may_be_nonfinite({"y", "dgate", "dup"}));
    all.push_back(sized().fill("gate", testing::normal(1e-40)).may_be_zero({"y", "dup", "dgate"}));
  }
}

std::vector<Case> list(Effort effort) {
  std::vector<Case> all =
      testing::row_sweep(effort, gated(TC_ACTIVATION_SILU), {"gate", "up", "y", "dy", "dgate", "dup"});
  for (int kind = TC_ACTIVATION_SILU; kind <= TC_ACTIVATION_TANH; ++kind) add_kind(all, kind);
  const auto small = [](Case c) { return c.dim("rows", {3, 5}).dim("cols", 67); };
  all.push_back(small(gated(TC_ACTIVATION_SILU)).layout({"dy"}, Layout::expanded));
  all.push_back(small(gated(TC_ACTIVATION_SILU)).layout({"gate", "dup"}, Layout::padded_rows));
  all.push_back(small(gated(TC_ACTIVATION_SILU)).alias("y", "gate").alias("dgate", "dy").alias("dup", "up"));
  all.push_back(small(gated(TC_ACTIVATION_SILU)).alias("y", "up").alias("dgate", "gate").alias("dup", "dy"));
  all.push_back(small(gated(TC_ACTIVATION_SILU)).alias("dgate", "up").alias("dup", "gate"));
  all.push_back(small(unary(TC_ACTIVATION_TANH)).alias("y", "gate").alias("dgate", "dy"));
  all.push_back(small(Case().set("kind", TC_ACTIVATION_RELU2).with({"up", "dup"})));
  all.push_back(small(Case().set("kind", TC_ACTIVATION_GELU_ERF).with({"up", "y"})));
  all.push_back(unary(TC_ACTIVATION_GELU_TANH).dim("rows", std::vector<int64_t>{}).dim("cols", 100));
  return all;
}

std::vector<Case> bench() {
  std::vector<Case> all;
  for (const int kind : {TC_ACTIVATION_SILU, TC_ACTIVATION_GELU_TANH, TC_ACTIVATION_GELU_ERF, TC_ACTIVATION_RELU2})
    all.push_back(Case().set("kind", kind).with({"up", "dgate", "dup"}).dim("rows", 4096).dim("cols", 14336));
  all.push_back(unary(TC_ACTIVATION_TANH).dim("rows", 4096).dim("cols", 14336));
  all.push_back(
      Case().set("kind", TC_ACTIVATION_SILU).with({"up", "dgate", "dup"}).dim("rows", 1024).dim("cols", 2048));
  return all;
}

std::vector<Case> bench_cuda() {
  std::vector<Case> all;
  const auto large = [&](const Case& c) { all.push_back(Case(c).dim("rows", 16384).dim("cols", 14336)); };
  for (const int kind : {TC_ACTIVATION_SILU, TC_ACTIVATION_GELU_TANH, TC_ACTIVATION_GELU_ERF, TC_ACTIVATION_RELU2})
    large(Case().set("kind", kind).with({"up", "dgate", "dup"}));
  large(gated(TC_ACTIVATION_SILU));
  for (const int kind : {TC_ACTIVATION_SILU, TC_ACTIVATION_GELU_TANH, TC_ACTIVATION_TANH}) large(unary(kind));
  all.push_back(gated(TC_ACTIVATION_SILU).dim("rows", 16384).dim("cols", 14331));
  return all;
}

// Wrong kernels that the cases must catch: the right one, then its arguments or its result bent.
void erf_form_of_gelu(const void* p) {
  Forward a = *static_cast<const Forward*>(p);
  if (a.kind == TC_ACTIVATION_GELU_TANH) a.kind = TC_ACTIVATION_GELU_ERF;
  forward_oracle<float>(a);
}
void row_strides_ignored(const void* p) {
  Forward a = *static_cast<const Forward*>(p);
  if (a.gate.rank > 1) a.gate = tc_tensor_dense(a.gate.data, a.gate.dtype, a.gate.rank, a.gate.shape);
  forward_oracle<float>(a);
}
void up_forgotten(const void* p) {
  Backward a = *static_cast<const Backward*>(p);
  Backward gate_only = a;
  gate_only.up = gate_only.dup = gate_only.y = tc_tensor{};
  backward_oracle<float>(a);
  if (given(a.dgate)) backward_oracle<float>(gate_only);
}
void slope_of_relu_at_zero(const void* p) {
  const Backward a = *static_cast<const Backward*>(p);
  backward_oracle<float>(a);
  const auto gate = rows_of<const float>(a.gate), dy = rows_of<const float>(a.dy);
  const auto dgate = rows_of<float>(a.dgate);
  for (int64_t r = 0; dgate.data && a.kind == TC_ACTIVATION_RELU && r < dy.count; ++r)
    for (int64_t c = 0; c < dy.cols; ++c)
      if (gate[r][c] == 0) dgate[r][c] = dy[r][c];
}
void dup_without_activation(const void* p) {
  const Backward& a = *static_cast<const Backward*>(p);
  backward_oracle<float>(a);
  const auto gate = rows_of<const float>(a.gate), dy = rows_of<const float>(a.dy);
  const auto dup = rows_of<float>(a.dup);
  for (int64_t r = 0; dup.data && r < dy.count; ++r)
    for (int64_t c = 0; c < dy.cols; ++c) dup[r][c] = dy[r][c] * gate[r][c];
}

}  // namespace

extern const testing::OpCases cases;
const testing::OpCases cases = {
    .name = "activation",
    .passes = {testing::pass_cases<Forward, forward_oracle<double>, forward_oracle<float>>("activation_forward"),
               testing::pass_cases<Backward, backward_oracle<double>, backward_oracle<float>>("activation_backward")},
    .list = list,
    .bench = bench,
    .mutants = {{"gelu_tanh computed as gelu_erf", "activation_forward", erf_form_of_gelu},
                {"row strides of gate ignored", "activation_forward", row_strides_ignored},
                {"dgate without the factor up", "activation_backward", up_forgotten},
                {"slope of relu at 0 taken as 1", "activation_backward", slope_of_relu_at_zero},
                {"dup = dy gate", "activation_backward", dup_without_activation}},
    .bench_cuda = bench_cuda,
};

}  // namespace tc::ops::activation
