// Vector maths of traincore/cpu, on every SIMD target that this machine can run.
#include <cmath>
#include <numbers>
#include <random>
#include <vector>

#include "simd_test.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/cpu_math_test.cpp"
#include "hwy/foreach_target.h"
//
#include "traincore/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tc::HWY_NAMESPACE {
namespace {

int64_t lane_count() { return lanes(); }

template <class F>
void map(const float* x, int64_t n, float* y, F f) {
  for_row(n, [&](auto at) HWY_ATTR { at.store(y, f(at.load(x))); });
}
void map_exp(const float* x, int64_t n, float* y) {
  map(x, n, y, [](V v) HWY_ATTR { return exp(v); });
}
void map_log(const float* x, int64_t n, float* y) {
  map(x, n, y, [](V v) HWY_ATTR { return log(v); });
}
void map_tanh(const float* x, int64_t n, float* y) {
  map(x, n, y, [](V v) HWY_ATTR { return tanh(v); });
}
void map_sigmoid(const float* x, int64_t n, float* y) {
  map(x, n, y, [](V v) HWY_ATTR { return sigmoid(v); });
}
void map_exp_negative(const float* x, int64_t n, float* y) {
  map(x, n, y, [](V v) HWY_ATTR { return exp_negative(hn::Neg(hn::Abs(v))); });
}
void map_normal_cdf(const float* x, int64_t n, float* y) {
  map(x, n, y, [](V v) HWY_ATTR { return NormalDistribution(at_most(at_least(v, set(-15.0f)), set(15.0f))).cdf; });
}
void map_bell(const float* x, int64_t n, float* y) {
  map(x, n, y, [](V v) HWY_ATTR { return NormalDistribution(at_most(at_least(v, set(-15.0f)), set(15.0f))).bell; });
}

}  // namespace
}  // namespace tc::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tc {
namespace {

HWY_EXPORT(lane_count);
HWY_EXPORT(map_exp);
HWY_EXPORT(map_log);
HWY_EXPORT(map_tanh);
HWY_EXPORT(map_sigmoid);
HWY_EXPORT(map_exp_negative);
HWY_EXPORT(map_normal_cdf);
HWY_EXPORT(map_bell);

using testing::bits_of;
using testing::float_of;
using testing::kInf;
using testing::kNaN;

class CpuMath : public testing::OnTarget {
 protected:
  int64_t lanes() const { return HWY_DYNAMIC_DISPATCH(lane_count)(); }
};
INSTANTIATE_TEST_SUITE_P(Targets, CpuMath, ::testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         testing::target_name);

struct Function {
  const char* name;
  double bound;  // ulp, as declared in math-inl.h
  void (*run)(const float*, int64_t, float*);
  double (*exact)(double);
};

const Function kFunctions[] = {
    {"exp", 1.1,
     [](const float* x, int64_t n, float* y) {
       HWY_DYNAMIC_DISPATCH(map_exp)
       (x, n, y);
     },
     [](double x) { return std::exp(x); }},
    {"log", 1.2,
     [](const float* x, int64_t n, float* y) {
       HWY_DYNAMIC_DISPATCH(map_log)
       (x, n, y);
     },
     [](double x) { return std::log(x); }},
    {"tanh", 1.6,
     [](const float* x, int64_t n, float* y) {
       HWY_DYNAMIC_DISPATCH(map_tanh)
       (x, n, y);
     },
     [](double x) { return std::tanh(x); }},
    {"sigmoid", 2.5,
     [](const float* x, int64_t n, float* y) {
       HWY_DYNAMIC_DISPATCH(map_sigmoid)
       (x, n, y);
     },
     [](double x) { return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)); }},
    {"exp_negative", 1.1,
     [](const float* x, int64_t n, float* y) {
       HWY_DYNAMIC_DISPATCH(map_exp_negative)
       (x, n, y);
     },
     [](double x) { return std::exp(-std::abs(x)); }},
    {"normal cdf", 7,
     [](const float* x, int64_t n, float* y) {
       HWY_DYNAMIC_DISPATCH(map_normal_cdf)
       (x, n, y);
     },
     [](double x) { return std::erfc(-std::clamp(x, -15.0, 15.0) / std::numbers::sqrt2) / 2; }},
    {"bell", 1.6,
     [](const float* x, int64_t n, float* y) {
       HWY_DYNAMIC_DISPATCH(map_bell)
       (x, n, y);
     },
     [](double x) { return std::exp(-std::pow(std::clamp(x, -15.0, 15.0), 2) / 2); }},
};
const Function& kExp = kFunctions[0];
const Function& kLog = kFunctions[1];
const Function& kTanh = kFunctions[2];
const Function& kSigmoid = kFunctions[3];

float evaluate(const Function& function, float x) {
  float y;
  function.run(&x, 1, &y);
  return y;
}

