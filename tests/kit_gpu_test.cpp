// The kit where there is a GPU: what runs there, what forces a call off it, and that mapped memory is one memory for
// both. Every other kit test runs there too; without a GPU these are skipped.
#include <functional>
#include <thread>

#include "kit_test.h"

namespace tc::testing {
namespace {

using Call = std::function<tc_status_t()>;

class KitGpu : public Kit {
 protected:
  void SetUp() override {
    if (tc_cuda_device_count() == 0) GTEST_SKIP() << "there is no GPU here";
  }
  // The backend that served the call, which is not left over from one before.
  tc_backend_t backend_of(const Call& call) {
    static float host = 0;
    tc_buffer* b = nullptr;
    EXPECT_EQ(tc_buffer_from_ptr(ctx, &host, sizeof host, &b), TC_OK);
    EXPECT_EQ(tc_add(ctx, b, b, b, 1), TC_OK) << tc_last_error();
    EXPECT_EQ(tc_last_backend(), TC_BACKEND_PORTABLE_CPU);
    EXPECT_EQ(tc_buffer_free(ctx, b), TC_OK);
    EXPECT_EQ(call(), TC_OK) << tc_last_error();
    return tc_last_backend();
  }
};

TEST_F(KitGpu, ServesEveryCallThatHasKernelsThere) {
  const int N = 4, D = 64, n = N * D;
  tc_buffer *X = filled<f16>(normals(n, 1)), *gamma = filled<f16>(normals(D, 2)), *beta = filled<f16>(normals(D, 3)),
            *dY = filled<f16>(normals(n, 4)), *Y = empty(2 * n), *dX = empty(2 * n), *dup = empty(2 * n),
            *mean = empty(4 * N), *rstd = empty(4 * N), *dgamma = empty(4 * D), *dbeta = empty(4 * D),
            *cos_t = empty(4 * N * D / 2), *sin_t = empty(4 * N * D / 2), *P = filled<float>(normals(n, 5)),
            *B = filled<bf16>(normals(n, 5)), *M = filled<float>(std::vector<float>(n)),
            *V = filled<float>(std::vector<float>(n));
  const std::vector<std::pair<const char*, Call>> calls = {
      {"rmsnorm_forward", [&] { return tc_rmsnorm_forward(ctx, X, gamma, Y, rstd, N, D, 1e-6f); }},
      {"rmsnorm_backward", [&] { return tc_rmsnorm_backward(ctx, X, gamma, dY, rstd, dX, dgamma, N, D); }},
      {"layernorm_forward", [&] { return tc_layernorm_forward(ctx, X, gamma, beta, Y, mean, rstd, N, D, 1e-6f); }},
      {"layernorm_backward", [&] { return tc_layernorm_backward(ctx, X, gamma, dY, mean, rstd, dX, N, D); }},
      {"layernorm_backward_params",
       [&] { return tc_layernorm_backward_params(ctx, X, dY, mean, rstd, dgamma, dbeta, N, D); }},
      {"rope_tables", [&] { return tc_rope_tables(ctx, cos_t, sin_t, N, D, 1e4, 1); }},
      {"rope_forward", [&] { return tc_rope_forward(ctx, Y, cos_t, sin_t, 1, 1, N, D); }},
      {"rope_backward", [&] { return tc_rope_backward(ctx, Y, cos_t, sin_t, 1, 1, N, D); }},
      {"swiglu_forward", [&] { return tc_swiglu_forward(ctx, X, dY, Y, n); }},
      {"swiglu_backward", [&] { return tc_swiglu_backward(ctx, X, Y, dY, dX, dup, n); }},
      {"softmax_forward", [&] { return tc_softmax_forward(ctx, X, Y, N, D); }},
      {"softmax_backward", [&] { return tc_softmax_backward(ctx, Y, dY, dX, N, D); }},
      {"adamw_step",
       [&] { return tc_adamw_step(ctx, P, M, V, dY, TC_DTYPE_F16, n, 1e-3f, 0.9f, 0.99f, 1e-8f, 0, 1, 1); }},
      {"adamw_step_bf16",
       [&] { return tc_adamw_step_bf16(ctx, B, M, V, dY, TC_DTYPE_F16, n, 1e-3f, 0.9f, 0.99f, 1e-8f, 0, 1, 1, 5); }},
      {"add", [&] { return tc_add(ctx, X, dY, Y, n); }},
      {"split_heads", [&] { return tc_split_heads(ctx, X, Y, nullptr, nullptr, 1, N, 4, 0, D / 4); }},
      {"merge_heads", [&] { return tc_merge_heads(ctx, Y, nullptr, nullptr, dX, 1, N, 4, 0, D / 4); }},
  };
  for (const auto& [name, call] : calls) EXPECT_EQ(backend_of(call), TC_BACKEND_CUDA) << name;
  ASSERT_EQ(tc_rmsnorm_forward(ctx, X, gamma, Y, rstd, N, D, 1e-6f), TC_OK);
  EXPECT_STREQ(tc_cuda_last_kernel_name(), "rmsnorm_forward");
}

TEST_F(KitGpu, TheEnvironmentForcesTheCpuCallByCall) {
  const int n = 1000;
  tc_buffer *A = filled<f16>(normals(n, 1)), *B = filled<f16>(normals(n, 2)), *Y = empty(2 * n);
  const Call add = [&] { return tc_add(ctx, A, B, Y, n); };
  ASSERT_EQ(backend_of(add), TC_BACKEND_CUDA);
  const auto on_gpu = read<f16>(Y, n);
  for (const auto& [name, value] :
       {std::pair{"TC_DISABLE_CUDA_GEMM", "1"}, {"TC_CUDA_GEMM", "0"}, {"TC_USE_CUDA_GEMM", "OFF"}}) {
    std::memset(mapped<char>(Y), 0xff, 2 * n);
    {
      const Variable v(name, value);
      EXPECT_EQ(backend_of(add), TC_BACKEND_PORTABLE_CPU) << name;
    }
    EXPECT_EQ(read<f16>(Y, n), on_gpu) << "a sum rounded once is the same everywhere";
    EXPECT_EQ(backend_of(add), TC_BACKEND_CUDA) << name << " is no longer set";
  }
}

TEST_F(KitGpu, ACallWithHostMemoryRunsOnTheCpu) {
  std::vector<f16> host(8, f16(1));
  tc_buffer *lent = nullptr, *A = filled<f16>(std::vector<float>(8, 2)), *Y = empty(16);
  ASSERT_EQ(tc_buffer_from_ptr(ctx, host.data(), 16, &lent), TC_OK);
  EXPECT_EQ(backend_of([&] { return tc_add(ctx, A, lent, Y, 8); }), TC_BACKEND_PORTABLE_CPU);
  EXPECT_EQ(read<f16>(Y, 8), std::vector<double>(8, 3));
  EXPECT_EQ(backend_of([&] { return tc_add(ctx, A, Y, Y, 8); }), TC_BACKEND_CUDA);
  EXPECT_EQ(read<f16>(Y, 8), std::vector<double>(8, 5));
}

// Written by the host, a GPU call, a CPU call and a GPU call in turn, read after each through pointers mapped once.
TEST_F(KitGpu, MappedMemoryIsOneMemory) {
  const int n = 1 << 18;  // several pages
  ASSERT_EQ(tc_training_dtype(ctx, TC_DTYPE_F32), TC_OK);
  tc_buffer *X = empty(4 * n), *Y = empty(4 * n);
  auto *const x = mapped<float>(X), *const y = mapped<float>(Y);
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < n; ++i) x[i] = static_cast<float>(i % 1000 + round);
    ASSERT_EQ(backend_of([&] { return tc_add(ctx, X, X, Y, n); }), TC_BACKEND_CUDA);
    for (int i = 0; i < n; ++i) ASSERT_EQ(y[i], 2 * x[i]) << i;
    {
      const Variable v("TC_DISABLE_CUDA_GEMM", "1");
      ASSERT_EQ(backend_of([&] { return tc_add(ctx, X, Y, X, n); }), TC_BACKEND_PORTABLE_CPU);
    }
    y[n - 1] += 1;
    ASSERT_EQ(backend_of([&] { return tc_add(ctx, X, Y, Y, n); }), TC_BACKEND_CUDA);
    for (int i = 0; i < n; ++i) ASSERT_EQ(y[i], 5.0f * static_cast<float>(i % 1000 + round) + (i == n - 1)) << i;
  }
  EXPECT_EQ(mapped<float>(X), x);
  EXPECT_EQ(mapped<float>(Y), y);
}

