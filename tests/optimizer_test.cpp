// AdamW, gradient norm and clipping: exact numbers, bits, and the faults that other libraries had. PyTorch's values are
// in golden_test.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "traincore/core/numeric.h"
#include "traincore/cpu/tensor_run.h"
#include "traincore/ops/adamw/adamw.h"
#include "traincore/ops/grad_norm/grad_norm.h"

namespace {

using tc::bf16;
using tc::f16;
using tc::TensorRun;

template <class T>
tc_tensor view(std::vector<T>& values) {
  const auto n = static_cast<int64_t>(values.size());
  return tc_tensor_dense(values.data(), tc::dtype_of<T>, 1, &n);
}
template <class T>
tc_tensor scalar(T& value) {
  return tc_tensor_dense(&value, tc::dtype_of<T>, 0, nullptr);
}
template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}
uint32_t bits_of(float f) { return __builtin_bit_cast(uint32_t, f); }

std::vector<float> normal(size_t n, unsigned seed, float scale = 1) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> law(0, scale);
  std::vector<float> values(n);
  for (float& v : values) v = law(generator);
  return values;
}

// One parameter tensor with its gradient and moments.
template <class P, class G>
struct Parameter {
  std::vector<P> p;
  std::vector<G> g;
  std::vector<float> m = std::vector<float>(p.size()), v = std::vector<float>(p.size());
  tc_tensor views[4];

  // Arguments of a step on this tensor; they point into this object.
  tcx_adamw_args args(double lr, int64_t step) {
    views[0] = view(p), views[1] = view(g), views[2] = view(m), views[3] = view(v);
    tcx_adamw_args a = tcx_adamw_args_default();
    a.params = &views[0], a.grads = &views[1], a.m = &views[2], a.v = &views[3];
    a.params_count = a.grads_count = a.m_count = a.v_count = 1;
    a.lr = lr, a.step = step;
    return a;
  }
};

TEST(Adamw, DecayIsDecoupledAndActsOnTheOldParameter) {
  Parameter<float, float> x{{1.f}, {0.1f}};
  tcx_adamw_args a = x.args(1e-3, 1);
  a.weight_decay = 0.1;
  tc::adamw(a);
  EXPECT_NEAR(x.p[0], 0.9989000001, 6e-8);
  EXPECT_NEAR(x.m[0], 0.01, 1e-9);
  EXPECT_NEAR(x.v[0], 1e-5, 1e-12);
  x.g[0] = -0.2f, a.step = 2;
  tc::adamw(a);
  EXPECT_NEAR(x.p[0], 0.999166213604, 6e-8);
  EXPECT_NEAR(x.m[0], -0.011, 1e-9);
  EXPECT_NEAR(x.v[0], 4.999e-5, 1e-11);
}

TEST(Adamw, BiasCorrectionHoldsAtLargeSteps) {
  for (const auto& [step, bias2] : {std::pair<int64_t, double>{255, 0.2251823635},
                                    {256, 0.2259571811},
                                    {257, 0.2267312240},
                                    {1000, 0.6323045752},
                                    {2049, 0.8712683384},
                                    {100000, 1},
                                    {1000000, 1}}) {
    Parameter<float, float> x{{0.f}, {1.f}};
    tcx_adamw_args a = x.args(1, step);
    a.beta1 = 0, a.eps = 1e-20;
    tc::adamw(a);  // from zero moments the step is sqrt(bias2 / (1 - beta2))
    EXPECT_NEAR(-x.p[0] / std::sqrt(bias2 / 0.001), 1, 3e-7) << step;
  }
}

TEST(Adamw, StepBelowOneIsRefused) {
  Parameter<float, float> x{{1.f}, {1.f}};
  tcx_adamw_args a = x.args(1, 0);
  EXPECT_EQ(tcx_adamw(&a, nullptr), TC_ERR_INVALID_ARG);
  EXPECT_STREQ(tc_last_error(), "adamw: step is 0, but must be >= 1: the first step is 1");
  int64_t step = 0;
  a.step_tensor = scalar(step);
  EXPECT_EQ(tcx_adamw(&a, nullptr), TC_ERR_INVALID_ARG);
  EXPECT_STREQ(tc_last_error(), "adamw: step_tensor holds 0, but must be >= 1: the first step is 1");
  EXPECT_EQ(x.p[0], 1.f);
  EXPECT_EQ(x.m[0], 0.f);
}

