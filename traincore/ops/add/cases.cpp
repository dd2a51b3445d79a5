// What check and bench run for add.
#include <algorithm>
#include <cmath>

#include "traincore/core/view.h"
#include "traincore/ops/add/add.h"
#include "traincore/testing/cases.h"

namespace tc::ops::add {

using Args = tcx_add_args;
template <class Real>
void oracle(const Args&);

namespace {

using testing::Case;
using testing::Layout;

constexpr int32_t kDtypes[] = {TC_DTYPE_F32, TC_DTYPE_BF16, TC_DTYPE_F16};

std::vector<Case> list(testing::Effort effort) {
  std::vector<Case> all = testing::element_sweep(effort, Case(), {"a", "b", "y"});
  const auto rows = [] { return Case().dim("dims", {3, 5, 67}); };
  for (const int32_t b : kDtypes)
    for (const int32_t y : kDtypes)
      all.push_back(rows().dtype("b", b).dtype("y", y).set("alpha", 0.9).set("beta", -0.1));
  all.push_back(rows().alias("y", "a"));
  all.push_back(rows().alias("y", "b").set("beta", 0.25));
  all.push_back(rows().alias("y", "a").layout({"a"}, Layout::transposed));
  all.push_back(rows().alias("y", "b").layout({"b"}, Layout::reversed).layout({"a"}, Layout::expanded));
  all.push_back(Case().dim("dims", 77).layout({"a"}, Layout::expanded));
  all.push_back(rows().set("alpha", 0).set("beta", 0).may_be_zero({"y"}));
  all.push_back(
      rows().fill("a", testing::normal(1, 1e4)).fill("b", testing::normal(1, -1e4)).may_be_zero({"y"}));  // cancels
  all.push_back(rows().fill("a", testing::normal(1e-39)).fill("b", testing::normal(1e-39)).may_be_zero({"y"}));
  all.push_back(rows()
                    .fill("a", testing::values({1, INFINITY, 3, NAN, 5, INFINITY}))
                    .fill("b", testing::values({1, 2, INFINITY, 4, 5, -INFINITY}))
                    .may_be_nonfinite({"y"}));
  return all;
}

std::vector<Case> bench() {
  std::vector<Case> all;
  for (const int32_t y : kDtypes) all.push_back(Case().dim("dims", {4096, 2048}).dtype("y", y));
  return all;
}

std::vector<Case> bench_cuda() {
  std::vector<Case> all;
  for (const int32_t y : kDtypes) all.push_back(Case().dim("dims", {16384, 8192}).dtype("y", y));
  return all;
}

// The sum can cancel: the magnitudes of its two terms.
testing::Terms terms(std::string_view, const void* exact_args) {
  const auto& args = *static_cast<const Args*>(exact_args);
  const auto a = values_of<const double>(args.a), b = values_of<const double>(args.b);
  double largest = 0;
  for (int64_t i = 0; i < a.count; ++i) {
    const double magnitude = std::abs(args.alpha * *a[i]) + std::abs(args.beta * *b[i]);
    if (std::isfinite(magnitude)) largest = std::max(largest, magnitude);
  }
  return {2, largest};
}

// Wrong kernels that the cases must catch.
void coefficients_forgotten(const void* p) {
  Args a = *static_cast<const Args*>(p);
  a.alpha = a.beta = 1;
  oracle<float>(a);
}
void coefficients_exchanged(const void* p) {
  Args a = *static_cast<const Args*>(p);
  std::swap(a.alpha, a.beta);
  oracle<float>(a);
}
void dense_reading(const void* p) {
  Args a = *static_cast<const Args*>(p);
  a.b = tc_tensor_dense(a.b.data, a.b.dtype, a.b.rank, a.b.shape);
  oracle<float>(a);
}

Case large() { return Case().dim("dims", 1).dtype("y", TC_DTYPE_BF16); }

}  // namespace

extern const testing::OpCases cases;
const testing::OpCases cases = {
    .name = "add",
    .passes = {testing::pass_cases<Args, oracle<double>, oracle<float>>("add", terms)},
    .list = list,
    .bench = bench,
    .mutants = {{"alpha and beta forgotten", "add", coefficients_forgotten},
                {"alpha and beta exchanged", "add", coefficients_exchanged},
                {"b read as if dense", "add", dense_reading}},
    .bench_cuda = bench_cuda,
    .large = large,
};

}  // namespace tc::ops::add
