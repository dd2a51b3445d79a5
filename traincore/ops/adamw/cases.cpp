// What check and bench run for AdamW. Exact values, many steps and split parameters are in tests/optimizer_test.cpp.
#include <algorithm>
#include <cmath>

#include "traincore/core/view.h"
#include "traincore/ops/adamw/adamw.h"
#include "traincore/testing/cases.h"

namespace tc::ops::adamw {

using Args = tcx_adamw_args;
template <class Real>
void oracle(const Args&);

namespace {

using testing::Case;
using testing::Effort;
using testing::Fill;
using Shapes = std::vector<std::vector<int64_t>>;

Case base(Shapes shapes) {
  return Case()
      .lists(std::move(shapes))
      .set("lr", 3e-3)
      .set("weight_decay", 0.1)
      .set("step", 3)
      .fill("m", testing::normal(0.3))
      .fill("v", testing::uniform(0, 2));
}

// Many small tensors, none of the same size as its neighbour.
Shapes crowd(int64_t count) {
  Shapes shapes;
  for (int64_t i = 0; i < count; ++i) shapes.push_back({1 + i * 7 % 17});
  return shapes;
}

// Numbers whose update is exact in f32, so that the low halves can be compared as the integers they are.
Case split(const Case& c) {
  return Case(c)
      .with({"params_low"})
      .dtype("params", TC_DTYPE_BF16)
      .set("beta1", 0.5)
      .set("beta2", 0.5)
      .set("weight_decay", 0)
      .set("lr", 0x1p-8)
      .set("eps", 0x1p-60)
      .set("step", 1)
      .fill("params", testing::uniform(0.6, 0.9))
      .fill("params_low", [](const Case&, testing::Random& r, int64_t) { return double(r.below(65536)) - 32768; })
      .fill("grads", testing::values({1, -2, 0.5, 4}))
      .fill("m", testing::constant(0))
      .fill("v", testing::constant(0));
}

std::vector<Case> list(Effort effort) {
  std::vector<Case> all;
  for (const int64_t n : {1, 2, 3, 17, 33, 129, 1001, 2049, 16384, 16385}) all.push_back(base({{n}}));
  if (effort != Effort::quick) {
    for (const int64_t n : {65537, 1 << 20}) all.push_back(base({{n}}));
    all.push_back(base(crowd(2000)));
  }
  if (effort == Effort::full) all.push_back(base({{1 << 26}}));
  const Case some = base({{3, 5, 7}, {0}, {}, {2050}, {1}, {257, 129}, {2, 0, 3}, {31}});
  all.push_back(some);
  all.push_back(base({}));
  all.push_back(base(crowd(300)));
  for (const int32_t copy : {TC_DTYPE_BF16, TC_DTYPE_F16})
    all.push_back(Case(some).with({"copy_out"}).dtype("copy_out", copy));
  all.push_back(Case(some).with({"copy_out"}));
  all.push_back(Case(some).dtype("params", TC_DTYPE_BF16));
  all.push_back(Case(some).dtype("params[3]", TC_DTYPE_BF16).dtype("grads[5]", TC_DTYPE_F16));
  all.push_back(Case(some).dtype("params", TC_DTYPE_BF16).set("rounding", TC_ROUND_STOCHASTIC).set("seed", 5));
  all.push_back(split(some));
  all.push_back(Case(some).layout({"params", "grads", "m", "v"}, testing::Layout::offset_by_one));
  all.push_back(Case(some).set("clip", 0.125));
  all.push_back(Case(some).set("found_inf", 1));
  all.push_back(Case(some)
                    .with({"lr_tensor", "step_tensor", "clip_tensor", "found_inf_tensor"})
                    .set("lr", 0)
                    .set("step", 0)
                    .fill("lr_tensor", testing::constant(0.01))
                    .fill("step_tensor", testing::constant(7))
                    .fill("clip_tensor", testing::constant(0.3))
                    .fill("found_inf_tensor", testing::constant(0)));
  all.push_back(Case(some)
                    .with({"found_inf_tensor"})
                    .dtype("found_inf_tensor", TC_DTYPE_I64)
                    .fill("found_inf_tensor", testing::constant(2)));
  for (const double step : {1.0, 256.0, 257.0, 2049.0, 1e6}) all.push_back(Case(some).set("step", step));
  all.push_back(Case(some).set("beta1", 0).set("beta2", 0));
  all.push_back(Case(some).set("lr", 0));
  all.push_back(Case(some)
                    .fill("grads", testing::constant(0))
                    .fill("m", testing::constant(0))
                    .fill("v", testing::constant(0))
                    .may_be_zero({"m", "v"}));
  all.push_back(Case(some)
                    .fill("grads", testing::normal(1e-6))
                    .fill("m", testing::normal(1e-6))
                    .fill("v", testing::uniform(0, 1e-12)));
  all.push_back(Case(some)
                    .fill("grads", testing::normal(8e3))
                    .fill("m", testing::normal(8e3))
                    .fill("v", testing::uniform(0, 1e9)));
  return all;
}

std::vector<Case> bench() {
  const Case large = base({{1 << 23}});
  return {large, Case(large).with({"copy_out"}).dtype("copy_out", TC_DTYPE_BF16), base(crowd(3000))};
}

std::vector<Case> bench_cuda() {
  const Case large = base({{1 << 28}}), layers = base(Shapes(16, {4096, 4096}));
  return {large, split(large),
          Case(layers).with({"copy_out"}).dtype("copy_out", TC_DTYPE_BF16).dtype("grads", TC_DTYPE_BF16),
          Case(layers).dtype("params", TC_DTYPE_BF16).set("rounding", TC_ROUND_STOCHASTIC).set("seed", 5)};
}

// Each new value is a difference that can cancel: the magnitudes of its terms, the old ones bounded through the new.
testing::Terms terms(std::string_view field, const void* exact_args) {
  const auto& a = *static_cast<const Args*>(exact_args);
  const double bias1 = 1 - std::pow(a.beta1, a.step), bias2 = 1 - std::pow(a.beta2, a.step);
  double largest = 0;
  for (int64_t t = 0; t < a.params_count; ++t)
    for (int64_t i = 0; i < element_count(a.params[t]); ++i) {
      const auto at = [&](const tc_tensor* list) { return static_cast<const double*>(list[t].data)[i]; };
      const double direction = at(a.m) / bias1 / (std::sqrt(at(a.v) / bias2) + a.eps);
      const double magnitude = field == "m"   ? std::abs(at(a.m)) + 2 * std::abs((1 - a.beta1) * a.clip * at(a.grads))
                               : field == "v" ? at(a.v)
                                              : std::abs(at(a.params)) + 2 * a.lr * std::abs(direction);
      largest = std::max(largest, magnitude);
    }
  return {2, largest};
}

// Wrong kernels that the cases must catch.
void coupled_decay(const void* p) {  // L2: the decay goes through the moments
  Args a = *static_cast<const Args*>(p);
  for (int64_t t = 0; t < a.params_count; ++t)
    for (int64_t i = 0; i < element_count(a.params[t]); ++i)
      static_cast<float*>(a.grads[t].data)[i] +=
          static_cast<float>(a.weight_decay) * static_cast<const float*>(a.params[t].data)[i];
  a.weight_decay = 0;
  oracle<float>(a);
}
void decay_without_rate(const void* p) {
  Args a = *static_cast<const Args*>(p);
  a.weight_decay /= a.lr > 0 ? a.lr : 1;
  oracle<float>(a);
}
void step_counted_from_zero(const void* p) {
  Args a = *static_cast<const Args*>(p);
  a.step += 1;
  oracle<float>(a);
}
void clip_forgotten(const void* p) {
  Args a = *static_cast<const Args*>(p);
  a.clip = 1;
  oracle<float>(a);
}
void eps_inside_the_root(const void* p) {
  Args a = *static_cast<const Args*>(p);
  a.eps = std::sqrt(a.eps);
  oracle<float>(a);
}
void found_inf_ignored(const void* p) {
  Args a = *static_cast<const Args*>(p);
  a.found_inf = 0;
  oracle<float>(a);
}

// The last tensor grows.
Case large() { return split(base({{3, 5, 7}, {1 << 20}})); }

}  // namespace

extern const testing::OpCases cases;
const testing::OpCases cases = {
    .name = "adamw",
    .passes = {testing::pass_cases<Args, oracle<double>, oracle<float>>("adamw", terms)},
    .list = list,
    .bench = bench,
    .mutants = {{"decay coupled with the gradient", "adamw", coupled_decay},
                {"decay not multiplied by lr", "adamw", decay_without_rate},
                {"step counted from 0", "adamw", step_counted_from_zero},
                {"clip forgotten", "adamw", clip_forgotten},
                {"eps inside the root", "adamw", eps_inside_the_root},
                {"found_inf ignored", "adamw", found_inf_ignored}},
    .bench_cuda = bench_cuda,
    .large = large,
};

}  // namespace tc::ops::adamw