TEST(Adamw, TensorsOfNumbersGiveTheSameBitsAsNumbers) {
  Parameter<float, float> x{normal(100, 1), normal(100, 2)}, y = x;
  for (int64_t step = 1; step < 6; ++step) {
    float lr = 0.01f / static_cast<float>(step), clip = 0.5f, found_inf = 0;
    tcx_adamw_args a = x.args(lr, step), b = y.args(0, 0);
    a.clip = clip;
    b.lr_tensor = scalar(lr), b.step_tensor = scalar(step), b.clip_tensor = scalar(clip);
    b.found_inf_tensor = scalar(found_inf);
    tc::adamw(a), tc::adamw(b);
  }
  EXPECT_TRUE(same_bits(x.p, y.p) && same_bits(x.m, y.m) && same_bits(x.v, y.v));
}

// A step of exactly lr: without memory the direction is the gradient's sign.
template <class P>
std::vector<P> after_100_steps_of_a_thousandth(size_t n, int32_t rounding) {
  Parameter<P, float> x{std::vector<P>(n, P(1.f)), std::vector<float>(n, 1.f)};
  for (int64_t step = 1; step <= 100; ++step) {
    tcx_adamw_args a = x.args(1e-3, step);
    a.beta1 = a.beta2 = 0, a.rounding = rounding, a.seed = rounding ? 3 : 0;
    tc::adamw(a);
  }
  return x.p;
}

TEST(Adamw, SmallStepsOfBf16ParametersVanishOrSurviveAsDocumented) {
  EXPECT_NEAR(after_100_steps_of_a_thousandth<float>(1, TC_ROUND_NEAREST)[0], 0.9, 1e-5);
  EXPECT_EQ(float(after_100_steps_of_a_thousandth<bf16>(1, TC_ROUND_NEAREST)[0]), 1.f);
  double sum = 0;
  for (const bf16 p : after_100_steps_of_a_thousandth<bf16>(100000, TC_ROUND_STOCHASTIC)) sum += float(p);
  EXPECT_NEAR(sum / 100000, 0.9, 1e-3);
}

TEST(Adamw, StochasticRoundingDependsOnSeedStepAndIndexAlone) {
  const size_t n = 5000;
  std::vector<bf16> start(n);
  const std::vector<float> values = normal(n, 1);
  for (size_t i = 0; i < n; ++i) start[i] = bf16(values[i]);
  Parameter<bf16, float> whole{start, normal(n, 2)}, parts = whole, other = whole;
  tcx_adamw_args a = whole.args(1e-3, 7);
  a.rounding = TC_ROUND_STOCHASTIC, a.seed = 5;
  tc::adamw(a);
  const int64_t cut = 2051;
  for (const auto& [begin, length] : {std::pair<int64_t, int64_t>{0, cut}, {cut, int64_t{n} - cut}}) {
    tcx_adamw_args b = parts.args(1e-3, 7);
    b.rounding = TC_ROUND_STOCHASTIC, b.seed = 5, b.first_index = begin;
    for (tc_tensor& t : parts.views) {
      t.data = static_cast<std::byte*>(t.data) + begin * static_cast<int64_t>(tc_dtype_size(t.dtype));
      t.shape[0] = length;
    }
    tc::adamw(b);
  }
  EXPECT_TRUE(same_bits(whole.p, parts.p));
  tcx_adamw_args c = other.args(1e-3, 7);
  c.rounding = TC_ROUND_STOCHASTIC, c.seed = 6;
  tc::adamw(c);
  EXPECT_FALSE(same_bits(whole.p, other.p));
}

