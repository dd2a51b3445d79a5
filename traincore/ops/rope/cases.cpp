// What check and bench run for rope.
#include <algorithm>
#include <cmath>

#include "traincore/ops/rope/plan.h"
#include "traincore/testing/cases.h"

namespace tc::ops::rope {

using Forward = tcx_rope_forward_args;
using Backward = tcx_rope_backward_args;
template <class Real>
void forward_oracle(const Forward&);
template <class Real>
void backward_oracle(const Backward&);

namespace {

using testing::Case;
using testing::Effort;
using testing::Layout;

struct Sizes {
  std::vector<int64_t> batch;
  int64_t heads, kv_heads, seq, dim, half;
};

// A table of seq rows; q alone, without gradients of the tables.
Case plain(int pairing, const Sizes& z) {
  return Case()
      .set("pairing", pairing)
      .dim("batch", z.batch)
      .dim("heads", z.heads)
      .dim("kv_heads", z.kv_heads)
      .dim("seq", z.seq)
      .dim("rows", z.seq)
      .dim("dim", z.dim)
      .dim("half", z.half)
      .with({"dq"});
}
Case whole(int pairing, const Sizes& z) {
  return plain(pairing, z).with({"q", "k", "dk_out", "k_out", "dk", "dcos", "dsin"});
}

// Positions choose rows of a table that is longer than the sequence, and repeat.
Case gathered(Case c, int64_t rows) {
  return c.with({"positions"})
      .dim("rows", rows)
      .fill("positions", testing::integers_below("rows"))
      .may_be_zero({"dcos", "dsin"});
}
Case per_batch(Case c) {
  for (const char* name : {"cos", "sin", "dcos", "dsin"}) c.alternative(name, 1);
  return c;
}
// [seq dim]: q, k and their like have no heads.
Case flat(Case c) {
  for (const char* name : {"q", "k", "q_out", "k_out", "dq_out", "dk_out", "dq", "dk"}) c.alternative(name, 1);
  return c;
}

void add_sizes(std::vector<Case>& all, Effort effort, int pairing) {
  const bool quick = effort == Effort::quick;
  const std::vector<std::pair<int64_t, int64_t>> widths = {{2, 1},    {3, 1},     {7, 3},     {17, 5},    {34, 17},
                                                           {64, 32},  {80, 32},   {96, 48},   {100, 31},  {128, 64},
                                                           {192, 96}, {256, 128}, {300, 150}, {1000, 387}};
  for (const auto& [dim, half] : widths) all.push_back(whole(pairing, {{2}, 3, 1, 5, dim, half}));
  for (const int64_t seq : {0, 1, 2, 7, 8, 9, 17, quick ? 33 : 1025})
    all.push_back(whole(pairing, {{3}, 2, 1, seq, 34, 16}));
  for (const int64_t batch : {0, 1, 2, quick ? 7 : 517}) all.push_back(plain(pairing, {{batch}, 2, 1, 3, 16, 8}));
  if (quick) return;
  for (const auto& [dim, half] : {std::pair{8192, 4096}, {65537, 32768}})
    all.push_back(whole(pairing, {{2}, 1, 1, 3, dim, half}));
  all.push_back(plain(pairing, {{65536}, 1, 1, 2, 5, 2}));
  all.push_back(whole(pairing, {{4}, 12, 4, 256, 64, 32}));
}

void add_options(std::vector<Case>& all, int pairing) {
  const Sizes sizes = {{2, 3}, 5, 2, 7, 44, 19};
  const auto base = [&] { return whole(pairing, sizes); };
  for (const Layout l : {Layout::padded_rows, Layout::offset_by_one, Layout::reversed})
    all.push_back(base().layout({"q", "k", "q_out", "k_out", "dq_out", "dk_out", "dq", "dk", "cos", "dsin"}, l));
  all.push_back(base().layout({"dq_out", "dk_out"}, Layout::expanded));
  all.push_back(base().alias("q_out", "q").alias("k_out", "k").alias("dq", "dq_out").alias("dk", "dk_out"));
  all.push_back(plain(pairing, sizes).alias("q_out", "q").alias("dq", "dq_out"));
  all.push_back(base().dtype("cos", TC_DTYPE_F32).dtype("sin", TC_DTYPE_F32));
  all.push_back(base().dtype("cos", TC_DTYPE_BF16).dtype("sin", TC_DTYPE_F16).dtype("dcos", TC_DTYPE_BF16));
  all.push_back(base().dtype("dsin", TC_DTYPE_F16));
  all.push_back(base().set("accumulate", 1));
  all.push_back(per_batch(base()));
  all.push_back(per_batch(base()).layout({"cos", "dcos"}, Layout::padded_rows));
  all.push_back(gathered(base(), 23));
  all.push_back(gathered(base(), 4).dtype("positions", TC_DTYPE_I32).set("accumulate", 1));
  all.push_back(gathered(base(), 23).alternative("positions", 1).layout({"positions"}, Layout::transposed));
  all.push_back(flat(whole(pairing, {{}, 1, 1, 29, 18, 7})));
  all.push_back(flat(gathered(whole(pairing, {{}, 1, 1, 29, 18, 7}), 11)));
  all.push_back(whole(pairing, {{}, 3, 2, 7, 18, 9}));
  all.push_back(plain(pairing, sizes).with({"q", "dcos"}));
  all.push_back(base().fill("q", testing::normal(1e-3)).fill("dq_out", testing::normal(1e3)));
}

std::vector<Case> list(Effort effort) {
  std::vector<Case> all;
  for (const int pairing : {TC_ROPE_HALF, TC_ROPE_INTERLEAVED}) {
    add_sizes(all, effort, pairing);
    add_options(all, pairing);
  }
  return all;
}

std::vector<Case> bench() {
  std::vector<Case> all;
  for (const int pairing : {TC_ROPE_HALF, TC_ROPE_INTERLEAVED})
    all.push_back(plain(pairing, {{4}, 32, 8, 2048, 128, 64})
                      .with({"k", "k_out", "dk_out", "dk"})
                      .dtype("cos", TC_DTYPE_F32)
                      .dtype("sin", TC_DTYPE_F32));
  return all;
}

std::vector<Case> bench_cuda() {
  std::vector<Case> all;
  const auto add = [&](const Case& c) { all.push_back(Case(c).dtype("cos", TC_DTYPE_F32).dtype("sin", TC_DTYPE_F32)); };
  const auto q_and_k = [](Case c) { return c.with({"k", "k_out", "dk_out", "dk"}); };
  const Sizes llama = {{4}, 32, 8, 8192, 128, 64};
  for (const int pairing : {TC_ROPE_HALF, TC_ROPE_INTERLEAVED}) add(q_and_k(plain(pairing, llama)));
  add(gathered(q_and_k(plain(TC_ROPE_HALF, llama)), 8192));
  add(q_and_k(plain(TC_ROPE_HALF, {{4}, 32, 8, 8192, 128, 32})));
  add(whole(TC_ROPE_HALF, {{4}, 32, 8, 8192, 128, 64}));
  return all;
}

// Both terms of every sum behind dcos and dsin; elsewhere an output is a sum of two terms of its own size.
testing::Terms backward_terms(std::string_view field, const void* exact_args) {
  const auto& a = *static_cast<const Backward*>(exact_args);
  if (field != "dcos" && field != "dsin") return {};
  const int64_t half = a.cos.shape[a.cos.rank - 1];
  std::vector<double> magnitude(static_cast<size_t>(element_count(a.cos)));
  double count = 0;
  for (const auto& [input, cotangent] : {std::pair{&a.q, &a.dq_out}, {&a.k, &a.dk_out}}) {
    const Heads<const double> x(*input), g(*cotangent);
    const TableRow table_row(a.cos, a.positions, g.seq);
    count += static_cast<double>(2 * g.batch.count * g.heads);
    for (int64_t b = 0; b < g.batch.count; ++b)
      for (int64_t head = 0; head < g.heads; ++head)
        for (int64_t s = 0; s < g.seq; ++s)
          for (int64_t c = 0; c < 2 * half; ++c) {
            const double *const xr = x.at(b, head, s), *const gr = g.at(b, head, s);
            const int64_t pair = a.pairing == TC_ROPE_HALF ? c % half : c / 2;
            const int64_t partner = a.pairing == TC_ROPE_HALF ? (c + half) % (2 * half) : c ^ 1;
            magnitude[static_cast<size_t>(table_row(b, s) * half + pair)] +=
                std::abs(gr[c]) * std::max(std::abs(xr[c]), std::abs(xr[partner]));
          }
  }
  return {count, magnitude.empty() ? 0 : *std::max_element(magnitude.begin(), magnitude.end())};
}

// Wrong kernels that the cases must catch: the right one with its arguments bent.
void other_pairing(const void* p) {
  Forward a = *static_cast<const Forward*>(p);
  a.pairing = a.pairing == TC_ROPE_HALF ? TC_ROPE_INTERLEAVED : TC_ROPE_HALF;
  forward_oracle<float>(a);
}
void first_batch_tables(const void* p) {
  Forward a = *static_cast<const Forward*>(p);
  for (tc_tensor* t : {&a.cos, &a.sin})
    if (t->rank > 2) *t = tc_tensor_dense(t->data, t->dtype, 2, t->shape + t->rank - 2);
  forward_oracle<float>(a);
}
void suffix_not_copied(const void* p) {
  Forward a = *static_cast<const Forward*>(p);
  const int64_t half = a.cos.shape[a.cos.rank - 1];
  for (tc_tensor* t : {&a.q, &a.k})
    if (given(*t)) t->shape[t->rank - 1] = 2 * half;
  forward_oracle<float>(a);
}
void turned_forwards(const void* p) {
  const auto& a = *static_cast<const Backward*>(p);
  backward_oracle<float>(a);
  Forward f{sizeof f, a.pairing, a.dq_out, a.dk_out, a.cos, a.sin, a.positions, a.dq, a.dk};
  if (!given(a.dk)) f.k = f.k_out = tc_tensor{};
  if (given(a.dq)) forward_oracle<float>(f);
}
void k_left_out_of_tables(const void* p) {
  const auto& a = *static_cast<const Backward*>(p);
  backward_oracle<float>(a);
  Backward q_only = a;
  q_only.k = q_only.dk_out = q_only.dk = tc_tensor{};
  if (!a.accumulate) backward_oracle<float>(q_only);
}

// Rows of the tables take their sums one sequence after another: many rows, so that the sequences are few. What is not
// turned is copied.
Case large() { return whole(TC_ROPE_HALF, {{1}, 2, 1, 32, 128, 32}); }

}  // namespace

extern const testing::OpCases cases;
const testing::OpCases cases = {
    .name = "rope",
    .passes = {testing::pass_cases<Forward, forward_oracle<double>, forward_oracle<float>>("rope_forward"),
               testing::pass_cases<Backward, backward_oracle<double>, backward_oracle<float>>("rope_backward",
                                                                                              backward_terms)},
    .list = list,
    .bench = bench,
    .mutants = {{"the other pairing", "rope_forward", other_pairing},
                {"batched tables read as those of batch 0", "rope_forward", first_batch_tables},
                {"suffix of a partial rotation not copied", "rope_forward", suffix_not_copied},
                {"gradient turned forwards", "rope_backward", turned_forwards},
                {"k left out of dcos and dsin", "rope_backward", k_left_out_of_tables}},
    .bench_cuda = bench_cuda,
    .large = large,
    .summed = {"dq_out", "dk_out"},
};

}  // namespace tc::ops::rope
