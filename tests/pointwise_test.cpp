// cast, add, fill and random to the bit, on every SIMD target: what a tolerance of one unit in the last place lets pass.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "hwy/targets.h"
#include "traincore/core/numeric.h"
#include "traincore/core/random.h"
#include "traincore/ops/add/add.h"
#include "traincore/ops/cast/cast.h"
#include "traincore/ops/fill/fill.h"
#include "traincore/ops/random/random.h"

namespace {

using tc::bf16;
using tc::f16;

template <class T>
tc_tensor view(std::vector<T>& values) {
  const auto n = static_cast<int64_t>(values.size());
  return tc_tensor_dense(values.data(), tc::dtype_of<T>, 1, &n);
}

void choose(int64_t targets) {
  hwy::SetSupportedTargetsForTest(targets);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}
template <class F>
void on_every_target(F&& body) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    choose(target);
    body();
  }
  choose(0);
}

std::vector<float> random_values(const tcx_random_args& args, int64_t n) {
  std::vector<float> y(static_cast<size_t>(n));
  tcx_random_args a = args;
  a.y = view(y);
  tc::random(a);
  return y;
}

tcx_random_args normal_law(int64_t seed) {
  tcx_random_args a = tcx_random_args_default();
  a.distribution = TC_RANDOM_NORMAL;
  a.seed = seed;
  return a;
}

TEST(Cast, EveryBf16AndF16SurvivesF32) {
  const auto check = []<class T>(T) {
    std::vector<T> all(1 << 16), back(1 << 16);
    for (size_t i = 0; i < all.size(); ++i) all[i].bits = static_cast<uint16_t>(i);
    std::vector<float> wide(1 << 16);
    tcx_cast_args a = tcx_cast_args_default();
    a.x = view(all), a.y = view(wide);
    tc::cast(a);
    a.x = view(wide), a.y = view(back);
    tc::cast(a);
    for (size_t i = 0; i < all.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(wide[i]), std::bit_cast<uint32_t>(static_cast<float>(all[i]))) << i;
      ASSERT_EQ(back[i].bits, T(wide[i]).bits) << i;
    }
  };
  on_every_target([&] { check(bf16()), check(f16()); });
}

TEST(Cast, RoundsToNearestEven) {
  std::vector<float> x = {1 + 0x1p-8f, 1 + 0x3p-8f, 65519.f, 65520.f, 0x1p-25f, 0x1.000002p-25f, -0.f, 3.4e38f};
  std::vector<bf16> b(x.size());
  std::vector<f16> h(x.size());
  tcx_cast_args a = tcx_cast_args_default();
  a.x = view(x), a.y = view(b);
  tc::cast(a);
  a.y = view(h);
  tc::cast(a);
  EXPECT_EQ(float(b[0]), 1.f);
  EXPECT_EQ(float(b[1]), 1 + 0x1p-6f);
  EXPECT_EQ(float(b[7]), INFINITY);
  EXPECT_EQ(float(h[2]), 65504.f);
  EXPECT_EQ(float(h[3]), INFINITY);
  EXPECT_EQ(float(h[4]), 0.f);
  EXPECT_EQ(float(h[5]), 0x1p-24f);
  EXPECT_TRUE(std::signbit(float(h[6])));
}

TEST(Cast, TransposesWhatIsTooLargeForAChunk) {
  const int64_t rows = 70, cols = 129;
  std::vector<float> x(rows * cols);
  std::vector<bf16> y(rows * cols);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 251);
  const int64_t shape[] = {rows, cols};
  tcx_cast_args a = tcx_cast_args_default();
  a.x = tc_tensor_dense(x.data(), TC_DTYPE_F32, 2, shape);
  a.y = tc_tensor_dense(y.data(), TC_DTYPE_BF16, 2, shape);
  a.y.stride[0] = 1, a.y.stride[1] = rows;
  tc::cast(a);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c) ASSERT_EQ(float(y[c * rows + r]), x[r * cols + c]) << r << " " << c;
}

TEST(Add, AccumulatesBf16IntoF32WithoutRoundingTheSum) {
  std::vector<float> sum(5000, 1.f);
  std::vector<bf16> part(5000, bf16(0x1p-12f));  // vanishes in a bf16 sum
  tcx_add_args a = tcx_add_args_default();
  a.a = view(sum), a.b = view(part), a.y = view(sum);
  for (int i = 0; i < 4; ++i) tc::add(a);
  for (const float s : sum) ASSERT_EQ(s, 1 + 0x1p-10f);
}

