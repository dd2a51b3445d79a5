// What check and bench run for random. The laws and the bits are tested in tests/pointwise_test.cpp.
#include "traincore/testing/cases.h"
#include "traincore/core/view.h"
#include "traincore/ops/random/random.h"

namespace tc::ops::random {

using Args = tcx_random_args;
template <class Real>
void oracle(const Args&);

namespace {

using testing::Case;

constexpr int32_t kDtypes[] = {TC_DTYPE_F32, TC_DTYPE_BF16, TC_DTYPE_F16};

Case uniform() { return Case().set("distribution", TC_RANDOM_UNIFORM).set("seed", 7).set("low", -3).set("high", 0.5); }
Case normal() { return Case().set("distribution", TC_RANDOM_NORMAL).set("seed", 11).set("stream", 5).set("std", 0.02); }
Case bernoulli() {
  return Case().set("distribution", TC_RANDOM_BERNOULLI).set("seed", 13).set("probability", 0.3).may_be_zero({"y"});
}

std::vector<Case> list(testing::Effort effort) {
  std::vector<Case> all;
  for (const Case& law : {uniform(), normal(), bernoulli()}) {
    const std::vector<Case> sweep = testing::element_sweep(effort, law, {"y"});
    all.insert(all.end(), sweep.begin(), sweep.end());
    const auto rows = [&] { return Case(law).dim("dims", {31, 129}); };
    for (const int32_t y : kDtypes) all.push_back(rows().dtype("y", y));
    for (const double first : {1.0, 2.0, 3.0, 4.0, 0x1p34 - 61}) all.push_back(rows().set("first_index", first));
    all.push_back(rows().set("seed", 0x1p40 + 3).set("stream", 0x1p50 + 5));
    all.push_back(rows().set("seed", -1).set("stream", -1));
  }
  for (const double truncate : {0.5, 2.0, 3.0, 8.0})
    all.push_back(normal().dim("dims", {31, 129}).set("truncate", truncate).set("mean", 1));
  all.push_back(normal().dim("dims", 1001).set("mean", 1000));
  all.push_back(normal().dim("dims", 1001).set("std", 0).may_be_zero({"y"}));
  all.push_back(uniform().dim("dims", 1001).set("low", 0.5));
  all.push_back(bernoulli().dim("dims", 1001).set("probability", 1));
  all.push_back(bernoulli().dim("dims", 1001).set("probability", 0));
  return all;
}

std::vector<Case> bench() {
  std::vector<Case> all;
  for (const Case& law : {uniform(), normal(), bernoulli()}) all.push_back(Case(law).dim("dims", {4096, 2048}));
  return all;
}

std::vector<Case> bench_cuda() {
  std::vector<Case> all;
  for (const Case& law : {uniform(), normal(), bernoulli()}) all.push_back(Case(law).dim("dims", {16384, 8192}));
  return all;
}

// Wrong kernels that the cases must catch.
void stream_forgotten(const void* p) {
  Args a = *static_cast<const Args*>(p);
  a.stream = 0;
  oracle<float>(a);
}
void first_index_forgotten(const void* p) {
  Args a = *static_cast<const Args*>(p);
  a.first_index = 0;
  oracle<float>(a);
}
void truncation_forgotten(const void* p) {
  Args a = *static_cast<const Args*>(p);
  a.truncate = 0;
  oracle<float>(a);
}
void variance_for_deviation(const void* p) {
  Args a = *static_cast<const Args*>(p);
  a.std *= a.std;
  oracle<float>(a);
}
void counter_restarts(const void* p) {
  const auto& a = *static_cast<const Args*>(p);
  oracle<float>(a);
  const auto y = values_of<float>(a.y);
  for (int64_t i = 1024; i < y.count; ++i) *y[i] = *y[i - 1024];
}

Case large() { return normal().dim("dims", 1).dtype("y", TC_DTYPE_BF16); }
void place(Case& one, int64_t index) { one.set("first_index", static_cast<double>(index)); }

}  // namespace

extern const testing::OpCases cases;
const testing::OpCases cases = {
    .name = "random",
    .passes = {testing::pass_cases<Args, oracle<double>, oracle<float>>("random")},
    .list = list,
    .bench = bench,
    .mutants = {{"stream forgotten", "random", stream_forgotten},
                {"first_index forgotten", "random", first_index_forgotten},
                {"truncation forgotten", "random", truncation_forgotten},
                {"variance taken for standard deviation", "random", variance_for_deviation},
                {"the counter starts anew in every block", "random", counter_restarts}},
    .bench_cuda = bench_cuda,
    .large = large,
    .place = place,
};

}  // namespace tc::ops::random