TEST(Adamw, SplitParametersKeepEveryFiniteNumber) {
  const size_t n = 1 << 16;
  std::mt19937 generator(1);
  std::vector<float> exact;
  std::vector<bf16> high;
  std::vector<int16_t> low;
  for (uint32_t h = 0; h < n; ++h)
    for (const uint32_t l : {0x8000u, 0x7fffu, 0u, 0xffffu, uint32_t(generator() & 0xffff)}) {
      const uint32_t bits = h << 16 | l;
      const float value = __builtin_bit_cast(float, bits);
      if (!std::isfinite(value)) continue;
      bf16 upper;
      upper.bits = static_cast<uint16_t>((bits + 0x8000u) >> 16);
      exact.push_back(value), high.push_back(upper), low.push_back(static_cast<int16_t>(bits));
    }
  Parameter<bf16, float> x{high, std::vector<float>(high.size())};
  tcx_adamw_args a = x.args(0, 1);
  tc_tensor low_view = view(low);
  a.params_low = &low_view, a.params_low_count = 1;
  tc::adamw(a);
  for (size_t i = 0; i < exact.size(); ++i) {
    const uint32_t bits = (uint32_t{x.p[i].bits} << 16) + static_cast<uint32_t>(int32_t{low[i]});
    ASSERT_EQ(bits, bits_of(exact[i])) << i;
    ASSERT_EQ(x.p[i].bits, high[i].bits) << i;
  }
}

TEST(Adamw, SplitParametersMoveAsF32DoToTheBit) {
  const size_t n = 3001;
  Parameter<float, f16> exact{normal(n, 1, 0.02f), std::vector<f16>(n)};
  Parameter<bf16, f16> split{std::vector<bf16>(n), exact.g};
  std::vector<int16_t> low(n);
  for (size_t i = 0; i < n; ++i) {
    split.p[i].bits = static_cast<uint16_t>((bits_of(exact.p[i]) + 0x8000u) >> 16);
    low[i] = static_cast<int16_t>(bits_of(exact.p[i]));
  }
  tc_tensor low_view = view(low);
  for (int64_t step = 1; step <= 20; ++step) {
    const std::vector<float> g = normal(n, 100 + static_cast<unsigned>(step));
    for (size_t i = 0; i < n; ++i) exact.g[i] = split.g[i] = f16(g[i]);
    tcx_adamw_args a = exact.args(1e-3, step), b = split.args(1e-3, step);
    a.weight_decay = b.weight_decay = 0.1;
    b.params_low = &low_view, b.params_low_count = 1;
    tc::adamw(a), tc::adamw(b);
  }
  for (size_t i = 0; i < n; ++i)
    ASSERT_EQ((uint32_t{split.p[i].bits} << 16) + static_cast<uint32_t>(int32_t{low[i]}), bits_of(exact.p[i])) << i;
}

// Thirty thousand tensors of 1 to 17 elements, in one memory each for p, g, m and v.
struct Crowd {
  static constexpr size_t kCount = 30000;
  std::vector<float> memory[4] = {normal(17 * kCount, 1), normal(17 * kCount, 2), normal(17 * kCount, 3),
                                  std::vector<float>(17 * kCount, 0.5f)};
  std::vector<tc_tensor> views[4];
  Crowd() {
    for (int list = 0; list < 4; ++list)
      for (size_t i = 0; i < kCount; ++i) {
        const auto n = static_cast<int64_t>(1 + i * 7 % 17);
        views[list].push_back(tc_tensor_dense(&memory[list][17 * i], TC_DTYPE_F32, 1, &n));
      }
  }
  tcx_adamw_args args(size_t first, size_t count) {
    tcx_adamw_args a = tcx_adamw_args_default();
    a.params = &views[0][first], a.grads = &views[1][first], a.m = &views[2][first], a.v = &views[3][first];
    a.params_count = a.grads_count = a.m_count = a.v_count = static_cast<int64_t>(count);
    a.lr = 1e-3, a.step = 3, a.weight_decay = 0.1;
    return a;
  }
};

TEST(Adamw, ThirtyThousandTensorsGiveTheBitsOfAsManyCalls) {
  Crowd alone;
  for (size_t i = 0; i < Crowd::kCount; ++i) tc::adamw(alone.args(i, 1));
  for (const int threads : {1, 3}) {
    Crowd together;
    tc_exec exec = tc_exec_default();
    exec.threads = threads;
    tc::adamw(together.args(0, Crowd::kCount), exec);
    for (int list = 0; list < 4; ++list) EXPECT_TRUE(same_bits(together.memory[list], alone.memory[list])) << list;
  }
}

