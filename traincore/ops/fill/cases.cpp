// What check and bench run for fill.
#include "traincore/testing/cases.h"
#include "traincore/core/view.h"
#include "traincore/ops/fill/fill.h"

namespace tc::ops::fill {

template <class Real>
void oracle(const tcx_fill_args&);

namespace {

using testing::Case;

constexpr int32_t kDtypes[] = {TC_DTYPE_F32, TC_DTYPE_BF16, TC_DTYPE_F16};

// A case with y of that dtype; f32 is what a case gives it anyway.
Case to(int32_t dtype) { return dtype == TC_DTYPE_F32 ? Case() : Case().dtype("y", dtype); }

std::vector<Case> list(testing::Effort effort) {
  std::vector<Case> all;
  for (const int32_t y : kDtypes) {
    const Case base = to(y).set("value", -1.7);
    const std::vector<Case> sweep = testing::element_sweep(effort, base, {"y"});
    all.insert(all.end(), sweep.begin(), sweep.end());
    const auto rows = [&](double value) { return Case(base).dim("dims", {7, 33}).set("value", value); };
    all.push_back(rows(0).may_be_zero({"y"}));
    all.push_back(rows(1e-39).may_be_zero({"y"}));
    all.push_back(rows(1e300).may_be_nonfinite({"y"}).may_be_zero({"y"}));
  }
  return all;
}

std::vector<Case> bench() {
  std::vector<Case> all;
  for (const int32_t y : kDtypes) all.push_back(to(y).dim("dims", {4096, 2048}));
  return all;
}

std::vector<Case> bench_cuda() {
  std::vector<Case> all;
  for (const int32_t y : kDtypes) all.push_back(to(y).dim("dims", {16384, 8192}));
  return all;
}

// Wrong kernels that the cases must catch.
void dense_writing(const void* p) {
  tcx_fill_args a = *static_cast<const tcx_fill_args*>(p);
  a.y = tc_tensor_dense(a.y.data, a.y.dtype, a.y.rank, a.y.shape);
  oracle<float>(a);
}
void whole_numbers_only(const void* p) {
  tcx_fill_args a = *static_cast<const tcx_fill_args*>(p);
  a.value = static_cast<double>(static_cast<int64_t>(a.value));
  oracle<float>(a);
}
void last_element_missed(const void* p) {
  const auto& a = *static_cast<const tcx_fill_args*>(p);
  oracle<float>(a);
  const auto y = values_of<float>(a.y);
  if (y.count > 0) *y[y.count - 1] = 0;
}

Case large() { return Case().dim("dims", 1).set("value", 0.3).dtype("y", TC_DTYPE_BF16); }

}  // namespace

extern const testing::OpCases cases;
const testing::OpCases cases = {
    .name = "fill",
    .passes = {testing::pass_cases<tcx_fill_args, oracle<double>, oracle<float>>("fill")},
    .list = list,
    .bench = bench,
    .mutants = {{"gaps between rows written", "fill", dense_writing},
                {"value taken as an integer", "fill", whole_numbers_only},
                {"last element missed", "fill", last_element_missed}},
    .bench_cuda = bench_cuda,
    .large = large,
};

}  // namespace tc::ops::fill
