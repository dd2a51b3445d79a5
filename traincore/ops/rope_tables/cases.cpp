// What check and bench run for rope_tables.
#include <cmath>

#include "traincore/core/view.h"
#include "traincore/ops/rope_tables/rope_tables.h"
#include "traincore/testing/cases.h"

namespace tc::ops::rope_tables {

using Args = tcx_rope_tables_args;
template <class Real>
void oracle(const Args&);

namespace {

using testing::Case;
using testing::Effort;
using testing::Layout;

Case table(std::vector<int64_t> rows, int64_t half) {
  return Case()
      .set("base", 10000)
      .dim("rows", std::move(rows))
      .dim("half", half)
      .with({"cos", "sin", "inv_freq"})
      .may_be_zero({"sin"});  // position 0
}

void add_scalings(std::vector<Case>& all) {
  const auto scaled = [](int scaling, double factor) {
    return table({61}, 64).set("base", 500000).set("scaling", scaling).set("factor", factor);
  };
  all.push_back(scaled(TC_ROPE_SCALING_LINEAR, 4));
  all.push_back(scaled(TC_ROPE_SCALING_NTK, 8));
  all.push_back(scaled(TC_ROPE_SCALING_NTK, 8).dim("half", 1));
  all.push_back(scaled(TC_ROPE_SCALING_YARN, 4).set("original_max_position", 4096));
  all.push_back(scaled(TC_ROPE_SCALING_YARN, 0.5).set("original_max_position", 10));
  all.push_back(scaled(TC_ROPE_SCALING_YARN, 32)
                    .set("original_max_position", 4096)
                    .set("truncate", 0)
                    .set("beta_fast", 16)
                    .set("attention_scaling", 0.8));
  all.push_back(scaled(TC_ROPE_SCALING_LLAMA3, 8)
                    .set("low_freq_factor", 1)
                    .set("high_freq_factor", 4)
                    .set("original_max_position", 8192));
}

std::vector<Case> list(Effort effort) {
  std::vector<Case> all;
  for (const int64_t half : {1, 2, 3, 17, 31, 64, 100, 255, 256, 257, 600}) all.push_back(table({5}, half));
  for (const int64_t rows : {0, 1, 2, 17, effort == Effort::quick ? 300 : 65537}) all.push_back(table({rows}, 16));
  const auto far = testing::values({0, 1, -5, 127, 8191, 131071, 999999, 1e6, 1e9});
  all.push_back(table({3, 7}, 64).with({"positions"}).fill("positions", far));
  all.push_back(table({9}, 64).with({"positions"}).fill("positions", far).dtype("positions", TC_DTYPE_I32));
  all.push_back(table({3, 7}, 33).with({"positions"}).fill("positions", far).layout({"positions"}, Layout::transposed));
  all.push_back(table({}, 20).with({"positions"}).fill("positions", testing::constant(77)));
  for (const Layout l : {Layout::padded_rows, Layout::offset_by_one, Layout::reversed})
    all.push_back(table({9}, 21).layout({"cos", "sin"}, l));
  all.push_back(table({9}, 21).dtype("cos", TC_DTYPE_BF16).dtype("sin", TC_DTYPE_F16));
  all.push_back(Case().set("base", 1e6).dim("rows", 9).dim("half", 21).with({"sin"}));
  all.push_back(Case().set("base", 1e6).dim("rows", 9).dim("half", 21).with({"inv_freq"}));
  add_scalings(all);
  return all;
}

std::vector<Case> bench() { return {table({131072}, 64)}; }

// Wrong kernels that the cases must catch.
void spacing_of_the_whole_head(const void* p) {
  Args a = *static_cast<const Args*>(p);
  a.base = std::sqrt(a.base);  // as if half were twice as large
  oracle<float>(a);
}
void angles_in_f32(const void* p) {
  Args a = *static_cast<const Args*>(p);
  oracle<float>(a);
  const auto cos = rows_of<float>(a.cos), inv_freq = rows_of<float>(a.inv_freq);
  const Indices positions(a.positions);
  for (int64_t r = 0; cos.data && inv_freq.data && a.scaling == TC_ROPE_SCALING_NONE && r < cos.count; ++r)
    for (int64_t i = 0; i < cos.cols; ++i)
      cos[r][i] = std::cos(static_cast<float>(given(a.positions) ? positions[r] : r) * inv_freq[0][i]);
}
void scaling_ignored(const void* p) {
  Args a = *static_cast<const Args*>(p);
  if (a.scaling == TC_ROPE_SCALING_LLAMA3) a.scaling = TC_ROPE_SCALING_LINEAR;
  oracle<float>(a);
}

Case large() { return table({1}, 1024).with({"positions"}).fill("positions", testing::integers_below("rows")); }

}  // namespace

extern const testing::OpCases cases;
const testing::OpCases cases = {
    .name = "rope_tables",
    .passes = {testing::pass_cases<Args, oracle<double>, oracle<float>>("rope_tables")},
    .list = list,
    .bench = bench,
    .mutants = {{"frequencies spaced by the whole head", "rope_tables", spacing_of_the_whole_head},
                {"angles formed in f32", "rope_tables", angles_in_f32},
                {"llama3 taken as linear", "rope_tables", scaling_ignored}},
    .large = large,
};

}  // namespace tc::ops::rope_tables
