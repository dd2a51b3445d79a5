// Concurrent calls: run under ThreadSanitizer by .ci/run.
#include <atomic>
#include <functional>
#include <thread>

#include "kit_test.h"

namespace tc::testing {
namespace {

void on_threads(int count, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int t = 0; t < count; ++t) threads.emplace_back(body, t);
  for (std::thread& t : threads) t.join();
}

tc_gemm_desc product(int n) {
  tc_gemm_desc d{};
  d.M = d.N = d.K = n;
  d.a_dtype = d.b_dtype = d.c_dtype = TC_DTYPE_F16;
  d.accum_dtype = TC_DTYPE_F32;
  d.alpha = 1;
  return d;
}

TEST_F(Kit, ThreadsComputeOnBuffersOfTheirOwn) {
  const int n = 24;
  const auto a = normals(n * n, 1);
  tc_buffer* shared = filled<f16>(a);  // read by all
  tc_buffer* expected = empty(2 * n * n);
  const tc_gemm_desc d = product(n);
  ASSERT_EQ(tc_gemm(ctx, &d, shared, shared, expected), TC_OK) << tc_last_error();
  const auto want = read<f16>(expected, n * n);
  on_threads(6, [&](int) {
    tc_stream* s = nullptr;
    ASSERT_EQ(tc_stream_create(ctx, &s), TC_OK);
    for (int round = 0; round < 20; ++round) {
      tc_buffer *now = empty(2 * n * n), *later = empty(2 * n * n);
      ASSERT_EQ(tc_gemm_async(ctx, &d, shared, shared, later, s), TC_OK);
      ASSERT_EQ(tc_gemm(ctx, &d, shared, shared, now), TC_OK);
      ASSERT_EQ(tc_stream_sync(s), TC_OK);
      EXPECT_EQ(read<f16>(now, n * n), want);
      EXPECT_EQ(read<f16>(later, n * n), want);
      EXPECT_NE(tc_last_backend(), TC_BACKEND_NONE);
      ASSERT_EQ(tc_buffer_free(ctx, now), TC_OK);
      ASSERT_EQ(tc_buffer_free(ctx, later), TC_OK);
    }
    ASSERT_EQ(tc_stream_destroy(ctx, s), TC_OK);
  });
}

TEST_F(Kit, ThreadsFreeTheSameBufferOnce) {
  for (int round = 0; round < 50; ++round) {
    tc_buffer* b = empty(64);
    std::atomic<int> freed = 0, refused = 0;
    on_threads(4, [&](int) {
      void* p = nullptr;
      tc_buffer_map(b, &p);
      const tc_status_t status = tc_buffer_free(ctx, b);
      (status == TC_OK ? freed : refused) += 1;
      EXPECT_TRUE(status == TC_OK || status == TC_ERR_INVALID_ARG);
    });
    EXPECT_EQ(freed, 1);
    EXPECT_EQ(refused, 3);
  }
}

TEST_F(Kit, BuffersFreedUnderARunningCallLiveUntilItEnds) {
  const int n = 64;
  for (int round = 0; round < 20; ++round) {
    tc_buffer *A = filled<f16>(normals(n * n, 2)), *C = empty(2 * n * n);
    const tc_gemm_desc d = product(n);
    on_threads(2, [&](int t) {
      if (t == 0) {
        const tc_status_t status = tc_gemm(ctx, &d, A, A, C);
        EXPECT_TRUE(status == TC_OK || status == TC_ERR_INVALID_ARG) << tc_last_error();
      } else {
        EXPECT_EQ(tc_buffer_free(ctx, A), TC_OK);
        EXPECT_EQ(tc_buffer_free(ctx, C), TC_OK);
      }
    });
  }
}

TEST_F(Kit, ManyThreadsShareAStream) {
  tc_stream* s = nullptr;
  ASSERT_EQ(tc_stream_create(ctx, &s), TC_OK);
  const int n = 16;
  tc_buffer* A = filled<f16>(normals(n * n, 3));
  std::vector<tc_buffer*> results;
  for (int t = 0; t < 4; ++t) results.push_back(empty(2 * n * n));
  const tc_gemm_desc d = product(n);
  on_threads(4, [&](int t) {
    for (int round = 0; round < 25; ++round) {
      EXPECT_EQ(tc_gemm_async(ctx, &d, A, A, results[t], s), TC_OK);
      if (round % 5 == 0) {
        EXPECT_EQ(tc_stream_sync(s), TC_OK);
      }
    }
  });
  EXPECT_EQ(tc_stream_sync(s), TC_OK);
  for (tc_buffer* r : results) EXPECT_EQ(read<f16>(r, n * n), read<f16>(results[0], n * n));
}

TEST(KitThreads, ContextsComeAndGo) {
  on_threads(4, [](int) {
    for (int round = 0; round < 40; ++round) {
      tc_context* ctx = nullptr;
      const tc_status_t status = tc_init(&ctx);
      EXPECT_TRUE(status == TC_OK || status == TC_ERR_ALREADY_INITIALIZED);
      tc_buffer* b = nullptr;
      tc_stream* s = nullptr;
      EXPECT_EQ(tc_buffer_alloc(ctx, 8, &b), TC_OK) << tc_last_error();
      EXPECT_EQ(tc_stream_create(ctx, &s), TC_OK) << tc_last_error();
      void* p = nullptr;
      ASSERT_EQ(tc_buffer_map(b, &p), TC_OK);
      std::memset(p, 0, 8);
      EXPECT_EQ(tc_add(ctx, b, b, b, 4), TC_OK) << tc_last_error();
      EXPECT_EQ(tc_shutdown(ctx), TC_OK) << tc_last_error();
    }
  });
}

}  // namespace
}  // namespace tc::testing