// Without the memory: the blocks of AdamW and of the gradient norm reach the last element of 2^31 + 8.
TEST(TensorRun, PositionsBeyondTwoToThe31) {
  const int64_t sizes[] = {5, (int64_t{1} << 31) + 8, 3};
  tc_tensor tensors[3];
  for (int i = 0; i < 3; ++i) tensors[i] = tc_tensor_dense(nullptr, TC_DTYPE_F32, 1, &sizes[i]);
  int64_t starts[4], covered[3] = {};
  const TensorRun run(tensors, 3, starts);
  for (int64_t block = 0; block < run.blocks(); ++block)
    run.for_pieces(block, [&](int64_t tensor, int64_t begin, int64_t end) {
      EXPECT_EQ(begin, covered[tensor]);
      covered[tensor] = end;
    });
  for (int i = 0; i < 3; ++i) EXPECT_EQ(covered[i], sizes[i]);
}

TEST(Adamw, FoundInfWritesNothing) {
  Parameter<float, f16> x{normal(50, 1), std::vector<f16>(50, f16(INFINITY))};
  const Parameter<float, f16> before = x;
  std::vector<bf16> copy(50, bf16(7.f));
  tc_tensor copy_view = view(copy);
  int64_t nonfinite = 3;
  tcx_adamw_args a = x.args(1e-3, 1);
  a.copy_out = &copy_view, a.copy_out_count = 1, a.found_inf_tensor = scalar(nonfinite);
  tc::adamw(a);
  EXPECT_TRUE(same_bits(x.p, before.p) && same_bits(x.m, before.m) && same_bits(x.v, before.v));
  EXPECT_EQ(float(copy[49]), 7.f);
  nonfinite = 0;
  tc::adamw(a);  // without the flag it is not hidden
  EXPECT_TRUE(std::isnan(x.p[0]) && std::isnan(float(copy[0])));
}

TEST(Adamw, ScaledGradientsAreUnscaledOnceAndClippedAsTrueOnes) {
  const size_t n = 3000;
  Parameter<float, float> truth{normal(n, 1), normal(n, 2, 0.1f)};
  Parameter<float, f16> scaled{truth.p, std::vector<f16>(n)};
  for (size_t i = 0; i < n; ++i) {
    scaled.g[i] = f16(truth.g[i] * 65536);
    truth.g[i] = float(scaled.g[i]) / 65536;
  }
  float norm[2], clip[2];
  int64_t nonfinite[2];
  tcx_adamw_args steps[] = {truth.args(1e-3, 1), scaled.args(1e-3, 1)};
  for (int i = 0; i < 2; ++i) {
    tcx_grad_norm_args g = tcx_grad_norm_args_default();
    g.grads = steps[i].grads, g.grads_count = 1, g.max_norm = 1, g.scale = i == 0 ? 1 : 1 / 65536.0;
    g.norm = scalar(norm[i]), g.clip = scalar(clip[i]), g.nonfinite = scalar(nonfinite[i]);
    tc::grad_norm(g);
    steps[i].clip_tensor = scalar(clip[i]), steps[i].found_inf_tensor = scalar(nonfinite[i]);
    tc::adamw(steps[i]);
  }
  EXPECT_EQ(norm[0], norm[1]);
  EXPECT_LT(clip[0], 1.f);
  EXPECT_EQ(clip[0], clip[1] * 65536);
  EXPECT_TRUE(same_bits(truth.p, scaled.p) && same_bits(truth.m, scaled.m) && same_bits(truth.v, scaled.v));
}