TEST_F(KitGpu, StreamsSeeWhatCallsBeforeThemWrote) {
  const int n = 64;
  ASSERT_EQ(tc_training_dtype(ctx, TC_DTYPE_F32), TC_OK);
  std::vector<float> ones(n * n, 1), identity(n * n);
  for (int i = 0; i < n; ++i) identity[i * n + i] = 1;
  tc_buffer *A = filled<float>(ones), *I = filled<float>(identity), *C = empty(4 * n * n);
  tc_gemm_desc d{};
  d.M = d.N = d.K = n;
  d.a_dtype = d.b_dtype = d.c_dtype = d.accum_dtype = TC_DTYPE_F32;
  d.alpha = 1;
  tc_stream* s = nullptr;
  ASSERT_EQ(tc_stream_create(ctx, &s), TC_OK);
  for (int round = 1; round <= 8; ++round) {
    ASSERT_EQ(tc_add(ctx, A, A, A, n * n), TC_OK) << tc_last_error();
    EXPECT_EQ(tc_last_backend(), TC_BACKEND_CUDA);
    ASSERT_EQ(tc_gemm_async(ctx, &d, A, I, C, s), TC_OK) << tc_last_error();
    ASSERT_EQ(tc_stream_sync(s), TC_OK) << tc_last_error();
    EXPECT_EQ(read<float>(C, n * n), std::vector<double>(n * n, 1 << round));
  }
}

