// What check and bench run for cast. Bits are compared in tests/pointwise_test.cpp.
#include <cmath>
#include <limits>

#include "traincore/core/view.h"
#include "traincore/ops/cast/cast.h"
#include "traincore/testing/cases.h"

namespace tc::ops::cast {

template <class Real>
void oracle(const tcx_cast_args&);

namespace {

using testing::Case;

constexpr int32_t kDtypes[] = {TC_DTYPE_F32, TC_DTYPE_BF16, TC_DTYPE_F16};

// A case with y of that dtype; f32 is what a case gives it anyway.
Case to(int32_t dtype) { return dtype == TC_DTYPE_F32 ? Case() : Case().dtype("y", dtype); }

std::vector<Case> list(testing::Effort effort) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  std::vector<Case> all;
  for (const int32_t y : kDtypes) {
    const Case base = to(y);
    const std::vector<Case> sweep = testing::element_sweep(effort, base, {"x", "y"});
    all.insert(all.end(), sweep.begin(), sweep.end());
    const auto rows = [&] { return Case(base).dim("dims", {7, 33}); };
    all.push_back(rows().layout({"x"}, testing::Layout::expanded));
    all.push_back(rows().fill("x", testing::normal(1e-39)).may_be_zero({"y"}));  // subnormal in f32 and bf16
    all.push_back(rows().fill("x", testing::normal(1e-6)));                      // and in f16
    all.push_back(rows()
                      .fill("x", testing::values({65504, 65519.9, 65520, -65520, 3.3e38, 3.4e38}))
                      .may_be_nonfinite({"y"})
                      .may_be_zero({"y"}));
    all.push_back(rows().fill("x", testing::values({inf, 1, nan, -inf, 2})).may_be_nonfinite({"y"}).may_be_zero({"y"}));
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

// Wrong kernels that the cases must catch: the right one, then its result bent.
void dense_reading(const void* p) {
  tcx_cast_args a = *static_cast<const tcx_cast_args*>(p);
  a.x = tc_tensor_dense(a.x.data, a.x.dtype, a.x.rank, a.x.shape);
  oracle<float>(a);
}
void lost_subnormals(const void* p) {
  const auto& a = *static_cast<const tcx_cast_args*>(p);
  oracle<float>(a);
  const auto y = values_of<float>(a.y);
  for (int64_t i = 0; i < y.count; ++i)
    if (std::abs(*y[i]) < std::numeric_limits<float>::min()) *y[i] = 0;
}
void last_element_missed(const void* p) {
  const auto& a = *static_cast<const tcx_cast_args*>(p);
  oracle<float>(a);
  const auto y = values_of<float>(a.y);
  if (y.count > 1) *y[y.count - 1] = *y[0];
}

Case large() { return Case().dim("dims", 1).dtype("y", TC_DTYPE_F16); }

}  // namespace

extern const testing::OpCases cases;
const testing::OpCases cases = {
    .name = "cast",
    .passes = {testing::pass_cases<tcx_cast_args, oracle<double>, oracle<float>>("cast")},
    .list = list,
    .bench = bench,
    .mutants = {{"x read as if dense", "cast", dense_reading},
                {"subnormals flushed to zero", "cast", lost_subnormals},
                {"last element missed", "cast", last_element_missed}},
    .bench_cuda = bench_cuda,
    .large = large,
};

}  // namespace tc::ops::cast
