// What check and bench run for gemm.
#include <algorithm>
#include <array>
#include <cmath>

#include "traincore/core/view.h"
#include "traincore/ops/gemm/gemm.h"
#include "traincore/testing/cases.h"

namespace tc::ops::gemm {

using Forward = tcx_gemm_forward_args;
using Backward = tcx_gemm_backward_args;
template <class Real>
void forward_oracle(const Forward&);
template <class Real>
void backward_oracle(const Backward&);
template <class Real>
std::vector<Real> gradient_of_z(const Backward&);

namespace {

using testing::Case;
using testing::Effort;
using testing::Layout;

using Size = std::array<int64_t, 3>;  // m, n, k

Case sized(const Size& s, std::vector<int64_t> batch = {}) {
  return Case().dim("batch", std::move(batch)).dim("m", s[0]).dim("n", s[1]).dim("k", s[2]);
}
Case full(const Size& s, std::vector<int64_t> batch = {}) {
  return sized(s, std::move(batch)).with({"a", "b", "bias", "preactivation", "da", "db", "dbias"});
}

std::vector<Size> sizes(Effort effort) {
  std::vector<Size> list = {{1, 1, 1},     {1, 7, 5},   {6, 1, 9},     {2, 3, 1},    {17, 31, 33},
                            {63, 65, 129}, {3, 5, 511}, {33, 17, 100}, {7, 1001, 2}, {257, 3, 96},
                            {0, 5, 3},     {4, 0, 3},   {4, 5, 0},     {0, 0, 0}};
  if (effort == Effort::quick) return list;
  list.insert(list.end(), {{129, 257, 383},
                           {513, 100, 33},
                           {65, 127, 1408},
                           {2, 33, 65537},
                           {1, 2560, 513},
                           {1000, 65, 31},
                           {5, 32768, 3},
                           {65536, 3, 2}});
  if (effort == Effort::full) list.insert(list.end(), {{1001, 515, 1025}, {31, 100000, 17}, {67, 66, 100000}});
  return list;
}

// Everything that is not about size, on one small product.
void add_options(std::vector<Case>& all) {
  const auto small = [] { return full({19, 35, 43}); };
  for (int kind = 1; kind <= TC_ACTIVATION_TANH; ++kind) all.push_back(small().set("activation", kind));
  all.push_back(small().set("alpha", -0.375).set("beta", 0.7));
  all.push_back(small().set("alpha", 0).set("beta", 1).may_be_zero({"da", "db"}));
  all.push_back(small().set("alpha", 0.5).set("accumulate", 1));
  all.push_back(full({5, 9, 0}).set("beta", -2).set("accumulate", 1));
  all.push_back(sized({21, 13, 8}).with({"a", "db"}));
  all.push_back(sized({21, 13, 8}).with({"b", "da"}));
  all.push_back(sized({21, 13, 8}).with({"bias", "dbias"}));
  for (const int32_t d : {TC_DTYPE_BF16, TC_DTYPE_F16})
    all.push_back(small()
                      .set("activation", TC_ACTIVATION_SILU)
                      .set("beta", 1)
                      .dtype("c", d)
                      .dtype("preactivation", d)
                      .dtype("da", d)
                      .dtype("db", d)
                      .dtype("dbias", d));
  all.push_back(small()
                    .dtype("a", TC_DTYPE_F32)
                    .dtype("b", TC_DTYPE_BF16)
                    .dtype("dc", TC_DTYPE_F16)
                    .dtype("c", TC_DTYPE_F16)
                    .dtype("bias", TC_DTYPE_BF16));
}

void add_layouts(std::vector<Case>& all) {
  for (const Layout l : {Layout::padded_rows, Layout::offset_by_one, Layout::reversed})
    for (const int transposed : {0, 1}) {
      Case c = full({19, 35, 43}, {2, 3}).set("transpose_a", transposed).set("transpose_b", transposed).set("beta", 1);
      c.layout({"a", "b", "c", "preactivation", "dc", "da", "db"}, l);
      if (l == Layout::offset_by_one) c.layout({"bias", "dbias"}, l);
      all.push_back(c);
    }
  all.push_back(full({19, 35, 43}, {2}).layout({"a", "b", "dc"}, Layout::expanded));
  all.push_back(full({9, 5, 7}, {20}).set("activation", TC_ACTIVATION_GELU_TANH).set("accumulate", 1));
  all.push_back(full({9, 5, 7}, {0}));
}

std::vector<Case> list(Effort effort) {
  std::vector<Case> all;
  for (const Size& s : sizes(effort)) all.push_back(full(s).may_be_zero({"c", "preactivation"}));
  for (const int transposed : {1, 2, 3}) {
    const auto add = [&](Case c) {
      all.push_back(c.set("transpose_a", transposed & 1).set("transpose_b", transposed >> 1));
    };
    add(full({17, 31, 33}).set("beta", 1));
    add(full({1, 7, 5}));
    add(full({5, 1, 3}, {3}).set("activation", TC_ACTIVATION_RELU2));
    if (effort != Effort::quick) add(full({130, 67, 1030}));
  }
  add_options(all);
  add_layouts(all);
  all.push_back(full({17, 31, 33}).fill("a", testing::normal(1, 30)).fill("b", testing::normal(1, -20)));
  all.push_back(full({17, 31, 33}).fill("a", testing::normal(1e-3)).fill("b", testing::normal(1e-4)));
  return all;
}

std::vector<Case> bench() {
  std::vector<Case> all;
  for (const Size& s :
       {Size{2048, 2048, 2048}, {1024, 768, 768}, {1024, 2048, 768}, {1024, 768, 2048}, {1024, 32000, 768}})
    all.push_back(sized(s).set("transpose_b", 1).with({"a", "b", "da", "db"}));
  return all;
}

// A dense copy in absolute values, absent for an absent tensor. The magnitudes of an output's terms are what the oracle
// gives for such inputs.
struct Magnitudes {
  explicit Magnitudes(const tc_tensor& t) : view(t) {
    if (!given(t)) return;
    const auto rows = rows_of<const double>(t);
    for (int64_t r = 0; r < rows.count; ++r)
      for (int64_t c = 0; c < rows.cols; ++c) values.push_back(std::abs(rows[r][c]));
    view = tc_tensor_dense(values.data(), TC_DTYPE_F64, t.rank, t.shape);
  }
  double largest() const { return values.empty() ? 0 : *std::max_element(values.begin(), values.end()); }
  std::vector<double> values;
  tc_tensor view;
};

testing::Terms forward_terms(std::string_view, const void* exact_args) {
  Forward args = *static_cast<const Forward*>(exact_args);
  Magnitudes a(args.a), b(args.b), c(args.c);
  args.a = a.view, args.b = b.view, args.c = c.view;
  args.preactivation = args.bias = tc_tensor{};
  args.activation = TC_ACTIVATION_NONE, args.alpha = std::abs(args.alpha), args.beta = 0;
  forward_oracle<double>(args);
  return {static_cast<double>(args.transpose_a ? a.view.shape[a.view.rank - 2] : a.view.shape[a.view.rank - 1]),
          c.largest()};
}

testing::Terms backward_terms(std::string_view field, const void* exact_args) {
  Backward args = *static_cast<const Backward*>(exact_args);
  const std::vector<double> dz = gradient_of_z<double>(args);
  const auto wanted = [&](const char* name, tc_tensor& t) {
    Magnitudes out(t);
    t = field == name ? out.view : tc_tensor{};
    return out;
  };
  const Magnitudes da = wanted("da", args.da), db = wanted("db", args.db), dbias = wanted("dbias", args.dbias);
  Magnitudes a(args.a), b(args.b), dc(args.dc);
  std::transform(dz.begin(), dz.end(), dc.values.begin(), [](double v) { return std::abs(v); });
  args.a = a.view, args.b = b.view, args.dc = dc.view;
  args.activation = TC_ACTIVATION_NONE, args.alpha = std::abs(args.alpha), args.accumulate = 0;
  backward_oracle<double>(args);
  const auto n = static_cast<double>(dc.view.shape[dc.view.rank - 1]);
  const double rows = static_cast<double>(dc.values.size()) / std::max(n, 1.0);
  if (field == "da") return {n, da.largest()};
  return {rows, field == "db" ? db.largest() : dbias.largest()};
}

// Wrong kernels that the cases must catch: the right one on bent arguments, or its result bent.
void beta_forgotten(const void* p) {
  Forward a = *static_cast<const Forward*>(p);
  a.beta = 0;
  forward_oracle<float>(a);
}
void bias_forgotten(const void* p) {
  Forward a = *static_cast<const Forward*>(p);
  a.bias = tc_tensor{};
  forward_oracle<float>(a);
}
void tail_dropped(const void* p) {
  Forward a = *static_cast<const Forward*>(p);
  int64_t& k = a.a.shape[a.a.rank - 1];
  if (!a.transpose_a) k = k / 4 * 4;
  forward_oracle<float>(a);
}
void activation_before_bias(const void* p) {
  Forward a = *static_cast<const Forward*>(p);
  a.bias = tc_tensor{};
  forward_oracle<float>(a);
  const auto c = rows_of<float>(a.c);
  const auto* bias = static_cast<const float*>(static_cast<const Forward*>(p)->bias.data);
  for (int64_t r = 0; bias && r < c.count; ++r)
    for (int64_t j = 0; j < c.cols; ++j) c[r][j] += bias[j];
}
void alpha_forgotten(const void* p) {
  Backward a = *static_cast<const Backward*>(p);
  a.alpha = 1;
  backward_oracle<float>(a);
}
void slope_forgotten(const void* p) {
  Backward a = *static_cast<const Backward*>(p);
  a.activation = TC_ACTIVATION_NONE;
  backward_oracle<float>(a);
}
void overwritten(const void* p) {
  Backward a = *static_cast<const Backward*>(p);
  a.accumulate = 0;
  backward_oracle<float>(a);
}
void mean_over_rows(const void* p) {
  const auto& a = *static_cast<const Backward*>(p);
  backward_oracle<float>(a);
  const int64_t rows = rows_of<float>(a.dc).count;
  auto* dbias = static_cast<float*>(a.dbias.data);
  for (int64_t j = 0; dbias && rows && j < a.dbias.shape[0]; ++j) dbias[j] /= static_cast<float>(rows);
}

}  // namespace

extern const testing::OpCases cases;
const testing::OpCases cases = {
    .name = "gemm",
    .passes = {testing::pass_cases<Forward, forward_oracle<double>, forward_oracle<float>>("gemm_forward",
                                                                                           forward_terms),
               testing::pass_cases<Backward, backward_oracle<double>, backward_oracle<float>>("gemm_backward",
                                                                                              backward_terms)},
    .list = list,
    .bench = bench,
    .mutants = {{"beta ignored", "gemm_forward", beta_forgotten},
                {"bias ignored", "gemm_forward", bias_forgotten},
                {"bias added after the activation", "gemm_forward", activation_before_bias},
                {"the last k % 4 terms dropped", "gemm_forward", tail_dropped},
                {"alpha ignored", "gemm_backward", alpha_forgotten},
                {"derivative of the activation ignored", "gemm_backward", slope_forgotten},
                {"accumulate ignored", "gemm_backward", overwritten},
                {"dbias averaged over rows", "gemm_backward", mean_over_rows}},
};

}  // namespace tc::ops::gemm
