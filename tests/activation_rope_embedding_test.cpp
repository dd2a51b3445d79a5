// Activations, rope and embedding: published values, and what the schema-driven checks cannot say.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "traincore/core/numeric.h"
#include "traincore/ops/activation/activation.h"
#include "traincore/ops/embedding/embedding.h"
#include "traincore/ops/rope/rope.h"
#include "traincore/ops/rope_tables/rope_tables.h"

namespace tc {
namespace {

template <class T>
tc_tensor view(std::vector<T>& data, std::vector<int64_t> shape) {
  return tc_tensor_dense(data.data(), dtype_of<T>, static_cast<int32_t>(shape.size()), shape.data());
}
template <class T>
tc_tensor view(std::vector<T>& data) {
  return view(data, {static_cast<int64_t>(data.size())});
}

std::vector<float> normal(size_t n, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> distribution;
  std::vector<float> values(n);
  for (float& v : values) v = distribution(generator);
  return values;
}

// The sentence of a call that must be refused with `code`.
template <class F>
std::string refusal(tc_status_t code, F&& call) {
  try {
    call();
  } catch (const Error& e) {
    EXPECT_EQ(e.code, code) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "the call was not refused";
  return "";
}

// ---------------------------------------------------------------- activation

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

TEST(Activation, SlopesAreFiniteWhereverTheyAreFloats) {
  std::vector<float> x;
  for (float v = 1e-38f; v < 1.6e38f; v *= 1.7f) x.push_back(v), x.push_back(-v);
  x.push_back(-3e38f);
  for (int kind = TC_ACTIVATION_SILU; kind <= TC_ACTIVATION_TANH; ++kind)
    for (const float slope : curve(kind, x).slope) EXPECT_TRUE(std::isfinite(slope)) << kind;
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

// ---------------------------------------------------------------- rope

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

// ---------------------------------------------------------------- embedding

TEST(Embedding, IdsOutsideTheVocabularyAreRefused) {
  std::vector<float> weight(5 * 3, 1), y(4 * 3, -7), dweight(5 * 3, -7);
  for (const int64_t bad : {int64_t{5}, int64_t{-1}, int64_t{1} << 40}) {
    std::vector<int64_t> ids = {0, 4, bad, 1};
    auto f = tcx_embedding_forward_args_default();
    f.ids = view(ids), f.weight = view(weight, {5, 3}), f.y = view(y, {4, 3});
    EXPECT_NE(refusal(TC_ERR_INVALID_ARG, [&] { embedding_forward(f); }).find("ids[2]"), std::string::npos);
    auto b = tcx_embedding_backward_args_default();
    b.ids = f.ids, b.dy = f.y, b.dweight = view(dweight, {5, 3});
    EXPECT_NE(refusal(TC_ERR_INVALID_ARG, [&] { embedding_backward(b); }).find("ids[2]"), std::string::npos);
  }
  for (const float v : y) EXPECT_EQ(v, -7);
  for (const float v : dweight) EXPECT_EQ(v, -7);
}

// A sum kept in bf16 stops at 256.
TEST(Embedding, ManyOccurrencesAddUp) {
  std::vector<int32_t> ids(50001, 1);
  std::vector<bf16> dy(ids.size() * 2, bf16(1.0f)), rounded(6);
  std::vector<float> exact(6);
  auto a = tcx_embedding_backward_args_default();
  a.ids = view(ids), a.dy = view(dy, {50001, 2}), a.dweight = view(exact, {3, 2});
  embedding_backward(a);
  EXPECT_EQ(exact, (std::vector<float>{0, 0, 50001, 50001, 0, 0}));
  a.dweight = view(rounded, {3, 2});
  embedding_backward(a);
  EXPECT_EQ(float(rounded[2]), float(bf16(50001.0f)));
}

}  // namespace
}  // namespace tc
