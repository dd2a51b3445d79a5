// traincore/training.h against its formulas in float64, and against programs as they are already written.
#include "kit_test.h"

namespace tc::testing {
namespace {

constexpr double kF16 = 1.0 / 1024;  // half a unit in the last place is half of this

void expect_near(const std::vector<double>& got, const std::vector<double>& want, double relative, double absolute) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(got[i], want[i], relative * std::fabs(want[i]) + absolute) << "element " << i;
}

TEST_F(Kit, RmsnormForwardAndBackward) {
  const int N = 3, D = 37;
  const auto x = normals(N * D, 1), g = normals(D, 2), dy = normals(N * D, 3);
  tc_buffer *X = filled<f16>(x), *gamma = filled<f16>(g), *dY = filled<f16>(dy), *Y = empty(2 * N * D),
            *rstd = empty(4 * N), *dX = empty(2 * N * D), *dgamma = empty(4 * D);
  ASSERT_EQ(tc_rmsnorm_forward(ctx, X, gamma, Y, rstd, N, D, 1e-6f), TC_OK) << tc_last_error();
  ASSERT_EQ(tc_rmsnorm_backward(ctx, X, gamma, dY, rstd, dX, dgamma, N, D), TC_OK) << tc_last_error();
  const auto xs = rounded_to<f16>(x), gs = rounded_to<f16>(g), dys = rounded_to<f16>(dy);
  std::vector<double> y(N * D), r(N), dx(N * D), dg(D);
  for (int n = 0; n < N; ++n) {
    double squares = 0, dot = 0;
    for (int d = 0; d < D; ++d) squares += xs[n * D + d] * xs[n * D + d];
    r[n] = 1 / std::sqrt(squares / D + 1e-6);
    for (int d = 0; d < D; ++d) dot += dys[n * D + d] * gs[d] * xs[n * D + d];
    for (int d = 0; d < D; ++d) {
      const int i = n * D + d;
      y[i] = xs[i] * r[n] * gs[d];
      dx[i] = r[n] * (dys[i] * gs[d] - xs[i] * r[n] * r[n] * dot / D);
      dg[d] += dys[i] * xs[i] * r[n];
    }
  }
  expect_near(read<f16>(Y, N * D), y, kF16, 1e-6);
  expect_near(read<float>(rstd, N), r, 1e-6, 0);
  expect_near(read<f16>(dX, N * D), dx, kF16, 1e-5);
  expect_near(read<float>(dgamma, D), dg, 1e-5, 1e-5);
  // In place: Y is X, dX is dY.
  ASSERT_EQ(tc_rmsnorm_backward(ctx, X, gamma, dY, rstd, dY, dgamma, N, D), TC_OK) << tc_last_error();
  EXPECT_EQ(read<f16>(dY, N * D), read<f16>(dX, N * D));
  ASSERT_EQ(tc_rmsnorm_forward(ctx, X, gamma, X, rstd, N, D, 1e-6f), TC_OK) << tc_last_error();
  EXPECT_EQ(read<f16>(X, N * D), read<f16>(Y, N * D));
}

TEST_F(Kit, LayernormForwardAndBackward) {
  const int N = 3, D = 37;
  const auto x = normals(N * D, 13), g = normals(D, 14), b = normals(D, 15), dy = normals(N * D, 16);
  tc_buffer *X = filled<f16>(x), *gamma = filled<f16>(g), *beta = filled<f16>(b), *dY = filled<f16>(dy),
            *Y = empty(2 * N * D), *mean = empty(4 * N), *rstd = empty(4 * N), *dX = empty(2 * N * D),
            *dgamma = empty(4 * D), *dbeta = empty(4 * D);
  ASSERT_EQ(tc_layernorm_forward(ctx, X, gamma, beta, Y, mean, rstd, N, D, 1e-5f), TC_OK) << tc_last_error();
  ASSERT_EQ(tc_layernorm_backward(ctx, X, gamma, dY, mean, rstd, dX, N, D), TC_OK) << tc_last_error();
  ASSERT_EQ(tc_layernorm_backward_params(ctx, X, dY, mean, rstd, dgamma, dbeta, N, D), TC_OK) << tc_last_error();
  const auto xs = rounded_to<f16>(x), gs = rounded_to<f16>(g), bs = rounded_to<f16>(b), dys = rounded_to<f16>(dy);
  std::vector<double> y(N * D), m(N), r(N), dx(N * D), dg(D), db(D);
  for (int n = 0; n < N; ++n) {
    double squares = 0, of_g = 0, of_gc = 0;
    for (int d = 0; d < D; ++d) m[n] += xs[n * D + d] / D;
    for (int d = 0; d < D; ++d) {
      const double c = xs[n * D + d] - m[n], gw = dys[n * D + d] * gs[d];
      squares += c * c / D;
      of_g += gw / D;
      of_gc += gw * c / D;
    }
    r[n] = 1 / std::sqrt(squares + 1e-5);
    for (int d = 0; d < D; ++d) {
      const int i = n * D + d;
      const double c = xs[i] - m[n];
      y[i] = c * r[n] * gs[d] + bs[d];
      dx[i] = r[n] * (dys[i] * gs[d] - of_g - c * r[n] * r[n] * of_gc);
      dg[d] += dys[i] * c * r[n];
      db[d] += dys[i];
    }
  }
  expect_near(read<f16>(Y, N * D), y, kF16, 1e-6);
  expect_near(read<float>(mean, N), m, 1e-6, 1e-7);
  expect_near(read<float>(rstd, N), r, 1e-6, 0);
  expect_near(read<f16>(dX, N * D), dx, kF16, 1e-5);
  expect_near(read<float>(dgamma, D), dg, 1e-5, 1e-5);
  expect_near(read<float>(dbeta, D), db, 1e-5, 1e-5);
}

TEST_F(Kit, FusedNormAndProductAgreeWithTheSeparatePath) {
  const int K = 96, N = 70;
  for (const int M : {1, 4, 20}) {
    tc_buffer *X = filled<f16>(normals(M * K, 17)), *gamma = filled<f16>(normals(K, 18)),
              *beta = filled<f16>(normals(K, 19)), *W = filled<f16>(normals(K * N, 20, 0.1f)),
              *normed = empty(2 * M * K), *mean = empty(4 * M), *rstd = empty(4 * M), *want = empty(2 * M * N),
              *got = empty(2 * M * N);
    tc_gemm_desc d{};
    d.M = M, d.N = N, d.K = K;
    d.a_dtype = d.b_dtype = d.c_dtype = TC_DTYPE_F16, d.accum_dtype = TC_DTYPE_F32, d.alpha = 1;
    ASSERT_EQ(tc_rmsnorm_forward(ctx, X, gamma, normed, rstd, M, K, 1e-6f), TC_OK) << tc_last_error();
    ASSERT_EQ(tc_gemm(ctx, &d, normed, W, want), TC_OK) << tc_last_error();
    ASSERT_EQ(tc_fused_rmsnorm_gemv(ctx, X, gamma, W, got, M, N, K, 1e-6f), TC_OK) << tc_last_error();
    EXPECT_LT(rms_scaled(read<f16>(got, M * N), read<f16>(want, M * N)), 5e-3);
    ASSERT_EQ(tc_layernorm_forward(ctx, X, gamma, beta, normed, mean, rstd, M, K, 1e-6f), TC_OK) << tc_last_error();
    ASSERT_EQ(tc_gemm(ctx, &d, normed, W, want), TC_OK) << tc_last_error();
    ASSERT_EQ(tc_fused_layernorm_gemv(ctx, X, gamma, beta, W, got, M, N, K, 1e-6f), TC_OK) << tc_last_error();
    EXPECT_LT(rms_scaled(read<f16>(got, M * N), read<f16>(want, M * N)), 5e-3);
  }
}

TEST_F(Kit, RopeTurnsHalvesAndBackwardTurnsBack) {
  const int B = 2, H = 3, S = 5, D = 8;
  const auto x = normals(B * H * S * D, 4);
  tc_buffer *X = filled<f16>(x), *cos_t = empty(4 * S * D / 2), *sin_t = empty(4 * S * D / 2);
  ASSERT_EQ(tc_rope_tables(ctx, cos_t, sin_t, S, D, 10000, 0.5), TC_OK) << tc_last_error();
  std::vector<double> turned(x.size()), c(S * D / 2), s(S * D / 2);
  const auto xs = rounded_to<f16>(x);
  for (int i = 0; i < S * D / 2; ++i) {
    const double angle = i / (D / 2) * 0.5 * std::pow(10000, -2.0 * (i % (D / 2)) / D);
    c[i] = std::cos(angle);
    s[i] = std::sin(angle);
  }
  expect_near(read<float>(cos_t, c.size()), c, 6e-8, 1e-9);
  expect_near(read<float>(sin_t, s.size()), s, 6e-8, 1e-9);
  for (int row = 0; row < B * H * S; ++row)
    for (int k = 0; k < D / 2; ++k) {
      const double x1 = xs[row * D + k], x2 = xs[row * D + k + D / 2], co = c[row % S * D / 2 + k],
                   si = s[row % S * D / 2 + k];
      turned[row * D + k] = x1 * co - x2 * si;
      turned[row * D + k + D / 2] = x2 * co + x1 * si;
    }
  ASSERT_EQ(tc_rope_forward(ctx, X, cos_t, sin_t, B, H, S, D), TC_OK) << tc_last_error();
  expect_near(read<f16>(X, x.size()), turned, kF16, 1e-6);
  ASSERT_EQ(tc_rope_backward(ctx, X, cos_t, sin_t, B, H, S, D), TC_OK) << tc_last_error();
  expect_near(read<f16>(X, x.size()), xs, 2 * kF16, 4 * kF16);
  expect_refused(TC_ERR_INVALID_ARG, tc_rope_forward(ctx, X, cos_t, sin_t, B, H, S, 7), "even");
  expect_refused(TC_ERR_INVALID_ARG, tc_rope_tables(ctx, cos_t, sin_t, S, D, 10000, 0), "scale");
  expect_refused(TC_ERR_INVALID_ARG, tc_rope_tables(ctx, cos_t, sin_t, S, D, 1, 1), "base");
}

TEST_F(Kit, RopeTablesAreRightFarOut) {
  const int S = 100001, D = 4;
  tc_buffer *cos_t = empty(4 * S * D / 2), *sin_t = empty(4 * S * D / 2);
  ASSERT_EQ(tc_rope_tables(ctx, cos_t, sin_t, S, D, 500000, 1), TC_OK) << tc_last_error();
  EXPECT_EQ(mapped<float>(cos_t)[2 * 100000], static_cast<float>(std::cos(100000.0)));
  EXPECT_EQ(mapped<float>(sin_t)[2 * 99999], static_cast<float>(std::sin(99999.0)));
}

TEST_F(Kit, SwigluForwardBackwardAndAllInOneBuffer) {
  const int n = 1003;
  const auto g = normals(n, 5, 3), u = normals(n, 6), d = normals(n, 7);
  tc_buffer *gate = filled<f16>(g), *up = filled<f16>(u), *dout = filled<f16>(d), *out = empty(2 * n),
            *dgate = empty(2 * n), *dup = empty(2 * n), *h = filled<f16>(g);
  ASSERT_EQ(tc_swiglu_forward(ctx, gate, up, out, n), TC_OK) << tc_last_error();
  ASSERT_EQ(tc_swiglu_backward(ctx, gate, up, dout, dgate, dup, n), TC_OK) << tc_last_error();
  ASSERT_EQ(tc_swiglu_forward(ctx, h, h, h, n), TC_OK) << tc_last_error();
  const auto gs = rounded_to<f16>(g), us = rounded_to<f16>(u), ds = rounded_to<f16>(d);
  std::vector<double> y(n), dg(n), du(n), square(n);
  for (int i = 0; i < n; ++i) {
    const double s = 1 / (1 + std::exp(-gs[i]));
    y[i] = gs[i] * s * us[i];
    dg[i] = ds[i] * us[i] * s * (1 + gs[i] * (1 - s));
    du[i] = ds[i] * gs[i] * s;
    square[i] = gs[i] * s * gs[i];
  }
  expect_near(read<f16>(out, n), y, kF16, 1e-6);
  expect_near(read<f16>(dgate, n), dg, kF16, 1e-6);
  expect_near(read<f16>(dup, n), du, kF16, 1e-6);
  expect_near(read<f16>(h, n), square, kF16, 1e-6);
}

TEST_F(Kit, SoftmaxForwardAndBackward) {
  const int N = 3, D = 130;
  const auto x = normals(N * D, 8, 4), dy = normals(N * D, 9);
  tc_buffer *X = filled<f16>(x), *dY = filled<f16>(dy), *Y = empty(2 * N * D), *dX = empty(2 * N * D);
  ASSERT_EQ(tc_softmax_forward(ctx, X, Y, N, D), TC_OK) << tc_last_error();
  ASSERT_EQ(tc_softmax_backward(ctx, Y, dY, dX, N, D), TC_OK) << tc_last_error();
  const auto xs = rounded_to<f16>(x), dys = rounded_to<f16>(dy), ys = read<f16>(Y, N * D);
  for (int n = 0; n < N; ++n) {
    double sum = 0, dot = 0;
    for (int d = 0; d < D; ++d) sum += std::exp(xs[n * D + d]);
    for (int d = 0; d < D; ++d) dot += ys[n * D + d] * dys[n * D + d];
    for (int d = 0; d < D; ++d) {
      const int i = n * D + d;
      EXPECT_NEAR(ys[i], std::exp(xs[i]) / sum, kF16 * ys[i] + 6e-8);
      const double dx = ys[i] * (dys[i] - dot);
      EXPECT_NEAR((read<f16>(dX, N * D)[i]), dx, kF16 * std::fabs(dx) + 1e-6);
    }
  }
}

struct Moments {
  double p, m, v;
};
Moments adamw(Moments s, double g, double lr, double b1, double b2, double eps, double wd, double bc1, double bc2) {
  s.m = b1 * s.m + (1 - b1) * g;
  s.v = b2 * s.v + (1 - b2) * g * g;
  s.p -= lr * (s.m / bc1 / (std::sqrt(s.v / bc2) + eps) + wd * s.p);
  return s;
}

TEST_F(Kit, AdamwTakesTheCallersCorrections) {
  const int n = 517;
  const auto p = normals(n, 10), g = normals(n, 11);
  for (const bool corrected : {true, false}) {
    tc_buffer *P = filled<float>(p), *M = filled<float>(std::vector<float>(n)),
              *V = filled<float>(std::vector<float>(n)), *G = filled<f16>(g);
    std::vector<Moments> want(n);
    const auto gs = rounded_to<f16>(g);
    for (int i = 0; i < n; ++i) want[i] = {p[i], 0, 0};
    for (int step = 1; step <= 3; ++step) {
      const float bc1 = corrected ? 1 - std::pow(0.9f, step) : 1, bc2 = corrected ? 1 - std::pow(0.999f, step) : 1;
      ASSERT_EQ(tc_adamw_step(ctx, P, M, V, G, TC_DTYPE_F16, n, 1e-2f, 0.9f, 0.999f, 1e-8f, 0.1f, bc1, bc2), TC_OK)
          << tc_last_error();
      for (int i = 0; i < n; ++i) want[i] = adamw(want[i], gs[i], 1e-2f, 0.9f, 0.999f, 1e-8f, 0.1f, bc1, bc2);
    }
    for (int i = 0; i < n; ++i) {
      EXPECT_NEAR(mapped<float>(P)[i], want[i].p, 1e-6 * std::fabs(want[i].p) + 3e-7);
      EXPECT_NEAR(mapped<float>(M)[i], want[i].m, 1e-6 * std::fabs(want[i].m) + 1e-9);
      EXPECT_NEAR(mapped<float>(V)[i], want[i].v, 1e-6 * std::fabs(want[i].v) + 1e-12);
    }
  }
  tc_buffer* b = empty(8);
  const auto step = [&](tc_dtype_t dtype, float bc1) {
    return tc_adamw_step(ctx, b, b, b, b, dtype, 1, 1e-3f, 0.9f, 0.999f, 1e-8f, 0, bc1, 1);
  };
  expect_refused(TC_ERR_UNSUPPORTED_DTYPE, step(TC_DTYPE_I32, 1), "grad_dtype");
  expect_refused(TC_ERR_INVALID_ARG, step(TC_DTYPE_F32, 0), "bc1");
  expect_refused(TC_ERR_INVALID_ARG, step(TC_DTYPE_F32, std::nanf("")), "bc1");
  expect_refused(TC_ERR_INVALID_ARG, step(TC_DTYPE_F32, 1), "overlaps");
}

TEST_F(Kit, RmsnormGradientGoesStraightIntoAdamw) {
  tc_buffer *X = filled<f16>({3, 4}), *gamma = filled<f16>({1, 1}), *dY = filled<f16>({1, 2}), *rstd = empty(4),
            *Y = empty(4), *dX = empty(4), *dgamma = empty(8), *P = filled<float>({1, 1}), *M = filled<float>({0, 0}),
            *V = filled<float>({0, 0});
  ASSERT_EQ(tc_rmsnorm_forward(ctx, X, gamma, Y, rstd, 1, 2, 1e-6f), TC_OK);
  ASSERT_EQ(tc_rmsnorm_backward(ctx, X, gamma, dY, rstd, dX, dgamma, 1, 2), TC_OK);
  expect_near(read<float>(dgamma, 2), {3 * 0.282843, 8 * 0.282843}, 1e-5, 0);
  ASSERT_EQ(tc_adamw_step(ctx, P, M, V, dgamma, TC_DTYPE_F32, 2, 0.5f, 0.9f, 0.99f, 1e-8f, 0, 0.1f, 0.01f), TC_OK);
  expect_near(read<float>(P, 2), {0.5, 0.5}, 1e-5, 0);
}

TEST_F(Kit, Bf16AdamwKeepsSmallStepsOnAverage) {
  const int n = 4096;
  tc_buffer *P = filled<bf16>(std::vector<float>(n, 1)), *M = filled<float>(std::vector<float>(n)),
            *V = filled<float>(std::vector<float>(n)), *G = filled<bf16>(std::vector<float>(n, 1));
  for (int step = 1; step <= 8; ++step)  // each 1/40 of the spacing below 1: never seen by rounding to nearest
    ASSERT_EQ(tc_adamw_step_bf16(ctx, P, M, V, G, TC_DTYPE_BF16, n, 1e-4f, 0.9f, 0.999f, 1e-8f, 0,
                                 1 - std::pow(0.9f, step), 1 - std::pow(0.999f, step), step),
              TC_OK)
        << tc_last_error();
  double mean = 0;
  for (const double p : read<bf16>(P, n)) mean += p / n;
  EXPECT_NEAR(mean, 1 - 8e-4, 1e-4);
}

TEST_F(Kit, AddAndItsRounding) {
  const std::vector<float> a = {1.9999f, 70000, 0x1p-24f, 3, -0.0f}, zero(a.size());
  tc_buffer *A = filled<f16>(a), *Z = filled<f16>(zero), *Y = empty(2 * a.size());
  ASSERT_EQ(tc_add(ctx, A, Z, Y, static_cast<int>(a.size())), TC_OK) << tc_last_error();
  const auto y = read<f16>(Y, a.size());
  EXPECT_EQ(y[0], 2);
  EXPECT_TRUE(std::isinf(y[1]));
  EXPECT_EQ(y[2], 0x1p-24);
  tc_buffer* L = filled<f16>({60000});
  ASSERT_EQ(tc_add(ctx, L, L, L, 1), TC_OK);
  EXPECT_TRUE(std::isinf(read<f16>(L, 1)[0]));
  const std::vector<float> tie = {2048, 1, 2050, 1};  // 2049 is a tie down, 2051 one up
  tc_buffer *T = filled<f16>({tie[0], tie[2]}), *O = filled<f16>({tie[1], tie[3]});
  ASSERT_EQ(tc_add(ctx, T, O, T, 2), TC_OK);
  EXPECT_EQ(read<f16>(T, 2), (std::vector<double>{2048, 2052}));
}

TEST_F(Kit, HeadsAreSplitAndMerged) {
  const int B = 2, S = 3, H = 4, K = 2, D = 5, row = (H + 2 * K) * D;
  const auto packed = normals(B * S * row, 12);
  tc_buffer *QKV = filled<f16>(packed), *q = empty(2 * B * H * S * D), *k = empty(2 * B * K * S * D),
            *v = empty(2 * B * K * S * D), *back = empty(2 * B * S * row);
  ASSERT_EQ(tc_split_heads(ctx, QKV, q, k, v, B, S, H, K, D), TC_OK) << tc_last_error();
  const auto in = read<f16>(QKV, packed.size());
  const auto expect = [&](tc_buffer* part, int heads, int first) {
    const auto out = read<f16>(part, B * heads * S * D);
    for (int b = 0, i = 0; b < B; ++b)
      for (int h = 0; h < heads; ++h)
        for (int s = 0; s < S; ++s)
          for (int d = 0; d < D; ++d, ++i) EXPECT_EQ(out[i], in[(b * S + s) * row + (first + h) * D + d]);
  };
  expect(q, H, 0);
  expect(k, K, H);
  expect(v, K, H + K);
  ASSERT_EQ(tc_merge_heads(ctx, q, k, v, back, B, S, H, K, D), TC_OK) << tc_last_error();
  EXPECT_EQ(read<f16>(back, packed.size()), in);
  ASSERT_EQ(tc_split_heads(ctx, QKV, back, nullptr, nullptr, B, S, H + 2 * K, 0, D), TC_OK) << tc_last_error();
  ASSERT_EQ(tc_merge_heads(ctx, back, nullptr, nullptr, QKV, B, S, H + 2 * K, 0, D), TC_OK) << tc_last_error();
  EXPECT_EQ(read<f16>(QKV, packed.size()), in);
  expect_refused(TC_ERR_INVALID_ARG, tc_split_heads(ctx, QKV, QKV, k, v, B, S, H, K, D), "overlaps");
  expect_refused(TC_ERR_INVALID_ARG, tc_split_heads(ctx, QKV, q, k, k, B, S, H, K, D), "V overlaps K");
  expect_refused(TC_ERR_INVALID_ARG, tc_split_heads(ctx, QKV, q, k, nullptr, B, S, H, K, D), "V is NULL");
  expect_refused(TC_ERR_INVALID_ARG, tc_split_heads(ctx, QKV, q, k, v, B, S, H, 0, D), "kv_heads");
  EXPECT_EQ(read<f16>(QKV, packed.size()), in) << "a refusal writes nothing";
}

TEST_F(Kit, TrainingDtypeIsThisThreadsAndThisContexts) {
  ASSERT_EQ(tc_training_dtype(ctx, TC_DTYPE_F32), TC_OK);
  tc_buffer *a = filled<float>({1, 2, 3}), *h = filled<f16>({1, 2, 3});
  EXPECT_EQ(tc_add(ctx, a, a, a, 3), TC_OK);
  EXPECT_EQ(read<float>(a, 3), (std::vector<double>{2, 4, 6}));
  expect_refused(TC_ERR_INVALID_SHAPE, tc_add(ctx, h, h, h, 3), "6 bytes");
  EXPECT_EQ(tc_training_dtype(ctx, TC_DTYPE_BF16), TC_OK);
  tc_buffer* b = filled<bf16>({1, 2, 3});
  EXPECT_EQ(tc_add(ctx, b, b, b, 3), TC_OK);
  EXPECT_EQ(read<bf16>(b, 3), (std::vector<double>{2, 4, 6}));
  for (const tc_dtype_t d : {TC_DTYPE_I8, TC_DTYPE_F64, TC_DTYPE_BOOL})
    expect_refused(TC_ERR_UNSUPPORTED_DTYPE, tc_training_dtype(ctx, d), "dtype");
  tc_context *again = nullptr, *old = ctx;
  ASSERT_EQ(tc_shutdown(ctx), TC_OK);
  ASSERT_EQ(tc_init(&again), TC_OK);
  ctx = again;
  h = filled<f16>({1, 2, 3});
  EXPECT_EQ(tc_add(ctx, h, h, h, 3), TC_OK) << "a new context takes f16";
  expect_refused(TC_ERR_INVALID_ARG, tc_training_dtype(old, TC_DTYPE_F32), "not a live context");
}

TEST_F(Kit, WhatAnOpRefusesNamesTheCall) {
  tc_buffer *X = filled<f16>({1, 2, 3, 4}), *gamma = filled<f16>({1, 1, 1, 1}), *Y = empty(8), *rstd = empty(4);
  expect_refused(TC_ERR_INVALID_ARG, tc_rmsnorm_forward(ctx, X, gamma, Y, rstd, 1, 4, 0), "tc_rmsnorm_forward");
  EXPECT_NE(std::string(tc_last_error()).find("eps is 0"), std::string::npos) << tc_last_error();
  tc_buffer* shifted = nullptr;
  ASSERT_EQ(tc_buffer_from_ptr(ctx, mapped<f16>(X) + 1, 6, &shifted), TC_OK);
  expect_refused(TC_ERR_INVALID_ARG, tc_softmax_forward(ctx, X, shifted, 1, 3), "tc_softmax_forward");
  EXPECT_NE(std::string(tc_last_error()).find("overlaps"), std::string::npos) << tc_last_error();
}

TEST_F(Kit, ProgramsMapOnceAndReadAfterEveryCall) {
  tc_buffer *X = filled<f16>({1, 2, 3, 4}), *Y = empty(8);
  const f16* const y = mapped<f16>(Y);
  for (int round = 1; round <= 3; ++round) {
    mapped<f16>(X)[0] = f16(static_cast<float>(round));
    ASSERT_EQ(tc_add(ctx, X, X, Y, 4), TC_OK);
    EXPECT_EQ(static_cast<float>(y[0]), 2.0f * static_cast<float>(round));
  }
}

}  // namespace
}  // namespace tc::testing