TEST(Fill, RoundsOnceAndRefusesNan) {
  std::vector<bf16> y(3);
  tcx_fill_args a = tcx_fill_args_default();
  a.y = view(y);
  a.value = 1 + 0x3p-8;
  tc::fill(a);
  EXPECT_EQ(float(y[2]), 1 + 0x1p-6f);
  a.value = NAN;
  EXPECT_EQ(tcx_fill(&a, nullptr), TC_ERR_INVALID_ARG);
  EXPECT_EQ(float(y[2]), 1 + 0x1p-6f);
}

TEST(RandomOp, UniformAndBernoulliHaveTheBitsOfTheHeader) {
  on_every_target([] {
    for (const int64_t first : {0, 1, 2, 3, 5, 4095}) {
      tcx_random_args a = tcx_random_args_default();
      a.distribution = TC_RANDOM_UNIFORM;
      a.seed = -7, a.stream = int64_t{3} << 40, a.first_index = first, a.low = -3, a.high = 2;
      const std::vector<float> u = random_values(a, 5003);
      a.distribution = TC_RANDOM_BERNOULLI;
      a.low = 0, a.high = 1, a.probability = 0.25;
      const std::vector<float> b = random_values(a, 5003);
      const tc::Philox philox{static_cast<uint64_t>(a.seed), static_cast<uint64_t>(a.stream)};
      for (size_t i = 0; i < u.size(); ++i) {
        const float expected = tc::uniform01(philox.word(static_cast<uint64_t>(first) + i));
        ASSERT_EQ(u[i], -3.f + 5.f * expected) << i;
        ASSERT_EQ(b[i], expected < 0.25f ? 1.f : 0.f) << i;
      }
    }
  });
}

TEST(RandomOp, CountersCarryIntoTheirHighHalf) {
  on_every_target([] {
    tcx_random_args a = tcx_random_args_default();
    a.distribution = TC_RANDOM_UNIFORM;
    a.first_index = (int64_t{1} << 34) - 37;  // counters around 2^32
    const std::vector<float> u = random_values(a, 100);
    for (size_t i = 0; i < u.size(); ++i)
      ASSERT_EQ(u[i], tc::uniform01(tc::Philox{0}.word(static_cast<uint64_t>(a.first_index) + i))) << i;
  });
}

TEST(RandomOp, PartsMakeTheWhole) {
  const std::vector<float> whole = random_values(normal_law(9), 9001);
  for (const int64_t at : {1, 2050, 6143}) {
    tcx_random_args a = normal_law(9);
    a.first_index = at;
    const std::vector<float> part = random_values(a, 9001 - at);
    EXPECT_EQ(std::memcmp(part.data(), whole.data() + at, part.size() * sizeof(float)), 0);
  }
}

TEST(RandomOp, NormalHasTheMomentsAndTailsOfItsLaw) {
  constexpr int64_t kCount = 1 << 20;
  on_every_target([] {
    double sum = 0, squares = 0, fourth = 0;
    int64_t beyond3 = 0;
    for (const float z : random_values(normal_law(1), kCount)) {
      sum += z, squares += double{z} * z, fourth += std::pow(z, 4);
      beyond3 += std::abs(z) > 3;
    }
    EXPECT_NEAR(sum / kCount, 0, 4e-3);
    EXPECT_NEAR(squares / kCount, 1, 6e-3);
    EXPECT_NEAR(fourth / kCount, 3, 4e-2);
    EXPECT_NEAR(static_cast<double>(beyond3) / kCount, 0.0026998, 2.1e-4);  // four standard deviations
  });
}

TEST(RandomOp, TruncationCutsAndKeepsTheShapeWithin) {
  constexpr int64_t kCount = 1 << 20;
  tcx_random_args a = normal_law(2);
  a.truncate = 2, a.mean = 1, a.std = 0.5;
  double squares = 0;
  for (const float y : random_values(a, kCount)) {
    ASSERT_LE(std::abs(y - 1), 1.000001f);
    squares += std::pow((y - 1) / 0.5, 2);
  }
  EXPECT_NEAR(squares / kCount, 0.773741, 4e-3);  // 1 - 2 t phi(t) / (2 Phi(t) - 1)
}

TEST(RandomOp, ForeignParametersAreRefused) {
  std::vector<float> y(3, 5.f);
  tcx_random_args a = normal_law(1);
  a.y = view(y);
  a.high = 2;
  EXPECT_EQ(tcx_random(&a, nullptr), TC_ERR_INVALID_ARG);
  EXPECT_STREQ(tc_last_error(), "random: low and high are set, but belong to uniform");
  a = tcx_random_args_default();
  a.y = view(y);
  EXPECT_EQ(tcx_random(&a, nullptr), TC_ERR_INVALID_ARG);  // no distribution
  a.distribution = TC_RANDOM_BERNOULLI;
  a.probability = 1.5;
  EXPECT_EQ(tcx_random(&a, nullptr), TC_ERR_INVALID_ARG);
  EXPECT_EQ(y[0], 5.f);
}

}  // namespace