TEST_F(KitGpu, ThreadsComputeTheSameBitsAtOnce) {
  const int N = 33, D = 1000;
  tc_buffer *X = filled<f16>(normals(N * D, 1)), *gamma = filled<f16>(normals(D, 2)),
            *dY = filled<f16>(normals(N * D, 3));
  const auto run = [&] {
    tc_buffer *Y = empty(2 * N * D), *rstd = empty(4 * N), *dX = empty(2 * N * D), *dgamma = empty(4 * D);
    EXPECT_EQ(tc_rmsnorm_forward(ctx, X, gamma, Y, rstd, N, D, 1e-6f), TC_OK) << tc_last_error();
    EXPECT_EQ(tc_rmsnorm_backward(ctx, X, gamma, dY, rstd, dX, dgamma, N, D), TC_OK) << tc_last_error();
    EXPECT_EQ(tc_last_backend(), TC_BACKEND_CUDA);
    std::vector<std::vector<double>> results = {read<f16>(Y, N * D), read<f16>(dX, N * D), read<float>(dgamma, D)};
    for (tc_buffer* b : {Y, rstd, dX, dgamma}) EXPECT_EQ(tc_buffer_free(ctx, b), TC_OK);
    return results;
  };
  const auto want = run();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int round = 0; round < 20; ++round) EXPECT_EQ(run(), want);
    });
  for (std::thread& t : threads) t.join();
}

TEST_F(KitGpu, MoreThanTheDeviceHasIsRefused) {
  tc_cuda_device_info info{};
  ASSERT_EQ(tc_cuda_device_at(0, &info), TC_OK);
  tc_buffer* b = nullptr;
  expect_refused(TC_ERR_ALLOC, tc_buffer_alloc(ctx, info.global_memory_bytes + 1, &b), "free");
  EXPECT_EQ(b, nullptr);
  EXPECT_EQ(tc_buffer_alloc(ctx, 8, &b), TC_OK) << tc_last_error();
}

TEST_F(KitGpu, EveryDeviceServesBuffersOfAnyOther) {
  tc_buffer* A = filled<f16>({1, 2, 3, 4});
  for (int device = 0; device < tc_cuda_device_count(); ++device) {
    ASSERT_EQ(tc_cuda_select_device(ctx, device), TC_OK);
    tc_buffer* Y = empty(8);
    EXPECT_EQ(backend_of([&] { return tc_add(ctx, A, A, Y, 4); }), TC_BACKEND_CUDA);
    EXPECT_EQ(read<f16>(Y, 4), (std::vector<double>{2, 4, 6, 8})) << "device " << device;
  }
}

}  // namespace
}  // namespace tc::testing