TEST(Adamw, WhatIsNotServedIsRefusedByName) {
  Parameter<float, float> x{{1.f}, {1.f}};
  const tcx_adamw_args valid = x.args(1e-3, 1);
  const auto refuse = [&](tc_status_t status, const char* sentence, auto spoil) {
    tcx_adamw_args a = valid;
    spoil(a);
    EXPECT_EQ(tcx_adamw(&a, nullptr), status);
    EXPECT_STREQ(tc_last_error(), sentence);
    EXPECT_EQ(x.p[0], 1.f);
  };
  refuse(TC_ERR_KERNEL_NOT_FOUND, "adamw: no variant serves decay = l2 (added to the gradient); decoupled is served",
         [](auto& a) { a.decay = TC_DECAY_L2; });
  refuse(TC_ERR_KERNEL_NOT_FOUND, "adamw: no variant serves maximize; negate the loss",
         [](auto& a) { a.maximize = 1; });
  refuse(TC_ERR_KERNEL_NOT_FOUND, "adamw: no variant serves amsgrad; without it is served",
         [](auto& a) { a.amsgrad = 1; });
  refuse(TC_ERR_INVALID_ARG, "adamw: weight_decay is -0.1, but must be >= 0", [](auto& a) { a.weight_decay = -0.1; });
  refuse(TC_ERR_INVALID_ARG, "adamw: beta2 is 1, but must be in [0, 1)", [](auto& a) { a.beta2 = 1; });
  refuse(TC_ERR_INVALID_ARG, "adamw: eps is 1e-60, but must be > 0 in f32", [](auto& a) { a.eps = 1e-60; });
  refuse(TC_ERR_INVALID_ARG, "adamw: seed or first_index is set, but belongs to rounding = stochastic",
         [](auto& a) { a.seed = 1; });
  refuse(TC_ERR_UNSUPPORTED_DTYPE, "adamw: params[0] has dtype f32, but rounding = stochastic is for bf16 parameters",
         [](auto& a) { a.rounding = TC_ROUND_STOCHASTIC; });
  float lr = 1;
  refuse(TC_ERR_INVALID_ARG, "adamw: lr is 0.001, but must be 0 where lr_tensor is given",
         [&](auto& a) { a.lr_tensor = scalar(lr); });
}

TEST(GradNorm, HalfPrecisionSquaresDoNotOverflowNorSmallOnesVanish) {
  std::vector<f16> large(1000000, f16(5000.f));
  std::vector<float> small(16, 1e-30f);
  float norm = 0;
  tc_tensor grads = view(large);
  tcx_grad_norm_args a = tcx_grad_norm_args_default();
  a.grads = &grads, a.grads_count = 1, a.norm = scalar(norm);
  tc::grad_norm(a);
  EXPECT_EQ(norm, 5e6f);
  grads = view(small);
  tc::grad_norm(a);
  EXPECT_EQ(norm, 4e-30f);
}

TEST(GradNorm, NonfiniteElementsAreCountedOverAllTensors) {
  std::vector<float> a = normal(40000, 1);
  std::vector<bf16> b(100, bf16(1.f));
  a[0] = INFINITY, a[20000] = NAN, a[39999] = -INFINITY, b[99] = bf16(NAN);
  tc_tensor views[] = {view(a), view(b)};
  float norm = 0, clip = 0, count = 0;
  tcx_grad_norm_args g = tcx_grad_norm_args_default();
  g.grads = views, g.grads_count = 2, g.max_norm = 1;
  g.norm = scalar(norm), g.clip = scalar(clip), g.nonfinite = scalar(count);
  tc::grad_norm(g);
  EXPECT_EQ(count, 4.f);
  EXPECT_TRUE(std::isnan(norm) && std::isnan(clip));
}

TEST(Clip, AFactorOfOneLeavesEveryBit) {
  std::vector<float> g = {1.f,
                          __builtin_bit_cast(float, 0x7f800001u)};  // a signalling NaN, which a product would quiet
  tc_tensor grads = view(g);
  float factor = 1;
  tcx_clip_args a = tcx_clip_args_default();
  a.grads = &grads, a.grads_count = 1, a.clip = scalar(factor);
  tc::clip(a);
  EXPECT_EQ(bits_of(g[1]), 0x7f800001u);
  factor = 0.5f;
  tc::clip(a);
  EXPECT_EQ(g[0], 0.5f);
}

}  // namespace
