// Philox4x32-10 against the known-answer vectors of its authors (Random123, kat_vectors), and the uniform's open ends.
#include "traincore/core/random.h"

#include <gtest/gtest.h>

namespace {

using tc::Philox;
using tc::Words4;

void expect_words(const Words4& got, uint32_t x, uint32_t y, uint32_t z, uint32_t w) {
  EXPECT_EQ(got.x, x);
  EXPECT_EQ(got.y, y);
  EXPECT_EQ(got.z, z);
  EXPECT_EQ(got.w, w);
}

TEST(Random, philox_matches_the_published_vectors) {
  expect_words(Philox{0, 0}(0), 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8);
  expect_words(Philox{~0ull, ~0ull}(~0ull), 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd);
  expect_words(Philox{0x299f31d0a4093822, 0x0370734413198a2e}(0x85a308d3243f6a88), 0xd16cfe09, 0x94fdcceb, 0x5001e420,
               0x24126ea1);
}

TEST(Random, philox_is_a_constant_expression) { static_assert(Philox{0, 0}(0).x == 0x6627e8d5); }

TEST(Random, uniform_is_inside_the_open_interval_and_symmetric) {
  EXPECT_GT(tc::uniform01(0), 0.f);
  EXPECT_LT(tc::uniform01(~0u), 1.f);
  for (uint32_t word = 0; word < 1u << 31; word += 999983) EXPECT_EQ(tc::uniform01(word), 1.f - tc::uniform01(~word));
}

TEST(Random, uniform_has_the_mean_and_variance_of_its_law) {
  constexpr int kCount = 1 << 18;
  double sum = 0, squares = 0;
  for (int i = 0; i < kCount; ++i) {
    const double u = tc::uniform01(Philox{5, 3}(i).z);
    sum += u, squares += u * u;
  }
  const double mean = sum / kCount;
  EXPECT_NEAR(mean, 0.5, 5 * 0.2887 / 512);
  EXPECT_NEAR(squares / kCount - mean * mean, 1.0 / 12, 1e-3);
}

}  // namespace
