// traincore/gemm.h against float64, and against integers.
#include <cstdint>

#include "kit_test.h"

namespace tc::testing {
namespace {

tc_gemm_desc desc_of(int M, int N, int K, int32_t dtype = TC_DTYPE_F16, int32_t c = -1) {
  tc_gemm_desc d{};
  d.M = M, d.N = N, d.K = K;
  d.a_dtype = d.b_dtype = dtype;
  d.c_dtype = c < 0 ? dtype : c;
  d.accum_dtype = TC_DTYPE_F32;
  d.alpha = 1;
  return d;
}

// The definition, on dense values: z = alpha op(A) op(B) + beta C.
std::vector<double> product(const tc_gemm_desc& d, const std::vector<double>& a, const std::vector<double>& b,
                            const std::vector<double>& c) {
  const int64_t M = d.M, N = d.N, K = d.K,
                lda = d.lda           ? d.lda
                      : d.transpose_a ? M
                                      : K,
                ldb = d.ldb           ? d.ldb
                      : d.transpose_b ? K
                                      : N;
  std::vector<double> z(M * N);
  for (int64_t i = 0; i < M; ++i)
    for (int64_t j = 0; j < N; ++j) {
      double sum = 0;
      for (int64_t l = 0; l < K; ++l)
        sum += a[d.transpose_a ? l * lda + i : i * lda + l] * b[d.transpose_b ? j * ldb + l : l * ldb + j];
      z[i * N + j] = d.alpha * sum + (d.beta != 0 ? d.beta * c[i * N + j] : 0);
    }
  return z;
}

template <class T, class C>
void check_product(Kit&, tc_context* ctx, const tc_gemm_desc& d, tc_buffer* A, tc_buffer* B, tc_buffer* out,
                   const std::vector<double>& a, const std::vector<double>& b, const std::vector<double>& c,
                   double tolerance) {
  ASSERT_EQ(tc_gemm(ctx, &d, A, B, out), TC_OK) << tc_last_error();
  void* p = nullptr;
  ASSERT_EQ(tc_buffer_map(out, &p), TC_OK);
  std::vector<double> got;
  for (int i = 0; i < d.M * d.N; ++i) got.push_back(static_cast<float>(static_cast<C*>(p)[i]));
  EXPECT_LT(rms_scaled(got, product(d, a, b, c)), tolerance);
}

TEST_F(Kit, GemmOf512CubedIsAccurate) {
  const int n = 512;
  const auto a = normals(n * n, 1), b = normals(n * n, 2);
  check_product<f16, f16>(*this, ctx, desc_of(n, n, n), filled<f16>(a), filled<f16>(b), empty(2 * n * n),
                          rounded_to<f16>(a), rounded_to<f16>(b), {}, 2.5e-4);
}

TEST_F(Kit, GemmServesEveryCombinationOfDtypes) {
  const int M = 19, N = 23, K = 67;
  const auto a = normals(M * K, 3), b = normals(K * N, 4);
  const auto check = [&]<class T, class C>(int32_t dtype, int32_t c_dtype, double tolerance) {
    check_product<T, C>(*this, ctx, desc_of(M, N, K, dtype, c_dtype), filled<T>(a), filled<T>(b), empty(4 * M * N),
                        rounded_to<T>(a), rounded_to<T>(b), {}, tolerance);
  };
  check.operator()<f16, f16>(TC_DTYPE_F16, TC_DTYPE_F16, 3e-4);
  check.operator()<bf16, bf16>(TC_DTYPE_BF16, TC_DTYPE_BF16, 3e-3);
  check.operator()<float, float>(TC_DTYPE_F32, TC_DTYPE_F32, 1e-6);
  check.operator()<f16, float>(TC_DTYPE_F16, TC_DTYPE_F32, 1e-6);
  check.operator()<bf16, float>(TC_DTYPE_BF16, TC_DTYPE_F32, 1e-6);
}

TEST_F(Kit, GemmTransposesPadsAndReadsShortLastRows) {
  for (const int t : {0, 1, 2, 3}) {
    tc_gemm_desc d = desc_of(7, 9, 11, TC_DTYPE_F32);
    d.transpose_a = t & 1, d.transpose_b = t >> 1;
    d.alpha = -0.5f, d.beta = 2;
    const int a_rows = d.transpose_a ? 11 : 7, a_cols = d.transpose_a ? 7 : 11, b_rows = d.transpose_b ? 9 : 11,
              b_cols = d.transpose_b ? 11 : 9;
    d.lda = a_cols + 3, d.ldb = b_cols + 5;
    const auto a = normals((a_rows - 1) * d.lda + a_cols, 5), b = normals((b_rows - 1) * d.ldb + b_cols, 6),
               c = normals(7 * 9, 7);
    check_product<float, float>(*this, ctx, d, filled<float>(a), filled<float>(b), filled<float>(c),
                                rounded_to<float>(a), rounded_to<float>(b), rounded_to<float>(c), 1e-6);
  }
}

TEST_F(Kit, GemmLeavesWhatLiesBetweenRowsOfCAlone) {
  tc_gemm_desc d = desc_of(3, 2, 1, TC_DTYPE_F32);
  d.ldc = 5;
  tc_buffer *A = filled<float>({1, 2, 3}), *B = filled<float>({1, 10}), *C = filled<float>(std::vector<float>(12, 7));
  ASSERT_EQ(tc_gemm(ctx, &d, A, B, C), TC_OK) << tc_last_error();
  EXPECT_EQ(read<float>(C, 12), (std::vector<double>{1, 10, 7, 7, 7, 2, 20, 7, 7, 7, 3, 30}));
}

TEST_F(Kit, GemmWithBetaZeroNeverReadsC) {
  const tc_gemm_desc d = desc_of(2, 2, 1, TC_DTYPE_F32);
  tc_buffer *A = filled<float>({1, 2}), *B = filled<float>({3, 4}), *C = empty(16);  // NaN
  ASSERT_EQ(tc_gemm(ctx, &d, A, B, C), TC_OK);
  EXPECT_EQ(read<float>(C, 4), (std::vector<double>{3, 4, 6, 8}));
}

TEST_F(Kit, GemmOfNoTermsGivesBetaC) {
  tc_gemm_desc d = desc_of(2, 1, 0, TC_DTYPE_F16);
  tc_buffer *A = empty(2), *B = empty(2), *C = filled<f16>({3, -4});
  d.beta = 0.5f;
  ASSERT_EQ(tc_gemm(ctx, &d, A, B, C), TC_OK) << tc_last_error();
  EXPECT_EQ(read<f16>(C, 2), (std::vector<double>{1.5, -2}));
  d.beta = 0;
  C = empty(4);
  ASSERT_EQ(tc_gemm(ctx, &d, A, B, C), TC_OK);
  EXPECT_EQ(read<f16>(C, 2), (std::vector<double>{0, 0}));
}

TEST_F(Kit, GemmAddsAResidual) {
  tc_gemm_desc d = desc_of(1, 2, 2);
  d.beta = 1;
  tc_buffer *A = filled<f16>({1, 2}), *B = filled<f16>({1, 0, 0, 1}), *C = filled<f16>({10, 20});
  ASSERT_EQ(tc_gemm(ctx, &d, A, B, C), TC_OK);
  EXPECT_EQ(read<f16>(C, 2), (std::vector<double>{11, 22}));
}

TEST_F(Kit, GemmRoundsToF16RightToTheLastBit) {
  const std::vector<float> values = {1.9999f, 70000, 65519, 65520, 0x1p-24f, 0x1.8p-25f, 0x1p-25f, -0x1.004p-15f};
  const int n = static_cast<int>(values.size());
  tc_gemm_desc d = desc_of(1, n, 1, TC_DTYPE_F16);
  // Powers of two times representable values give the f32 product exactly; one rounding is left.
  std::vector<float> halves;
  for (const float v : values) halves.push_back(v / 2);
  tc_gemm_desc wide = desc_of(1, n, 1, TC_DTYPE_F32);
  tc_buffer *two = filled<float>({2}), *H = filled<float>(halves), *W = empty(4 * n);
  ASSERT_EQ(tc_gemm(ctx, &wide, two, H, W), TC_OK);
  EXPECT_EQ(read<float>(W, n), rounded_to<float>(values));
  d.alpha = 1.9999f;
  tc_buffer *one = filled<f16>({1}), *ones = filled<f16>(std::vector<float>(n, 1)), *C = empty(2 * n);
  ASSERT_EQ(tc_gemm(ctx, &d, one, ones, C), TC_OK);
  EXPECT_EQ(read<f16>(C, 1)[0], 2);
  for (const float v : values) {
    d.alpha = v;
    ASSERT_EQ(tc_gemm(ctx, &d, one, ones, C), TC_OK);
    EXPECT_EQ(read<f16>(C, n)[n - 1], static_cast<double>(static_cast<float>(f16(v)))) << v;
  }
}

TEST_F(Kit, GemmOfIntegersIsExact) {
  tc_gemm_desc d = desc_of(5, 7, 3001, TC_DTYPE_I8, TC_DTYPE_I32);
  d.accum_dtype = TC_DTYPE_I32;
  std::mt19937 random(8);
  std::vector<float> a(5 * 3001), b(3001 * 7);
  for (float& v : a) v = static_cast<float>(static_cast<int>(random() % 256) - 128);
  for (float& v : b) v = static_cast<float>(random() % 3 ? -128 : 127);
  tc_buffer *A = filled<int8_t>(a), *B = filled<int8_t>(b), *C = empty(4 * 35);
  ASSERT_EQ(tc_gemm(ctx, &d, A, B, C), TC_OK) << tc_last_error();
  EXPECT_EQ(read<int32_t>(C, 35), product(d, rounded_to<float>(a), rounded_to<float>(b), {}));
  d.beta = 1;
  ASSERT_EQ(tc_gemm(ctx, &d, A, B, C), TC_OK);
  const auto once = product(desc_of(5, 7, 3001), rounded_to<float>(a), rounded_to<float>(b), {});
  EXPECT_EQ(read<int32_t>(C, 1)[0], 2 * once[0]);
}

TEST_F(Kit, GemmBatched) {
  tc_gemm_batched_desc d{};
  d.base = desc_of(2, 3, 4, TC_DTYPE_F32);
  d.batch = 5;
  d.stride_a = 2 * 4 + 1, d.stride_b = 0, d.stride_c = 2 * 3 + 2;
  const auto a = normals(5 * 9, 9), b = normals(12, 10);
  tc_buffer *A = filled<float>(a), *B = filled<float>(b), *C = empty(4 * 5 * 8);
  ASSERT_EQ(tc_gemm_batched(ctx, &d, A, B, C), TC_OK) << tc_last_error();
  const auto out = read<float>(C, 5 * 8 - 2);
  for (int i = 0; i < 5; ++i) {
    const std::vector<float> ai(a.begin() + 9 * i, a.begin() + 9 * i + 8);
    const auto want = product(d.base, rounded_to<float>(ai), rounded_to<float>(b), {});
    EXPECT_LT(rms_scaled({out.begin() + 8 * i, out.begin() + 8 * i + 6}, want), 1e-6);
  }
  EXPECT_TRUE(std::isnan(out[6])) << "between matrices of C nothing is written";
  d.stride_c = 0;
  expect_refused(TC_ERR_INVALID_ARG, tc_gemm_batched(ctx, &d, A, B, C), "overlaps itself");
  d.stride_c = -6;
  expect_refused(TC_ERR_INVALID_ARG, tc_gemm_batched(ctx, &d, A, B, C), "stride_c");
  d.stride_c = 9;
  expect_refused(TC_ERR_INVALID_SHAPE, tc_gemm_batched(ctx, &d, A, B, C), "C has");
  d.stride_c = INT64_MAX / 2;
  expect_refused(TC_ERR_INVALID_SHAPE, tc_gemm_batched(ctx, &d, A, B, C), "2^62");
  d.batch = 0;
  expect_refused(TC_ERR_INVALID_ARG, tc_gemm_batched(ctx, &d, A, B, C), "batch");
  expect_refused(TC_ERR_INVALID_ARG, tc_gemm_batched(ctx, nullptr, A, B, C), "desc");
}

TEST_F(Kit, GemmBiasAndActivationMeetTheUnroundedSum) {
  const tc_gemm_desc d = desc_of(3, 2, 2, TC_DTYPE_F16);
  tc_buffer *A = filled<f16>({1, 2, -3, 4, 0.5f, -6}), *B = filled<f16>({1, -1, 0.25f, 2}),
            *bias = filled<f16>({-2, 1}), *C = empty(12);
  for (int kind = TC_ACTIVATION_NONE; kind <= TC_ACTIVATION_TANH; ++kind) {
    ASSERT_EQ(tc_gemm_bias(ctx, &d, A, B, bias, static_cast<tc_activation_t>(kind), C), TC_OK) << tc_last_error();
    const std::vector<double> z = {-0.5, 4, -4, 12, -3, -11.5}, squared = {0, 16, 0, 144, 0, 0};
    if (kind == TC_ACTIVATION_NONE || kind == TC_ACTIVATION_RELU2) {
      EXPECT_EQ(read<f16>(C, 6), kind == TC_ACTIVATION_NONE ? z : squared);
    }
  }
  expect_refused(TC_ERR_INVALID_ARG, tc_gemm_bias(ctx, &d, A, B, nullptr, TC_ACTIVATION_RELU, C), "bias is NULL");
  expect_refused(TC_ERR_INVALID_ARG, tc_gemm_bias(ctx, &d, A, B, bias, static_cast<tc_activation_t>(9), C),
                 "activation");
  expect_refused(TC_ERR_INVALID_SHAPE, tc_gemm_bias(ctx, &d, A, B, filled<f16>({1}), TC_ACTIVATION_NONE, C), "bias");
}

TEST_F(Kit, GemmRefusesInItsOrder) {
  const tc_gemm_desc good = desc_of(2, 3, 4);
  tc_buffer *A = empty(16), *B = empty(24), *C = empty(12);
  const auto refuse = [&](tc_status_t want, const std::string& word, auto change) {
    tc_gemm_desc d = good;
    change(d);
    expect_refused(want, tc_gemm(ctx, &d, A, B, C), word);
  };
  for (const int32_t bad : {0, -1, INT32_MIN}) {
    refuse(TC_ERR_INVALID_ARG, "M is", [=](auto& d) { d.M = bad; });
    refuse(TC_ERR_INVALID_ARG, "N is", [=](auto& d) { d.N = bad; });
  }
  refuse(TC_ERR_INVALID_ARG, "K is", [](auto& d) { d.K = -1; });
  refuse(TC_ERR_INVALID_ARG, "lda", [](auto& d) { d.lda = -4; });
  refuse(TC_ERR_INVALID_ARG, "leading dimension of A", [](auto& d) { d.lda = 3; });
  refuse(TC_ERR_INVALID_ARG, "leading dimension of B", [](auto& d) { d.ldb = 2; });
  refuse(TC_ERR_INVALID_ARG, "leading dimension of C", [](auto& d) { d.ldc = 1; });
  refuse(TC_ERR_INVALID_SHAPE, "A has 16 bytes", [](auto& d) { d.M = 3; });
  refuse(TC_ERR_INVALID_SHAPE, "B has", [](auto& d) { d.N = 4; });
  refuse(TC_ERR_INVALID_SHAPE, "C has", [](auto& d) { d.ldc = 4; });
  refuse(TC_ERR_INVALID_SHAPE, "2^62", [](auto& d) { d.M = d.N = d.K = INT32_MAX; });
  for (const int32_t accum : {0, 4, 5, -3, 999})
    refuse(TC_ERR_UNSUPPORTED_DTYPE, "accum", [=](auto& d) { d.accum_dtype = accum; });
  refuse(TC_ERR_UNSUPPORTED_DTYPE, "b bf16", [](auto& d) { d.b_dtype = TC_DTYPE_BF16; });
  refuse(TC_ERR_UNSUPPORTED_DTYPE, "c bf16", [](auto& d) { d.c_dtype = TC_DTYPE_BF16; });
  refuse(TC_ERR_UNSUPPORTED_DTYPE, "a is f64", [](auto& d) { d.a_dtype = d.b_dtype = d.c_dtype = TC_DTYPE_F64; });
  refuse(TC_ERR_UNSUPPORTED_DTYPE, "accum f32",
         [](auto& d) { d.a_dtype = d.b_dtype = TC_DTYPE_I8, d.c_dtype = TC_DTYPE_I32; });
  refuse(TC_ERR_INVALID_ARG, "alpha", [](auto& d) { d.alpha = std::nanf(""); });
  expect_refused(TC_ERR_INVALID_ARG, tc_gemm(ctx, nullptr, A, B, C), "desc is NULL");
  expect_refused(TC_ERR_INVALID_ARG, tc_gemm(ctx, &good, nullptr, B, C), "A is NULL");
  expect_refused(TC_ERR_INVALID_ARG, tc_gemm(ctx, &good, A, nullptr, C), "B is NULL");
  expect_refused(TC_ERR_INVALID_ARG, tc_gemm(ctx, &good, A, B, nullptr), "C is NULL");
  expect_refused(TC_ERR_NOT_INITIALIZED, tc_gemm(nullptr, &good, A, B, C), "tc_gemm: ctx is NULL");
  expect_refused(TC_ERR_INVALID_ARG, tc_gemm(ctx, &good, A, B, A), "overlaps");
  EXPECT_TRUE(std::isnan(read<f16>(C, 1)[0])) << "a refusal writes nothing";
}

TEST_F(Kit, AsyncGemmRunsOnTheStreamInOrder) {
  const int n = 256;
  tc_stream* s = nullptr;
  ASSERT_EQ(tc_stream_create(ctx, &s), TC_OK);
  const auto a = normals(n * n, 11, 0.1f);
  tc_gemm_desc d = desc_of(n, n, n, TC_DTYPE_F32);
  tc_buffer *A = filled<float>(a), *X = filled<float>(a), *Y = empty(4 * n * n), *want_x = filled<float>(a),
            *want_y = empty(4 * n * n);
  for (int i = 0; i < 8; ++i) {
    ASSERT_EQ(tc_gemm_async(ctx, &d, A, i % 2 ? Y : X, i % 2 ? X : Y, s), TC_OK) << tc_last_error();
    ASSERT_EQ(tc_gemm(ctx, &d, A, i % 2 ? want_y : want_x, i % 2 ? want_x : want_y), TC_OK);
  }
  EXPECT_EQ(tc_buffer_free(ctx, A), TC_OK) << "calls in flight keep their buffers";
  ASSERT_EQ(tc_stream_sync(s), TC_OK);
  EXPECT_EQ(read<float>(X, n * n), read<float>(want_x, n * n));
  expect_refused(TC_ERR_INVALID_ARG, tc_gemm_async(ctx, &d, A, X, Y, s), "A is not a live buffer");
  d.M = 0;
  expect_refused(TC_ERR_INVALID_ARG, tc_gemm_async(ctx, &d, X, X, Y, s), "M is 0");
  d.M = n;
  EXPECT_EQ(tc_gemm_async(ctx, &d, X, X, Y, nullptr), TC_OK) << "no stream: now";
  EXPECT_EQ(tc_stream_destroy(ctx, s), TC_OK);
  expect_refused(TC_ERR_INVALID_ARG, tc_gemm_async(ctx, &d, X, X, Y, s), "not a live stream");
}

TEST_F(Kit, AsyncCallsReturnBeforeTheyHaveRun) {
  const int n = 1024;
  tc_stream* s = nullptr;
  ASSERT_EQ(tc_stream_create(ctx, &s), TC_OK);
  tc_gemm_desc d = desc_of(n, n, n, TC_DTYPE_F32);
  tc_buffer *A = filled<float>(std::vector<float>(n * n, 1)), *C = empty(4 * n * n);
  const auto* const last = mapped<float>(C) + n * n - 1;
  for (int i = 0; i < 4; ++i) ASSERT_EQ(tc_gemm_async(ctx, &d, A, A, C, s), TC_OK);
  const bool finished = !std::isnan(*const_cast<const volatile float*>(last));
  ASSERT_EQ(tc_stream_sync(s), TC_OK);
  EXPECT_FALSE(finished) << "four products of 1024^3 had run before the call returned";
  EXPECT_EQ(*last, n);
}

}  // namespace
}  // namespace tc::testing
