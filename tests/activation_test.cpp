// Activations: published values, exact points, and what the schema-driven checks cannot say.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/tensors.h"
#include "traincore/ops/activation/activation.h"

namespace tc {
namespace {

struct Curve {
  std::vector<float> value, slope;
};
Curve curve(int32_t kind, std::vector<float> x) {
  Curve c{std::vector<float>(x.size()), std::vector<float>(x.size())};
  std::vector<float> ones(x.size(), 1);
  auto a = tcx_activation_backward_args_default();
  a.kind = kind, a.dy = view(ones), a.gate = view(x), a.y = view(c.value), a.dgate = view(c.slope);
  activation_backward(a);
  return c;
}

TEST(Activation, SiluFarOut) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const Curve c = curve(TC_ACTIVATION_SILU, {-20, -88, -200, -3e38f, -kInf, 100, 3e38f});
  EXPECT_NEAR(c.value[0] / -4.1223072e-8, 1, 1e-6);
  EXPECT_NEAR(c.value[1] / -5.328e-37, 1, 1e-3);
  EXPECT_NEAR(c.slope[0] / -3.9161919e-8, 1, 1e-6);
  for (int i = 2; i < 5; ++i) {
    EXPECT_EQ(c.value[i], 0);
    EXPECT_EQ(c.slope[i], 0);
  }
  EXPECT_EQ(c.value[5], 100);
  EXPECT_EQ(c.slope[5], 1);
  EXPECT_EQ(c.value[6], 3e38f);
  EXPECT_EQ(c.slope[6], 1);
}

TEST(Activation, FormsOfGelu) {
  const Curve by_tanh = curve(TC_ACTIVATION_GELU_TANH, {1, -3}), by_erf = curve(TC_ACTIVATION_GELU_ERF, {1, -3});
  EXPECT_NEAR(by_tanh.value[0], 0.8411919906, 1e-7);
  EXPECT_NEAR(by_tanh.value[1], -0.003637392082, 1e-9);
  EXPECT_NEAR(by_erf.value[0], 0.8413447461, 1e-7);
  EXPECT_NEAR(by_erf.value[1], -0.004049694095, 2e-7);
}

TEST(Activation, SlopesAtZeroAreExact) {
  const float want[] = {0, 0.5f, 0.25f, 0.5f, 0.5f, 0.5f, 0, 0, 1};
  for (int kind = TC_ACTIVATION_SILU; kind <= TC_ACTIVATION_TANH; ++kind) {
    const Curve c = curve(kind, {0.0f, -0.0f});
    EXPECT_EQ(c.slope[0], want[kind]) << kind;
    EXPECT_EQ(c.slope[1], want[kind]) << kind;
  }
}

TEST(Activation, SlopesAreFinite) {
  std::vector<float> x = {3e38f, -3e38f};
  for (float v = 1e-38f; v < 3e38f; v *= 1.7f) x.push_back(v), x.push_back(-v);
  for (int kind = TC_ACTIVATION_SILU; kind <= TC_ACTIVATION_TANH; ++kind)
    for (const float slope : curve(kind, x).slope) EXPECT_TRUE(std::isfinite(slope)) << kind;
}

TEST(Activation, SlopeOfSquaredReluStopsAtALargestNumber) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const Curve c = curve(TC_ACTIVATION_RELU2, {1.6e38f, 3e38f, kInf, -kInf});
  EXPECT_EQ(c.slope[0], 3.2e38f);
  EXPECT_EQ(c.slope[1], 0x1.fep127f);
  EXPECT_EQ(c.slope[2], kInf);  // what is not finite stays so
  EXPECT_EQ(c.slope[3], 0);
}

TEST(Activation, GeluByTanhIsStraightFromTenOn) {
  std::vector<float> x;
  for (float v = 10; v < 13; v += 1 / 64.f) x.push_back(v);
  const Curve above = curve(TC_ACTIVATION_GELU_TANH, x);
  EXPECT_EQ(above.value, x);
  EXPECT_EQ(above.slope, std::vector<float>(x.size(), 1));
  for (float& v : x) v = -v;
  const Curve below = curve(TC_ACTIVATION_GELU_TANH, x);
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_LE(std::abs(below.value[i]), 1.3e-37f) << x[i];
    EXPECT_LE(std::abs(below.slope[i]), 3e-36f) << x[i];
    const bool is_far = x[i] <= -12;
    EXPECT_TRUE(!is_far || (below.value[i] == 0 && below.slope[i] == 0)) << x[i];
  }
}

TEST(Activation, OutputMayBeBothInputs) {
  std::vector<float> h = normal(1000, 1), want(1000);
  auto a = tcx_activation_forward_args_default();
  a.kind = TC_ACTIVATION_SILU, a.gate = a.up = view(h), a.y = view(want);
  activation_forward(a);
  a.y = a.gate;
  activation_forward(a);
  EXPECT_EQ(h, want);
}

TEST(Activation, HalvesOfAPackedTensor) {
  constexpr int64_t kRows = 4, kCols = 2304;
  std::vector<float> packed = normal(2 * kRows * kCols, 2), dy = normal(kRows * kCols, 3), gate, up;
  for (int64_t r = 0; r < kRows; ++r) {
    const auto row = packed.begin() + 2 * kCols * r;
    gate.insert(gate.end(), row, row + kCols);
    up.insert(up.end(), row + kCols, row + 2 * kCols);
  }
  std::vector<float> dgate(gate.size()), dup(gate.size());
  auto a = tcx_activation_backward_args_default();
  a.kind = TC_ACTIVATION_GELU_TANH, a.dy = view(dy, {kRows, kCols});
  a.gate = view(gate, {kRows, kCols}), a.up = view(up, {kRows, kCols});
  a.dgate = view(dgate, {kRows, kCols}), a.dup = view(dup, {kRows, kCols});
  activation_backward(a);
  a.gate.data = packed.data(), a.up.data = packed.data() + kCols;
  a.gate.stride[0] = a.up.stride[0] = 2 * kCols;
  a.dgate = a.gate, a.dup = a.up;
  activation_backward(a);
  for (int64_t r = 0; r < kRows; ++r)
    for (int64_t c = 0; c < kCols; ++c) {
      ASSERT_EQ(packed[2 * kCols * r + c], dgate[kCols * r + c]);
      ASSERT_EQ(packed[2 * kCols * r + kCols + c], dup[kCols * r + c]);
    }
}

}  // namespace
}  // namespace tc
