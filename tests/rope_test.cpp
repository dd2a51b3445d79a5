// Rope and its tables: published values, packed projections, and what the schema-driven checks cannot say.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/tensors.h"
#include "traincore/ops/rope/rope.h"
#include "traincore/ops/rope_tables/rope_tables.h"

namespace tc {
namespace {

struct Table {
  std::vector<float> cos, sin;
  int64_t rows, half;
  Table(int64_t rows_, int64_t half_, double base) : cos(rows_ * half_), sin(rows_ * half_), rows(rows_), half(half_) {
    auto a = tcx_rope_tables_args_default();
    a.base = base, a.cos = view(cos, {rows, half}), a.sin = view(sin, {rows, half});
    rope_tables(a);
  }
  void give(tcx_rope_forward_args& a) { a.cos = view(cos, {rows, half}), a.sin = view(sin, {rows, half}); }
};

// One row at position 1, base 10^4.
std::vector<float> turned(int32_t pairing, std::vector<float> x, int64_t rotary_dim) {
  Table table(2, rotary_dim / 2, 1e4);
  std::vector<int32_t> position = {1};
  auto a = tcx_rope_forward_args_default();
  a.pairing = pairing;
  table.give(a);
  a.positions = view(position);
  a.q = a.q_out = view(x, {1, static_cast<int64_t>(x.size())});
  rope_forward(a);
  return x;
}

TEST(Rope, PairingsAndPartialRotation) {
  const auto expect = [](const std::vector<float>& got, const std::vector<double>& want) {
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 4e-7) << i;
  };
  expect(turned(TC_ROPE_HALF, {1, 2, 3, 4}, 4), {-1.984110649, 1.959900667, 2.462377902, 4.019799668});
  expect(turned(TC_ROPE_INTERLEAVED, {1, 2, 3, 4}, 4), {-1.142639664, 1.922075597, 2.959850668, 4.029799502});
  const auto partial = turned(TC_ROPE_HALF, {1, 2, 3, 4, 5, 6, 7, 8}, 4);
  expect(partial, {-1.9841106, 1.9599007, 2.4623779, 4.0197997});
  for (int i = 4; i < 8; ++i) EXPECT_EQ(partial[i], i + 1);
}

// q and k as slices of one packed projection [B, T, (Hq + 2 Hk) D], turned in place.
TEST(Rope, SlicesOfAPackedProjection) {
  constexpr int64_t kBatch = 2, kQHeads = 3, kKHeads = 2, kDim = 10, kWidth = (kQHeads + 2 * kKHeads) * kDim;
  for (const int64_t seq : {1, 17}) {
    Table table(seq, 4, 1e4);
    std::vector<float> packed = normal(kBatch * seq * kWidth, 5);
    const std::vector<float> before = packed;
    const auto slice = [&](int64_t first_head, int64_t heads) {
      tc_tensor t = view(packed, {kBatch, heads, seq, kDim});
      t.data = packed.data() + first_head * kDim;
      t.stride[0] = seq * kWidth, t.stride[1] = kDim, t.stride[2] = kWidth;
      return t;
    };
    auto a = tcx_rope_forward_args_default();
    a.pairing = TC_ROPE_INTERLEAVED;
    table.give(a);
    a.q = a.q_out = slice(0, kQHeads), a.k = a.k_out = slice(kQHeads, kKHeads);
    rope_forward(a);
    for (int64_t r = 0; r < kBatch * seq; ++r)
      for (int64_t c = 0; c < kWidth; ++c) {
        const int64_t at = r * kWidth + c, i = c % kDim, s = r % seq;
        const bool turns = c < (kQHeads + kKHeads) * kDim && i < 8;
        const double angle = static_cast<double>(s) * std::pow(1e4, -static_cast<double>(i / 2) / 4);
        const double partner = before[i % 2 ? at - 1 : at + (at + 1 < static_cast<int64_t>(before.size()))];
        const double want =
            turns ? before[at] * std::cos(angle) + (i % 2 ? partner : -partner) * std::sin(angle) : before[at];
        ASSERT_NEAR(packed[at], want, turns ? 1e-6 : 0) << r << " " << c;
      }
  }
}

TEST(Rope, BackwardUndoesForward) {
  constexpr int64_t kSeq = 9, kDim = 70, kHalf = 33;
  Table table(kSeq, kHalf, 1e4);
  for (const int32_t pairing : {TC_ROPE_HALF, TC_ROPE_INTERLEAVED}) {
    const std::vector<float> x = normal(2 * kSeq * kDim, 6);
    std::vector<float> y = x;
    auto f = tcx_rope_forward_args_default();
    f.pairing = pairing;
    table.give(f);
    f.q = f.q_out = view(y, {2, kSeq, kDim});
    rope_forward(f);
    auto b = tcx_rope_backward_args_default();
    b.pairing = pairing, b.cos = f.cos, b.sin = f.sin, b.dq_out = b.dq = f.q;
    rope_backward(b);
    for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(y[i], x[i], 2e-6);
  }
}

TEST(Rope, OneRoundingToBf16) {
  constexpr int64_t kSeq = 8192, kDim = 64;
  Table table(kSeq, kDim / 2, 5e5);
  std::vector<bf16> q(kSeq * kDim);
  const std::vector<float> values = normal(q.size(), 7);
  for (size_t i = 0; i < q.size(); ++i) q[i] = bf16(values[i]);
  std::vector<bf16> out(q.size());
  auto a = tcx_rope_forward_args_default();
  a.pairing = TC_ROPE_HALF;
  table.give(a);
  a.q = view(q, {kSeq, kDim}), a.q_out = view(out, {kSeq, kDim});
  rope_forward(a);
  for (int64_t s = 0; s < kSeq; ++s)
    for (int64_t i = 0; i < kDim / 2; ++i) {
      const double x1 = float(q[s * kDim + i]), x2 = float(q[s * kDim + kDim / 2 + i]);
      const double want = x1 * table.cos[s * kDim / 2 + i] - x2 * table.sin[s * kDim / 2 + i];
      const double half_ulp = std::ldexp(1.0, std::ilogb(want) - 8);
      ASSERT_NEAR(float(out[s * kDim + i]), want, half_ulp + 0x1p-22 * (std::abs(x1) + std::abs(x2)));
    }
}

TEST(Rope, RefusesWhatShapesWithAlternativesLeaveOpen) {
  Table table(5, 2, 1e4);
  std::vector<float> q(2 * 3 * 5 * 4, 1), out(q.size(), -7), batched(2 * 5 * 2);
  std::vector<int64_t> positions = {0, 4, 2, 5, 1};
  auto a = tcx_rope_forward_args_default();
  a.pairing = TC_ROPE_HALF;
  table.give(a);
  a.q = view(q, {2, 3, 5, 4}), a.q_out = view(out, {2, 3, 5, 4});
  auto bad = a;
  bad.positions = view(positions);
  EXPECT_NE(refusal(TC_ERR_INVALID_ARG, [&] { rope_forward(bad); }).find("positions[3]"), std::string::npos);
  bad = a, bad.q_out = view(out, {5, 4});
  EXPECT_NE(refusal(TC_ERR_INVALID_SHAPE, [&] { rope_forward(bad); }).find("q_out has rank 2"), std::string::npos);
  bad = a, bad.q = view(q, {5, 4}), bad.q_out = view(out, {5, 4});
  bad.cos = bad.sin = view(batched, {2, 5, 2});
  EXPECT_NE(refusal(TC_ERR_INVALID_SHAPE, [&] { rope_forward(bad); }).find("cos"), std::string::npos);
  bad = a, bad.cos = bad.sin = view(batched, {10, 2});
  EXPECT_NE(refusal(TC_ERR_INVALID_SHAPE, [&] { rope_forward(bad); }).find("rows = 10"), std::string::npos);
  bad = a, bad.cos = bad.sin = view(batched, {5, 4});
  EXPECT_NE(refusal(TC_ERR_INVALID_SHAPE, [&] { rope_forward(bad); }).find("half = 4"), std::string::npos);
  for (const float v : out) EXPECT_EQ(v, -7);
}

TEST(RopeTables, FarPositions) {
  constexpr int64_t kHalf = 64;
  std::vector<int64_t> positions = {131071, 131070, 1000003};
  std::vector<float> cos(positions.size() * kHalf), sin(cos.size());
  auto a = tcx_rope_tables_args_default();
  a.base = 1e4, a.positions = view(positions), a.cos = view(cos, {3, kHalf}), a.sin = view(sin, {3, kHalf});
  rope_tables(a);
  for (size_t r = 0; r < positions.size(); ++r)
    for (int64_t i = 0; i < kHalf; ++i) {
      const long double angle = positions[r] * std::pow(10000.0L, -static_cast<long double>(i) / kHalf);
      EXPECT_NEAR(cos[r * kHalf + i], static_cast<double>(std::cos(angle)), 1e-7);
      EXPECT_NEAR(sin[r * kHalf + i], static_cast<double>(std::sin(angle)), 1e-7);
    }
}

TEST(RopeTables, AttentionScalingOfYarn) {
  std::vector<float> cos(4);
  auto a = tcx_rope_tables_args_default();
  a.base = 5e5, a.scaling = TC_ROPE_SCALING_YARN, a.factor = 4, a.original_max_position = 4096;
  a.cos = view(cos, {1, 4});
  rope_tables(a);
  for (const float c : cos) EXPECT_FLOAT_EQ(c, 1.138629436111989f);
  a.attention_scaling = 1;
  rope_tables(a);
  for (const float c : cos) EXPECT_EQ(c, 1);
}

TEST(RopeTables, RefusesOptionsThatWouldBeIgnored) {
  std::vector<float> cos(4);
  auto a = tcx_rope_tables_args_default();
  a.cos = view(cos, {1, 4});
  const auto refused = [&](const char* named) {
    EXPECT_NE(refusal(TC_ERR_INVALID_ARG, [&] { rope_tables(a); }).find(named), std::string::npos) << named;
  };
  refused("base is 0");
  a.base = 1e4, a.factor = 4;
  refused("factor is 4");
  a.factor = 1, a.original_max_position = 8;
  refused("original_max_position");
  a.original_max_position = 0, a.high_freq_factor = 4;
  refused("high_freq_factor");
  a.high_freq_factor = 0, a.beta_fast = 16;
  refused("beta_fast");
  a.beta_fast = 32, a.scaling = TC_ROPE_SCALING_YARN, a.factor = 4;
  refused("original_max_position is 0");
}

}  // namespace
}  // namespace tc
