// traincore/attention.h against float64 definitions, forward and backward.
#include <limits>

#include "kit_test.h"

namespace tc::testing {
namespace {

tc_attention_desc desc_of(int batch, int heads, int kv_heads, int seq_q, int seq_kv, int head_dim) {
  tc_attention_desc d{};
  d.batch = batch, d.heads = heads, d.kv_heads = kv_heads, d.seq_q = seq_q, d.seq_kv = seq_kv, d.head_dim = head_dim;
  d.io_dtype = TC_DTYPE_F16, d.accum_dtype = TC_DTYPE_F32;
  d.softmax_scale = 1 / std::sqrt(static_cast<float>(head_dim));
  return d;
}

struct Sides {
  std::vector<double> q, k, v, o, lse, dout, dq, dk, dv;
};

// Forward and backward of one query row, straight from the formulas.
void attend_row(const tc_attention_desc& d, Sides& s, int64_t b, int64_t h, int64_t i) {
  const int64_t kv = d.kv_heads ? d.kv_heads : d.heads, D = d.head_dim, row = (b * d.heads + h) * d.seq_q + i,
                first = (b * kv + h / (d.heads / kv)) * d.seq_kv, p = i + d.seq_kv - d.seq_q;
  std::vector<double> z(d.seq_kv, -std::numeric_limits<double>::infinity());
  double sum = 0;
  for (int64_t j = 0; j < d.seq_kv; ++j) {
    if ((d.causal && j > p) || (d.window_size > 0 && j < p - d.window_size)) continue;
    double dot = 0;
    for (int64_t x = 0; x < D; ++x) dot += s.q[row * D + x] * s.k[(first + j) * D + x];
    z[j] = d.softmax_scale * dot - (d.alibi_slopes ? d.alibi_slopes[h] * std::fabs(static_cast<double>(p - j)) : 0);
    sum += std::exp(z[j]);
  }
  s.lse[row] = std::log(sum);
  for (double& e : z) e = sum > 0 ? std::exp(e) / sum : 0;
  for (int64_t j = 0; j < d.seq_kv; ++j)
    for (int64_t x = 0; x < D; ++x) s.o[row * D + x] += z[j] * s.v[(first + j) * D + x];
  double delta = 0;
  for (int64_t x = 0; x < D; ++x) delta += s.dout[row * D + x] * s.o[row * D + x];
  for (int64_t j = 0; j < d.seq_kv; ++j) {
    double dp = 0;
    for (int64_t x = 0; x < D; ++x) dp += s.dout[row * D + x] * s.v[(first + j) * D + x];
    const double ds = z[j] * (dp - delta) * d.softmax_scale;
    for (int64_t x = 0; x < D; ++x) {
      s.dq[row * D + x] += ds * s.k[(first + j) * D + x];
      s.dk[(first + j) * D + x] += ds * s.q[row * D + x];
      s.dv[(first + j) * D + x] += z[j] * s.dout[row * D + x];
    }
  }
}

class KitAttention : public Kit {
 protected:
  template <class T>
  void check(tc_attention_desc d, double tolerance) {
    d.io_dtype = dtype_of<T>;
    const int kv = d.kv_heads ? d.kv_heads : d.heads;
    const size_t queries = size_t(d.batch) * d.heads * d.seq_q, keys = size_t(d.batch) * kv * d.seq_kv, D = d.head_dim;
    const auto q = normals(queries * D, 1), k = normals(keys * D, 2), v = normals(keys * D, 3),
               g = normals(queries * D, 4);
    Sides want{rounded_to<T>(q),
               rounded_to<T>(k),
               rounded_to<T>(v),
               std::vector<double>(queries * D),
               std::vector<double>(queries),
               rounded_to<T>(g),
               std::vector<double>(queries * D),
               std::vector<double>(keys * D),
               std::vector<double>(keys * D)};
    for (int64_t b = 0; b < d.batch; ++b)
      for (int64_t h = 0; h < d.heads; ++h)
        for (int64_t i = 0; i < d.seq_q; ++i) attend_row(d, want, b, h, i);
    tc_buffer *Q = filled<T>(q), *K = filled<T>(k), *V = filled<T>(v), *dO = filled<T>(g), *O = empty(queries * D * 2),
              *LSE = empty(queries * 4), *dQ = empty(queries * D * 2), *dK = empty(keys * D * 2),
              *dV = empty(keys * D * 2);
    d.return_lse = true;
    ASSERT_EQ(tc_attention_forward(ctx, &d, Q, K, V, O, LSE), TC_OK) << tc_last_error();
    ASSERT_EQ(tc_attention_backward(ctx, &d, Q, K, V, O, dO, LSE, dQ, dK, dV), TC_OK) << tc_last_error();
    EXPECT_LT(rms_scaled(read<T>(O, queries * D), want.o), tolerance);
    const auto lse = read<float>(LSE, queries);
    for (size_t i = 0; i < queries; ++i) {
      if (std::isinf(want.lse[i])) {
        EXPECT_EQ(lse[i], want.lse[i]);
      } else {
        EXPECT_NEAR(lse[i], want.lse[i], 1e-5 * std::fabs(want.lse[i]) + 1e-5);
      }
    }
    EXPECT_LT(rms_scaled(read<T>(dQ, queries * D), want.dq), 3 * tolerance);
    EXPECT_LT(rms_scaled(read<T>(dK, keys * D), want.dk), 3 * tolerance);
    EXPECT_LT(rms_scaled(read<T>(dV, keys * D), want.dv), 3 * tolerance);
  }
};

constexpr double kF16 = 1e-3, kBf16 = 8e-3;

TEST_F(KitAttention, PlainOfEveryKindOfHeadDim) {
  for (const int D : {1, 17, 40, 64, 80, 96, 128, 192, 256}) check<f16>(desc_of(2, 3, 0, 5, 7, D), kF16);
}
TEST_F(KitAttention, Bf16) { check<bf16>(desc_of(2, 3, 0, 70, 67, 64), kBf16); }
TEST_F(KitAttention, GroupedHeadsCausalWindowAndAlibi) {
  const float slopes[] = {0.5f, 0.25f, 0.125f, 0.0625f, 0.03f, 0.01f};
  for (const int options : {0, 1, 2, 3, 4, 5, 6, 7}) {
    auto d = desc_of(2, 6, 3, 33, 37, 24);
    d.causal = options & 1;
    d.window_size = options & 2 ? 5 : 0;
    d.alibi_slopes = options & 4 ? slopes : nullptr;
    check<f16>(d, kF16);
  }
}
TEST_F(KitAttention, RowsThatSeeNoKeyAreZero) {
  auto d = desc_of(1, 2, 1, 9, 4, 16);  // the first five queries stand before the first key
  d.causal = true;
  check<f16>(d, kF16);
}

TEST_F(KitAttention, LseIsTouchedOnlyWhenAskedFor) {
  auto d = desc_of(1, 1, 0, 2, 2, 4);
  tc_buffer *Q = filled<f16>(normals(8, 5)), *O = empty(16), *LSE = empty(8);
  EXPECT_EQ(tc_attention_forward(ctx, &d, Q, Q, Q, O, LSE), TC_OK) << tc_last_error();
  EXPECT_TRUE(std::isnan(read<float>(LSE, 1)[0]));
  EXPECT_EQ(tc_attention_forward(ctx, &d, Q, Q, Q, O, nullptr), TC_OK) << tc_last_error();
  d.return_lse = true;
  expect_refused(TC_ERR_INVALID_ARG, tc_attention_forward(ctx, &d, Q, Q, Q, O, nullptr), "LSE is NULL");
  EXPECT_EQ(tc_attention_forward(ctx, &d, Q, Q, Q, O, LSE), TC_OK);
  EXPECT_FALSE(std::isnan(read<float>(LSE, 1)[0]));
}

TEST_F(KitAttention, AsyncIsTheSameBits) {
  auto d = desc_of(2, 4, 2, 65, 65, 32);
  std::vector<float> slopes = {1, 0.5f, 0.25f, 0.125f};
  d.alibi_slopes = slopes.data();
  d.return_lse = true;
  const size_t queries = 2 * 4 * 65, keys = 2 * 2 * 65;
  tc_buffer *Q = filled<f16>(normals(queries * 32, 6)), *K = filled<f16>(normals(keys * 32, 7)),
            *O = empty(queries * 64), *LSE = empty(queries * 4), *O2 = empty(queries * 64), *LSE2 = empty(queries * 4);
  tc_stream* s = nullptr;
  ASSERT_EQ(tc_stream_create(ctx, &s), TC_OK);
  ASSERT_EQ(tc_attention_forward_async(ctx, &d, Q, K, K, O, LSE, s), TC_OK) << tc_last_error();
  const std::vector<float> kept = slopes;
  slopes.assign(4, 1000);  // they were read before the call returned
  ASSERT_EQ(tc_stream_sync(s), TC_OK) << tc_last_error();
  d.alibi_slopes = kept.data();
  ASSERT_EQ(tc_attention_forward(ctx, &d, Q, K, K, O2, LSE2), TC_OK);
  EXPECT_EQ(read<f16>(O, queries * 32), read<f16>(O2, queries * 32));
  EXPECT_EQ(read<float>(LSE, queries), read<float>(LSE2, queries));
}

TEST_F(KitAttention, RefusesWhatItMust) {
  const auto good = desc_of(1, 4, 2, 3, 3, 8);
  tc_buffer *Q = empty(1 * 4 * 3 * 8 * 2), *K = empty(1 * 2 * 3 * 8 * 2), *O = empty(1 * 4 * 3 * 8 * 2),
            *LSE = empty(4 * 3 * 4), *dQ = empty(1 * 4 * 3 * 8 * 2), *dK = empty(1 * 2 * 3 * 8 * 2),
            *dV = empty(1 * 2 * 3 * 8 * 2);
  const auto refuse = [&](tc_status_t want, const std::string& word, auto change) {
    tc_attention_desc d = good;
    change(d);
    expect_refused(want, tc_attention_forward(ctx, &d, Q, K, K, O, LSE), word);
    expect_refused(want, tc_attention_backward(ctx, &d, Q, K, K, O, O, LSE, dQ, dK, dV), word);
  };
  for (const int bad : {0, -1}) {
    refuse(TC_ERR_INVALID_SHAPE, "batch", [=](auto& d) { d.batch = bad; });
    refuse(TC_ERR_INVALID_SHAPE, "heads", [=](auto& d) { d.heads = bad; });
    refuse(TC_ERR_INVALID_SHAPE, "seq_q", [=](auto& d) { d.seq_q = bad; });
    refuse(TC_ERR_INVALID_SHAPE, "seq_kv", [=](auto& d) { d.seq_kv = bad; });
    refuse(TC_ERR_INVALID_SHAPE, "head_dim", [=](auto& d) { d.head_dim = bad; });
    refuse(TC_ERR_INVALID_ARG, "softmax_scale", [=](auto& d) { d.softmax_scale = static_cast<float>(bad); });
  }
  refuse(TC_ERR_INVALID_SHAPE, "kv_heads", [](auto& d) { d.kv_heads = -2; });
  refuse(TC_ERR_INVALID_SHAPE, "multiple of kv_heads", [](auto& d) { d.kv_heads = 3; });
  refuse(TC_ERR_INVALID_SHAPE, "2^62", [](auto& d) { d.batch = d.seq_q = d.seq_kv = INT32_MAX; });
  refuse(TC_ERR_INVALID_SHAPE, "K has", [](auto& d) { d.seq_kv = 4; });
  refuse(TC_ERR_UNSUPPORTED_DTYPE, "io_dtype", [](auto& d) { d.io_dtype = TC_DTYPE_F32; });
  refuse(TC_ERR_UNSUPPORTED_DTYPE, "accum_dtype", [](auto& d) { d.accum_dtype = TC_DTYPE_F16; });
  refuse(TC_ERR_INVALID_ARG, "softmax_scale", [](auto& d) { d.softmax_scale = std::nanf(""); });
  refuse(TC_ERR_INVALID_ARG, "window_size", [](auto& d) { d.window_size = -1; });
  expect_refused(TC_ERR_INVALID_ARG, tc_attention_forward(ctx, nullptr, Q, K, K, O, LSE), "desc");
  expect_refused(TC_ERR_INVALID_ARG, tc_attention_forward(ctx, &good, Q, nullptr, K, O, LSE), "K is NULL");
  expect_refused(TC_ERR_INVALID_ARG, tc_attention_backward(ctx, &good, Q, K, K, O, O, nullptr, dQ, dK, dV), "LSE");
  expect_refused(TC_ERR_INVALID_ARG, tc_attention_backward(ctx, &good, Q, K, K, O, O, LSE, dQ, dK, dK), "overlaps");
  EXPECT_TRUE(std::isnan(read<f16>(dK, 1)[0])) << "a refusal writes nothing";
}

}  // namespace
}  // namespace tc::testing
