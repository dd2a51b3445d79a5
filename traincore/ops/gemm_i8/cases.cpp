// What check and bench run for gemm_i8.
#include <array>
#include <cmath>

#include "traincore/core/view.h"
#include "traincore/ops/gemm_i8/gemm_i8.h"
#include "traincore/testing/cases.h"

namespace tc::ops::gemm_i8 {

using Args = tcx_gemm_i8_args;
template <class Real>
void oracle(const Args&);

namespace {

using testing::Case;
using testing::Effort;
using testing::Fill;
using testing::Layout;

// Every integer of [low, low + count) alike.
Fill integers(double low, double count) {
  return [=](const Case&, testing::Random& random, int64_t) { return low + std::floor(random.uniform() * count); };
}
Case product(int64_t m, int64_t n, int64_t k, std::vector<int64_t> batch = {}) {
  return Case()
      .dim("batch", std::move(batch))
      .dim("m", m)
      .dim("n", n)
      .dim("k", k)
      .fill("a", integers(-128, 256))
      .fill("b", integers(-128, 256))
      .fill("c", integers(-1e6, 2e6));
}

std::vector<Case> list(Effort effort) {
  std::vector<Case> all;
  const auto add = [&](const Case& c) { all.push_back(Case(c).may_be_zero({"c"})); };
  for (const auto& [m, n, k] : std::vector<std::array<int64_t, 3>>{
           {1, 1, 1}, {1, 7, 5}, {17, 31, 33}, {3, 5, 1024}, {5, 3, 1025}, {0, 5, 3}, {4, 0, 3}, {4, 5, 0}, {0, 0, 0}})
    add(product(m, n, k));
  for (const int transposed : {1, 2, 3})
    add(product(19, 35, 43, {2, 3}).set("transpose_a", transposed & 1).set("transpose_b", transposed >> 1));
  // The largest sums there are, where f32 would round: 2^14 a term.
  const Fill lowest = testing::values({-128});
  add(product(3, 2, 1024).fill("a", lowest).fill("b", lowest));
  add(product(1, 1, 131073).fill("a", lowest).fill("b", lowest));                  // clamped above
  add(product(1, 1, 132200).fill("a", lowest).fill("b", testing::values({127})));  // and below
  add(product(2, 3, 5001).fill("a", lowest).fill("b", integers(126, 2)));
  add(product(9, 5, 33).set("beta", 1));
  add(product(9, 5, 33).set("alpha", 0.5).set("beta", -2));
  add(product(9, 5, 33).set("alpha", 1e6).set("beta", 1e6));
  add(product(9, 5, 33).set("alpha", 0).set("beta", 1));
  for (const Layout l : {Layout::padded_rows, Layout::offset_by_one, Layout::reversed})
    add(product(19, 35, 43, {2}).set("beta", 1).layout({"a", "b", "c"}, l));
  add(product(19, 35, 43, {2}).layout({"a", "b"}, Layout::expanded));
  if (effort != Effort::quick) {
    add(product(513, 257, 2100));
    add(product(1030, 3, 96).set("transpose_a", 1));
    add(product(3, 1001, 65537).set("transpose_b", 1));
  }
  return all;
}

std::vector<Case> bench() { return {product(1024, 1024, 1024).set("transpose_b", 1), product(2048, 2048, 2048)}; }

// Wrong kernels that the cases must catch: the right one on bent arguments, or its result bent.
void rounded_sums(const void* p) {
  const auto& a = *static_cast<const Args*>(p);
  oracle<double>(a);
  const auto c = rows_of<int32_t>(a.c);
  for (int64_t r = 0; r < c.count; ++r)
    for (int64_t j = 0; j < c.cols; ++j)
      c[r][j] = static_cast<int32_t>(std::min(static_cast<double>(static_cast<float>(c[r][j])), 0x1.fffffep30));
}
void beta_forgotten(const void* p) {
  Args a = *static_cast<const Args*>(p);
  a.beta = 0;
  oracle<double>(a);
}
void wrapped_around(const void* p) {
  Args a = *static_cast<const Args*>(p);
  oracle<double>(a);
  const auto c = rows_of<int32_t>(a.c);
  for (int64_t r = 0; r < c.count; ++r)
    for (int64_t j = 0; j < c.cols; ++j)
      if (c[r][j] == INT32_MAX) c[r][j] = INT32_MIN;
}
void tail_dropped(const void* p) {
  Args a = *static_cast<const Args*>(p);
  int64_t& k = a.a.shape[a.a.rank - 1];
  if (!a.transpose_a) k = k / 4 * 4;
  oracle<double>(a);
}

}  // namespace

extern const testing::OpCases cases;
const testing::OpCases cases = {
    .name = "gemm_i8",
    .passes = {testing::pass_cases<Args, oracle<double>, oracle<float>>("gemm_i8")},
    .list = list,
    .bench = bench,
    .mutants = {{"sums rounded to f32", "gemm_i8", rounded_sums},
                {"beta ignored", "gemm_i8", beta_forgotten},
                {"overflow wraps around", "gemm_i8", wrapped_around},
                {"the last k % 4 terms dropped", "gemm_i8", tail_dropped}},
};

}  // namespace tc::ops::gemm_i8
