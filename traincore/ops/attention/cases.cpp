// What check and bench run for attention.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "traincore/core/view.h"
#include "traincore/ops/attention/attention.h"
#include "traincore/testing/cases.h"

namespace tc::ops::attention {

using Forward = tcx_attention_forward_args;
using Backward = tcx_attention_backward_args;
template <class Real>
void forward_oracle(const Forward&);
template <class Real>
void backward_oracle(const Backward&);
void backward_magnitudes(const Backward&);
std::vector<testing::Mutant> mutants();

namespace {

using testing::Case;
using testing::constant;
using testing::Effort;
using testing::Layout;
using testing::normal;
using testing::values;

struct Heads {
  int64_t batch, heads, kv_heads;
};
struct Lengths {
  int64_t q, k;
};

// Everything that both passes can give. Rows that see no key have an lse of -inf.
Case attention(Heads h, Lengths s, int64_t head_dim, int64_t value_dim) {
  Case c = Case()
               .dim("batch", h.batch)
               .dim("heads", h.heads)
               .dim("kv_heads", h.kv_heads)
               .dim("seq_q", s.q)
               .dim("seq_k", s.k)
               .dim("head_dim", head_dim)
               .dim("value_dim", value_dim)
               .with({"precise_output", "row_max", "row_log_sum", "lse", "dq", "dk", "dv"})
               .may_be_nonfinite({"lse"});
  return s.k == 1 ? c.may_be_zero({"row_log_sum", "dq", "dk"}) : c;  // one key has all the weight
}
Case small() { return attention({2, 4, 2}, {50, 67}, 12, 9); }  // every size has a tail

Case masked(Case c, std::array<int64_t, 4> shape) {
  const char* const names[] = {"mask_batch", "mask_heads", "mask_q", "mask_k"};
  for (size_t i = 0; i < 4; ++i) c.dim(names[i], shape[i]);
  return c.with({"mask"}).fill("mask", [](const Case&, testing::Random& r, int64_t) { return r.below(3) ? 1.0 : 0.0; });
}
Case biased(Case c, std::array<int64_t, 4> shape) {
  const char* const names[] = {"bias_batch", "bias_heads", "bias_q", "bias_k"};
  for (size_t i = 0; i < 4; ++i) c.dim(names[i], shape[i]);
  return c.with({"bias", "dbias"});
}
Case packed(std::vector<double> starts_q, std::vector<double> starts_k, Heads h = {1, 4, 2}) {
  const Lengths s{static_cast<int64_t>(starts_q.back()), static_cast<int64_t>(starts_k.back())};
  return attention(h, s, 16, 8)
      .dim("sequences", static_cast<int64_t>(starts_q.size()) - 1)
      .with({"cu_seqlens_q", "cu_seqlens_k"})
      .fill("cu_seqlens_q", values(std::move(starts_q)))
      .fill("cu_seqlens_k", values(std::move(starts_k)));
}

void add_sizes(std::vector<Case>& all, Effort effort) {
  for (const int64_t d : {1, 2, 3, 16, 17, 31, 33, 64, 65, 72, 80, 96, 100, 112, 128, 129, 160, 192, 256, 320})
    if (effort != Effort::quick || d % 3 == 1)
      for (const int causal : {0, 1})
        all.push_back(attention({2, 2, 1}, {13, 53}, d, d % 2 ? d + 2 : d).set("causal", causal));
  // Around the edges of tiles.
  for (const auto& [q, k] : std::initializer_list<Lengths>{
           {1, 1}, {1, 50}, {50, 1}, {2, 3}, {47, 48}, {48, 49}, {49, 47}, {97, 96}, {101, 193}})
    for (const int causal : {0, 1}) all.push_back(attention({1, 2, 2}, {q, k}, 5, 16).set("causal", causal));
  for (const auto& h : std::initializer_list<Heads>{{1, 8, 2}, {2, 6, 3}, {1, 12, 4}, {3, 5, 1}, {1, 7, 7}, {5, 1, 1}})
    all.push_back(attention(h, {61, 70}, 8, 9).set("causal", 1));
  all.push_back(attention({2, 8, 8}, {8, 8}, 8, 8).set("causal", 1));  // every size equal: nothing may be transposed
  all.push_back(attention({2, 3, 3}, {7, 7}, 5, 16));
  if (effort == Effort::quick) return;
  all.push_back(attention({1, 2, 1}, {500, 700}, 64, 64).set("causal", 1));
  all.push_back(attention({1, 9, 3}, {257, 255}, 32, 32));
  all.push_back(attention({1, 1, 1}, {1001, 1001}, 16, 16).set("causal", 1));  // one head: dk and dv in many slabs
  all.push_back(attention({65536, 1, 1}, {4, 4}, 2, 3).set("causal", 1));
  all.push_back(attention({64, 512, 512}, {2, 3}, 2, 3));
}

void add_windows(std::vector<Case>& all) {
  struct Window {
    double causal, offset, left, right;
  };
  constexpr double kCorner = -0x1p63;
  for (const auto& w : std::initializer_list<Window>{{1, 0, -1, -1},
                                                     {1, -2, -1, -1},
                                                     {1, 17, -1, -1},
                                                     {1, 200, -1, -1},
                                                     {1, -200, -1, -1},
                                                     {1, kCorner, 2, -1},
                                                     {1, kCorner, 3, -1},
                                                     {1, kCorner, 0, -1},
                                                     {0, kCorner, 0, 0},
                                                     {0, kCorner, 5, 60},
                                                     {0, kCorner, -1, 7},
                                                     {0, 0, 49, -1},
                                                     {1, kCorner, 60, 90},
                                                     {0, -80, 3, 1},
                                                     {0, 120, 10, 10}}) {
    const auto with = [&](Case c) {
      c.set("causal", w.causal).set("causal_offset", w.offset).set("window_left", w.left).set("window_right", w.right);
      all.push_back(c.may_be_zero({"o", "precise_output", "row_max", "row_log_sum", "lse", "dq", "dk", "dv"}));
    };
    with(attention({2, 4, 2}, {50, 101}, 8, 7));
    with(attention({1, 2, 2}, {101, 53}, 8, 7));
  }
}

void add_options(std::vector<Case>& all) {
  const auto alibi = [](Case c) { return c.with({"alibi_slopes", "dalibi_slopes"}); };
  all.push_back(small().set("scale", 0.3));
  all.push_back(small().set("softcap", 2).set("causal", 1));
  all.push_back(alibi(small()));
  all.push_back(alibi(small()).set("accumulate", 1).set("causal", 1).dtype("alibi_slopes", TC_DTYPE_BF16));
  all.push_back(alibi(small()).set("softcap", 5).set("causal", 1).set("causal_offset", 0));
  all.push_back(alibi(attention({2, 3, 1}, {7, 9}, 5, 6)).dtype("dalibi_slopes", TC_DTYPE_F16));
  all.push_back(masked(small(), {2, 4, 50, 67}));
  all.push_back(masked(small(), {2, 1, 1, 67}).set("causal", 1));
  all.push_back(masked(small(), {1, 4, 50, 1}).dtype("mask", TC_DTYPE_BOOL));
  all.push_back(masked(attention({1, 2, 1}, {5, 3}, 8, 8), {1, 1, 5, 3})
                    .set("causal", 1)
                    .may_be_zero({"row_log_sum", "dq", "dk"}));
  all.push_back(biased(small(), {2, 4, 50, 67}));
  all.push_back(biased(small(), {1, 4, 1, 67}).set("softcap", 3).dtype("bias", TC_DTYPE_F16));
  all.push_back(biased(masked(alibi(small()), {1, 1, 50, 67}), {2, 1, 50, 1}).set("softcap", 3).set("window_left", 60));
  all.push_back(small().set("dropout", 0.25).set("seed", 12345));
  all.push_back(biased(alibi(small()), {1, 1, 50, 67}).set("dropout", 0.5).set("seed", -7).set("causal", 1));
  // Gradients of a bias that is broadcast, over tiles and over heads of one group and of several.
  for (const auto& shape : std::initializer_list<std::array<int64_t, 4>>{{2, 4, 50, 67},
                                                                         {1, 4, 50, 67},
                                                                         {2, 1, 50, 67},
                                                                         {1, 1, 50, 67},
                                                                         {2, 4, 1, 67},
                                                                         {2, 4, 50, 1},
                                                                         {1, 4, 1, 1},
                                                                         {1, 1, 1, 1}})
    all.push_back(biased(small(), shape).set("causal", shape[2] % 2 == 0));
  all.push_back(biased(small(), {1, 4, 50, 67}).set("accumulate", 1).set("window_left", 12));
  all.push_back(biased(small(), {2, 1, 50, 67}).dtype("dbias", TC_DTYPE_BF16).dtype("bias", TC_DTYPE_F32));
  all.push_back(biased(small(), {1, 1, 1, 67}).dtype("dbias", TC_DTYPE_F16));
  all.push_back(biased(attention({1, 3, 1}, {5, 450}, 4, 6), {1, 3, 1, 450}));  // many tiles of keys
  const Case everything = biased(masked(alibi(small()), {2, 4, 50, 67}), {1, 4, 50, 67})
                              .set("causal", 1)
                              .set("causal_offset", 20)
                              .set("window_left", 40)
                              .set("softcap", 3)
                              .set("scale", 0.4);
  all.push_back(everything);
  all.push_back(Case(everything).set("dropout", 0.3).set("seed", 99).dim("bias_batch", 2));
  // Only o, and only lse.
  const auto few = [](std::initializer_list<const char*> given) {
    Case c = small().set("causal", 1);
    c.given.clear();
    return c.with(given);
  };
  all.push_back(few({"o", "lse", "dq", "dk", "dv"}));
  all.push_back(few({"o", "lse", "dq"}).set("softcap", 4));
  all.push_back(few({"o", "row_max", "row_log_sum", "dv"}));
  all.push_back(few({"precise_output", "row_max", "row_log_sum", "dk"}));
}

void add_packed(std::vector<Case>& all, Effort effort) {
  // Short keys, some of fewer keys than queries; sequences without queries, without keys, without either.
  all.push_back(packed({0, 7, 17, 68}, {0, 1, 2, 3}).set("causal", 1).may_be_zero({"row_log_sum", "dq", "dk"}));
  all.push_back(packed({0, 0, 60, 100, 100}, {0, 0, 60, 60, 100}));
  all.push_back(packed({0, 7, 58}, {0, 51, 60}).with({"alibi_slopes", "dalibi_slopes"}).set("window_left", 9));
  all.push_back(packed({0, 20, 58}, {0, 51, 80}).set("causal", 1).set("causal_offset", 3).set("dropout", 0.1));
  all.push_back(masked(packed({0, 20, 58}, {0, 51, 80}), {1, 4, 58, 80}));
  for (const auto& shape : std::initializer_list<std::array<int64_t, 4>>{
           {1, 4, 100, 110}, {1, 1, 100, 110}, {1, 4, 1, 110}, {1, 1, 100, 1}, {1, 4, 1, 1}})
    all.push_back(biased(packed({0, 20, 20, 100}, {0, 51, 60, 110}), shape).set("causal", 1).set("dropout", 0.2));
  all.push_back(packed({0, 0, 0}, {0, 0, 0}));
  if (effort == Effort::quick) return;
  all.push_back(packed({0, 76, 110, 256}, {0, 1, 2, 3}).set("causal", 1).may_be_zero({"row_log_sum", "dq", "dk"}));
  all.push_back(packed({0, 150, 150, 300}, {0, 100, 200, 300}).set("causal", 1));
  all.push_back(packed({0, 0, 1208, 2048, 2048}, {0, 0, 1208, 2048, 2048}, {1, 1, 1}));
}

void add_layouts(std::vector<Case>& all) {
  for (const Layout l : {Layout::padded_rows, Layout::offset_by_one, Layout::reversed})
    all.push_back(small().layout({"q", "k", "v", "o", "do", "precise_output", "dq", "dk", "dv", "row_max", "lse"}, l));
  all.push_back(small().layout({"do"}, Layout::reversed));  // and o dense
  all.push_back(small().layout({"do"}, Layout::expanded));
  all.push_back(small().layout({"q"}, Layout::expanded));
  all.push_back(small().layout({"k", "v"}, Layout::expanded).may_be_zero({"dq", "dk"}));  // all keys alike
  all.push_back(small().layout({"row_max", "row_log_sum", "lse"}, Layout::transposed));
  all.push_back(
      masked(biased(small(), {2, 4, 50, 67}), {2, 4, 50, 67}).layout({"mask", "bias", "dbias"}, Layout::padded_rows));
}

void add_values(std::vector<Case>& all) {
  all.push_back(small().fill("q", normal(100)));                                              // one key takes all
  all.push_back(small().fill("q", normal(1, 30)).fill("k", normal(1, 30)).set("causal", 1));  // scores far from 0
  all.push_back(small().fill("q", normal(1e-3)).fill("do", normal(1e-3)));
  all.push_back(small().fill("v", normal(1, 100)).set("causal", 1));  // dq cancels
  all.push_back(small().fill("q", constant(0)).may_be_zero({"row_max", "dk"}).set("causal", 1));
  all.push_back(attention({1, 1, 1}, {1, 1}, 16, 16).set("causal", 1));
  // Uniform rows over 1, 2, 3, ... keys; see tests/attention_test.cpp for what comes out.
  const auto uniform = [](Lengths s) {
    return attention({1, 1, 1}, s, 1, 1)
        .fill("q", constant(0))
        .fill("v", values({1, 2, 3, 4, 5, 6}))
        .set("causal", 1)
        .may_be_zero({"row_max", "dk"});
  };
  all.push_back(uniform({2, 4}));
  all.push_back(uniform({4, 6}));
  all.push_back(uniform({5, 2}));
  all.push_back(uniform({6, 6}).set("window_left", 2));
  all.push_back(uniform({6, 6}).set("window_left", 0).may_be_zero({"row_log_sum", "dq", "lse"}));
  // Rows that see no key: what their v and do hold must not reach any gradient, or another row.
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const auto first_rows = [](double value) {  // of 6 queries x 4 keys, the first two see nothing
    return [value](const Case&, testing::Random& r, int64_t i) { return i % (6 * 3) < 2 * 3 ? value : r.normal(); };
  };
  const Case blind = attention({2, 2, 2}, {6, 4}, 3, 3).set("causal", 1);
  all.push_back(Case(blind).fill("do", first_rows(kInf)));
  all.push_back(Case(blind).fill("do", first_rows(3e38)).fill("q", first_rows(kInf)));
  all.push_back(masked(Case(blind), {1, 1, 6, 1})
                    .set("causal", 0)
                    .fill("do", first_rows(kInf))
                    .fill("mask", values({0, 0, 1, 1, 1, 1})));
  all.push_back(biased(Case(blind), {1, 1, 6, 1})
                    .set("causal", 0)
                    .fill("do", first_rows(kInf))
                    .fill("bias", values({-kInf, -kInf, 0, 1, 2, 3})));
  all.push_back(attention({1, 2, 1}, {3, 5}, 4, 4)
                    .set("causal", 1)
                    .set("causal_offset", -9)
                    .fill("v", constant(kInf))
                    .fill("k", constant(kInf))
                    .may_be_zero({"o", "precise_output", "row_max", "row_log_sum", "lse", "dq", "dk", "dv"}));
}

void add_empty(std::vector<Case>& all) {
  for (const auto& h : std::initializer_list<Heads>{{0, 2, 1}, {2, 0, 0}, {2, 0, 3}})
    all.push_back(attention(h, {5, 7}, 4, 3));
  for (const auto& s : std::initializer_list<Lengths>{{0, 5}, {5, 0}, {0, 0}})
    all.push_back(attention({2, 2, 1}, s, 4, 3));
}

std::vector<Case> list(Effort effort) {
  std::vector<Case> all;
  add_sizes(all, effort);
  add_windows(all);
  add_options(all);
  add_packed(all, effort);
  add_layouts(all);
  add_values(all);
  add_empty(all);
  return all;
}

std::vector<Case> bench() {
  std::vector<Case> all;
  const auto add = [&](Heads h, int64_t s, int64_t d, int causal) {
    Case c = attention(h, {s, s}, d, d).set("causal", causal);
    c.given = {"o", "row_max", "row_log_sum", "dq", "dk", "dv"};
    all.push_back(c);
  };
  for (const int causal : {0, 1}) {
    add({1, 8, 8}, 1024, 64, causal);
    add({1, 8, 2}, 1024, 128, causal);
    add({8, 6, 6}, 256, 64, causal);
  }
  add({1, 2, 2}, 8192, 64, 1);
  return all;
}

// dz is a difference, and the gradients are sums over it: all may cancel.
testing::Terms backward_terms(std::string_view field, const void* exact_args) {
  Backward a = *static_cast<const Backward*>(exact_args);
  const int64_t keys = a.k.shape[2], queries = a.q.shape[2] * a.q.shape[1];
  const auto pairs_of_each = [&](const tc_tensor& bias) {
    return a.q.shape[0] * queries * keys / std::max<int64_t>(element_count(bias), 1);
  };
  const struct {
    std::string_view name;
    tc_tensor& tensor;
    int64_t terms;
  } outputs[] = {{"dq", a.dq, keys},
                 {"dk", a.dk, queries},
                 {"dv", a.dv, queries},
                 {"dbias", a.dbias, pairs_of_each(a.dbias)},
                 {"dalibi_slopes", a.dalibi_slopes, queries * keys}};
  testing::Terms result;
  std::vector<double> sums;
  for (const auto& output : outputs) {
    if (output.name != field) {
      output.tensor = tc_tensor{};
      continue;
    }
    sums.resize(static_cast<size_t>(element_count(output.tensor)));
    output.tensor = tc_tensor_dense(sums.data(), TC_DTYPE_F64, output.tensor.rank, output.tensor.shape);
    result.count = static_cast<double>(output.terms);
  }
  backward_magnitudes(a);
  for (const double sum : sums) result.magnitude = std::max(result.magnitude, sum);
  return result;
}

}  // namespace

extern const testing::OpCases cases;
const testing::OpCases cases = {
    .name = "attention",
    .passes = {testing::pass_cases<Forward, forward_oracle<double>, forward_oracle<float>>("attention_forward"),
               testing::pass_cases<Backward, backward_oracle<double>, backward_oracle<float>>("attention_backward",
                                                                                              backward_terms)},
    .list = list,
    .bench = bench,
    .mutants = mutants(),
};

}  // namespace tc::ops::attention