// |got - exact| in units in the last place of the exact result; 0 for the same non-finite value, inf for another.
double ulps(float got, double exact) {
  if (std::isnan(exact)) return std::isnan(got) ? 0 : HUGE_VAL;
  const float rounded = static_cast<float>(exact);
  if (std::isinf(got) && got == rounded) return 0;
  if (std::isinf(got) || std::isnan(got) || std::isinf(rounded)) return HUGE_VAL;
  return std::abs(got - exact) / std::ldexp(1, std::max(std::ilogb(exact), -126) - 23);
}

TEST_P(CpuMath, StaysWithinItsUlpBoundOnAllFloats) {
  constexpr uint64_t kStride = 997, kChunk = 1 << 14;
  std::vector<float> x, y(kChunk);
  const auto check = [&] {
    for (const Function& function : kFunctions) {
      function.run(x.data(), x.size(), y.data());
      for (size_t i = 0; i < x.size(); ++i) {
        ASSERT_LE(ulps(y[i], function.exact(x[i])), function.bound)
            << function.name << "(" << std::hexfloat << x[i] << ") = " << y[i];
      }
    }
  };
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += kStride) {
    x.push_back(float_of(static_cast<uint32_t>(bits)));
    if (x.size() < kChunk && bits + kStride < uint64_t{1} << 32) continue;
    check();
    if (HasFatalFailure()) return;
    x.clear();
  }
}

TEST_P(CpuMath, TakesSpecialValuesToTheirLimits) {
  for (const Function& function : kFunctions) {
    EXPECT_TRUE(std::isnan(evaluate(function, kNaN))) << function.name;
    EXPECT_TRUE(std::isnan(evaluate(function, -kNaN))) << function.name;
    EXPECT_TRUE(std::isnan(evaluate(function, float_of(0x7f800001)))) << function.name;
  }
  EXPECT_EQ(evaluate(kExp, 0.0f), 1.0f);
  EXPECT_EQ(evaluate(kExp, -kInf), 0.0f);
  EXPECT_EQ(evaluate(kExp, kInf), kInf);
  EXPECT_EQ(evaluate(kExp, 88.73f), kInf);
  EXPECT_EQ(evaluate(kExp, -104.0f), 0.0f);
  EXPECT_EQ(evaluate(kExp, -3e38f), 0.0f);
  EXPECT_EQ(evaluate(kExp, -103.9f), 0x1p-149f);
  EXPECT_EQ(evaluate(kLog, 1.0f), 0.0f);
  EXPECT_EQ(evaluate(kLog, 0.0f), -kInf);
  EXPECT_EQ(evaluate(kLog, -0.0f), -kInf);
  EXPECT_EQ(evaluate(kLog, kInf), kInf);
  EXPECT_TRUE(std::isnan(evaluate(kLog, -0x1p-149f)));
  EXPECT_TRUE(std::isnan(evaluate(kLog, -kInf)));
  EXPECT_EQ(evaluate(kSigmoid, 0.0f), 0.5f);
  EXPECT_EQ(evaluate(kSigmoid, kInf), 1.0f);
  EXPECT_EQ(evaluate(kSigmoid, -kInf), 0.0f);
  EXPECT_EQ(evaluate(kTanh, kInf), 1.0f);
  EXPECT_EQ(evaluate(kTanh, -kInf), -1.0f);
  EXPECT_EQ(evaluate(kTanh, 3e38f), 1.0f);
  EXPECT_EQ(bits_of(evaluate(kTanh, -0.0f)), bits_of(-0.0f));
  for (const float x : {0x1p-149f, 0.2774f, 0.2776f, 0.9999f, 1.0001f, 9.1f})
    EXPECT_EQ(evaluate(kTanh, -x), -evaluate(kTanh, x)) << x;
}

TEST_P(CpuMath, KeepsSubnormalResults) {
  for (float x = -103.9f; x < -87.0f; x += 0.37f) {
    EXPECT_LE(ulps(evaluate(kExp, x), std::exp(double{x})), kExp.bound) << x;
    EXPECT_LE(ulps(evaluate(kSigmoid, x), std::exp(double{x})), kSigmoid.bound) << x;
    EXPECT_GT(evaluate(kSigmoid, x), 0.0f) << x;
  }
}

TEST_P(CpuMath, GivesTheSameBitsInBodyAndTail) {
  std::mt19937 generator(7);
  std::normal_distribution<float> normal(0.0f, 4.0f);
  const int64_t n = 2 * lanes() + lanes() - 1;
  std::vector<float> x(n), y(n);
  for (float& value : x) value = normal(generator);
  for (const Function& function : kFunctions) {
    function.run(x.data(), n, y.data());
    for (int64_t i = 0; i < n; ++i) {
      EXPECT_EQ(bits_of(y[i]), bits_of(evaluate(function, x[i]))) << function.name << " " << x[i];
    }
  }
}

}  // namespace
}  // namespace tc
#endif
