// Contexts, buffers, streams, statuses and devices: each sentence of traincore/device.h.
#include <cstdlib>
#include <set>
#include <thread>

#include "kit_test.h"
#include "traincore/kit/environment.h"

namespace tc::testing {
namespace {

static_assert(TC_OK == 0 && TC_ERR_NOT_INITIALIZED == -1 && TC_ERR_ALREADY_INITIALIZED == -2 &&
              TC_ERR_NO_DEVICE == -3 && TC_ERR_UNSUPPORTED_FAMILY == -4 && TC_ERR_UNSUPPORTED_DTYPE == -5 &&
              TC_ERR_INVALID_SHAPE == -6 && TC_ERR_INVALID_ARG == -7 && TC_ERR_ALLOC == -8 &&
              TC_ERR_KERNEL_NOT_FOUND == -9 && TC_ERR_PIPELINE == -10 && TC_ERR_DISPATCH == -11 &&
              TC_ERR_INTERNAL == -99);
static_assert(TC_DTYPE_F16 == 0 && TC_DTYPE_BF16 == 1 && TC_DTYPE_F32 == 2 && TC_DTYPE_I8 == 3 && TC_DTYPE_I32 == 4 &&
              TC_DTYPE_F64 == 5 && TC_DTYPE_I64 == 10 && TC_DTYPE_U8 == 11 && TC_DTYPE_BOOL == 12 &&
              TC_DTYPE_I16 == 13);
static_assert(TC_BACKEND_NONE == 0 && TC_BACKEND_PORTABLE_CPU == 7 && TC_BACKEND_CUDA == 9);
static_assert(TC_ACTIVATION_NONE == 0 && TC_ACTIVATION_SILU == 1 && TC_ACTIVATION_SIGMOID == 2 &&
              TC_ACTIVATION_GELU_TANH == 3 && TC_ACTIVATION_GELU_ERF == 4 && TC_ACTIVATION_QUICK_GELU == 5 &&
              TC_ACTIVATION_RELU == 6 && TC_ACTIVATION_RELU2 == 7 && TC_ACTIVATION_TANH == 8);
static_assert(sizeof(tc_status_t) == 4 && sizeof(tc_dtype_t) == 4 && sizeof(tc_backend_t) == 4);

tc_buffer* const kForeign = reinterpret_cast<tc_buffer*>(uintptr_t{0x1234});

TEST(KitContext, IsOnePerProcessAndCounted) {
  tc_context *first = nullptr, *second = nullptr;
  EXPECT_EQ(tc_init(&first), TC_OK);
  EXPECT_EQ(tc_init(&second), TC_ERR_ALREADY_INITIALIZED);
  EXPECT_EQ(first, second);
  EXPECT_EQ(tc_shutdown(first), TC_OK);
  tc_buffer* b = nullptr;
  EXPECT_EQ(tc_buffer_alloc(first, 8, &b), TC_OK) << "the second reference keeps the context";
  EXPECT_EQ(tc_shutdown(second), TC_OK);
  expect_refused(TC_ERR_INVALID_ARG, tc_shutdown(first), "not a live context");
  expect_refused(TC_ERR_INVALID_ARG, tc_buffer_alloc(first, 8, &b), "not a live context");
  void* p = nullptr;
  expect_refused(TC_ERR_INVALID_ARG, tc_buffer_map(b, &p), "not a live buffer");
}

TEST(KitContext, OfAnEarlierLifeIsStale) {
  tc_context *old = nullptr, *now = nullptr;
  ASSERT_EQ(tc_init(&old), TC_OK);
  ASSERT_EQ(tc_shutdown(old), TC_OK);
  ASSERT_EQ(tc_init(&now), TC_OK);
  EXPECT_NE(old, now);
  tc_buffer* b = nullptr;
  expect_refused(TC_ERR_INVALID_ARG, tc_buffer_alloc(old, 8, &b), "not a live context");
  EXPECT_EQ(tc_shutdown(now), TC_OK);
}

TEST(KitContext, NullIsNotInitialized) {
  tc_buffer* b = nullptr;
  tc_stream* s = nullptr;
  tc_device_info info;
  expect_refused(TC_ERR_NOT_INITIALIZED, tc_buffer_alloc(nullptr, 8, &b), "ctx is NULL");
  expect_refused(TC_ERR_NOT_INITIALIZED, tc_buffer_from_ptr(nullptr, &b, 8, &b), "ctx is NULL");
  expect_refused(TC_ERR_NOT_INITIALIZED, tc_buffer_free(nullptr, nullptr), "ctx is NULL");
  expect_refused(TC_ERR_NOT_INITIALIZED, tc_stream_create(nullptr, &s), "ctx is NULL");
  expect_refused(TC_ERR_NOT_INITIALIZED, tc_stream_destroy(nullptr, nullptr), "ctx is NULL");
  expect_refused(TC_ERR_NOT_INITIALIZED, tc_device_info_get(nullptr, &info), "ctx is NULL");
  expect_refused(TC_ERR_NOT_INITIALIZED, tc_cuda_init(nullptr), "ctx is NULL");
  expect_refused(TC_ERR_NOT_INITIALIZED, tc_cuda_select_device(nullptr, 0), "ctx is NULL");
  expect_refused(TC_ERR_NOT_INITIALIZED, tc_training_dtype(nullptr, TC_DTYPE_F32), "ctx is NULL");
  expect_refused(TC_ERR_NOT_INITIALIZED, tc_shutdown(nullptr), "ctx is NULL");
  expect_refused(TC_ERR_INVALID_ARG, tc_init(nullptr), "ctx is NULL");
  expect_refused(TC_ERR_NOT_INITIALIZED, tc_add(nullptr, nullptr, nullptr, nullptr, 1), "tc_add: ctx is NULL");
}

TEST_F(Kit, BuffersAreAlignedMemoryOfTheirSize) {
  tc_buffer* b = empty(100);
  EXPECT_EQ(tc_buffer_size(b), 100u);
  auto* const p = mapped<char>(b);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % 64, 0u);
  EXPECT_EQ(mapped<char>(b), p) << "the pointer is stable";
  EXPECT_EQ(tc_buffer_free(ctx, b), TC_OK);
}

TEST_F(Kit, FreedForeignAndStaleBuffersAreRefused) {
  tc_buffer *freed = empty(8), *live = empty(8);
  EXPECT_EQ(tc_buffer_free(ctx, freed), TC_OK);
  tc_buffer* reused = empty(8);  // takes the slot of the freed one
  void* p = nullptr;
  std::vector<char> memory(64);
  for (tc_buffer* bad : {freed, kForeign, reinterpret_cast<tc_buffer*>(memory.data()),
                         reinterpret_cast<tc_buffer*>(ctx), reinterpret_cast<tc_buffer*>(~uintptr_t{0})}) {
    expect_refused(TC_ERR_INVALID_ARG, tc_buffer_map(bad, &p), "not a live buffer");
    expect_refused(TC_ERR_INVALID_ARG, tc_buffer_free(ctx, bad), "not a live buffer");
    EXPECT_EQ(tc_buffer_size(bad), 0u);
    expect_refused(TC_ERR_INVALID_ARG, tc_add(ctx, live, bad, live, 1), "B is not a live buffer");
  }
  expect_refused(TC_ERR_INVALID_ARG, tc_buffer_map(nullptr, &p), "NULL");
  expect_refused(TC_ERR_INVALID_ARG, tc_buffer_map(live, nullptr), "data is NULL");
  expect_refused(TC_ERR_INVALID_ARG, tc_buffer_free(ctx, nullptr), "NULL");
  EXPECT_EQ(tc_buffer_size(nullptr), 0u);
  expect_refused(TC_ERR_INVALID_ARG, tc_add(ctx, live, nullptr, live, 1), "B is NULL");
  EXPECT_EQ(tc_buffer_size(reused), 8u) << "and the slot's next owner is untouched";
}

TEST_F(Kit, AbsurdSizesAreRefused) {
  tc_buffer* b = kForeign;
  for (const size_t bytes : {SIZE_MAX, SIZE_MAX / 2, size_t{1} << 60})
    expect_refused(TC_ERR_ALLOC, tc_buffer_alloc(ctx, bytes, &b), "bytes");
  expect_refused(TC_ERR_INVALID_ARG, tc_buffer_alloc(ctx, 0, &b), "bytes is 0");
  expect_refused(TC_ERR_INVALID_ARG, tc_buffer_alloc(ctx, 8, nullptr), "buffer is NULL");
  EXPECT_EQ(b, kForeign) << "nothing is written on failure";
}

TEST_F(Kit, CallersMemoryIsUsedWhereItLies) {
  std::vector<float> memory = {1, 2, 3};
  tc_buffer* b = nullptr;
  ASSERT_EQ(tc_buffer_from_ptr(ctx, memory.data(), 12, &b), TC_OK);
  EXPECT_EQ(mapped<float>(b), memory.data());
  EXPECT_EQ(tc_buffer_size(b), 12u);
  ASSERT_EQ(tc_training_dtype(ctx, TC_DTYPE_F32), TC_OK);
  EXPECT_EQ(tc_add(ctx, b, b, b, 3), TC_OK);
  EXPECT_EQ(tc_last_backend(), TC_BACKEND_PORTABLE_CPU);
  EXPECT_EQ(memory, (std::vector<float>{2, 4, 6}));
  EXPECT_EQ(tc_buffer_free(ctx, b), TC_OK);
  memory[0] = 7;  // not freed with the buffer
  expect_refused(TC_ERR_INVALID_ARG, tc_buffer_from_ptr(ctx, nullptr, 8, &b), "data is NULL");
  expect_refused(TC_ERR_INVALID_ARG, tc_buffer_from_ptr(ctx, memory.data(), 0, &b), "bytes is 0");
  expect_refused(TC_ERR_INVALID_ARG, tc_buffer_from_ptr(ctx, memory.data(), SIZE_MAX, &b), "address space");
  expect_refused(TC_ERR_INVALID_ARG, tc_buffer_from_ptr(ctx, memory.data(), 8, nullptr), "buffer is NULL");
}

TEST_F(Kit, StreamHandlesAreValidated) {
  tc_stream* s = nullptr;
  ASSERT_EQ(tc_stream_create(ctx, &s), TC_OK);
  EXPECT_EQ(tc_stream_sync(s), TC_OK);
  EXPECT_EQ(tc_stream_destroy(ctx, s), TC_OK);
  expect_refused(TC_ERR_INVALID_ARG, tc_stream_destroy(ctx, s), "not a live stream");
  expect_refused(TC_ERR_INVALID_ARG, tc_stream_sync(s), "not a live stream");
  expect_refused(TC_ERR_INVALID_ARG, tc_stream_sync(nullptr), "NULL");
  expect_refused(TC_ERR_INVALID_ARG, tc_stream_create(ctx, nullptr), "NULL");
}

TEST(KitContext, ShutdownEndsStreamsThatAreLeft) {
  tc_context* ctx = nullptr;
  tc_stream* s = nullptr;
  ASSERT_EQ(tc_init(&ctx), TC_OK);
  ASSERT_EQ(tc_stream_create(ctx, &s), TC_OK);
  EXPECT_EQ(tc_shutdown(ctx), TC_OK);
  expect_refused(TC_ERR_INVALID_ARG, tc_stream_sync(s), "not a live stream");
}

TEST_F(Kit, DeviceIsDescribed) {
  tc_device_info info;
  std::memset(&info, 0xff, sizeof info);
  ASSERT_EQ(tc_device_info_get(ctx, &info), TC_OK);
  EXPECT_GT(std::strlen(info.name), 0u);
  EXPECT_LT(std::strlen(info.name), sizeof info.name);
  EXPECT_GT(info.max_buffer_bytes, uint64_t{1} << 20);
  EXPECT_LE(info.recommended_working_set_bytes, info.max_buffer_bytes);
  EXPECT_GE(info.max_threads_per_threadgroup, 1u);
  EXPECT_GE(info.thread_execution_width, 1u);
  expect_refused(TC_ERR_INVALID_ARG, tc_device_info_get(ctx, nullptr), "info is NULL");
}

TEST_F(Kit, GpusAreRefusedWhereThereAreNone) {
  if (tc_cuda_device_count() > 0) GTEST_SKIP() << "there is one";
  tc_cuda_device_info info;
  expect_refused(TC_ERR_NO_DEVICE, tc_cuda_init(ctx), "no GPU");
  expect_refused(TC_ERR_NO_DEVICE, tc_cuda_device_at(0, &info), "no GPU");
  expect_refused(TC_ERR_NO_DEVICE, tc_cuda_select_device(ctx, 0), "no GPU");
  EXPECT_STREQ(tc_cuda_last_kernel_name(), "none");
}

TEST_F(Kit, GpusAreDescribedAndChosenWhereThereAreSome) {
  const int count = tc_cuda_device_count();
  if (count == 0) GTEST_SKIP() << "there is none";
  EXPECT_EQ(tc_cuda_init(ctx), TC_OK);
  tc_cuda_device_info info{};
  ASSERT_EQ(tc_cuda_device_at(count - 1, &info), TC_OK);
  EXPECT_GT(info.global_memory_bytes, 0u);
  EXPECT_EQ(tc_cuda_select_device(ctx, count - 1), TC_OK);
  expect_refused(TC_ERR_INVALID_ARG, tc_cuda_device_at(count, &info), "index");
  expect_refused(TC_ERR_INVALID_ARG, tc_cuda_device_at(-1, &info), "index");
  expect_refused(TC_ERR_INVALID_ARG, tc_cuda_select_device(ctx, count), "index");
}

TEST(KitNames, OfStatusesDtypesAndBackends) {
  EXPECT_STREQ(tc_status_string(TC_OK), "TC_OK");
  EXPECT_STREQ(tc_status_string(TC_ERR_INTERNAL), "TC_ERR_INTERNAL");
  std::set<std::string> names;
  for (const tc_dtype_t d : {TC_DTYPE_F16, TC_DTYPE_BF16, TC_DTYPE_F32, TC_DTYPE_I8, TC_DTYPE_I32, TC_DTYPE_F64,
                             TC_DTYPE_I64, TC_DTYPE_U8, TC_DTYPE_BOOL})
    names.insert(tc_dtype_name(d));
  EXPECT_EQ(names, (std::set<std::string>{"f16", "bf16", "f32", "i8", "i32", "f64", "i64", "u8", "bool"}));
  EXPECT_EQ(tc_dtype_size(TC_DTYPE_F16) + tc_dtype_size(TC_DTYPE_I16), 4u);
  EXPECT_EQ(tc_dtype_size(TC_DTYPE_F64) + tc_dtype_size(TC_DTYPE_BOOL), 9u);
  EXPECT_STREQ(tc_backend_name(TC_BACKEND_NONE), "none");
  EXPECT_STREQ(tc_backend_name(TC_BACKEND_PORTABLE_CPU), "portable_cpu");
  EXPECT_STREQ(tc_backend_name(TC_BACKEND_CUDA), "cuda");
  EXPECT_STREQ(tc_version(), "0.1.0");
}

TEST_F(Kit, LastBackendIsThisThreadsLastSuccess) {
  tc_buffer* b = filled<f16>({1, 2});
  std::thread([&] {
    EXPECT_EQ(tc_last_backend(), TC_BACKEND_NONE);
    EXPECT_NE(tc_add(ctx, b, b, b, 0), TC_OK);
    EXPECT_EQ(tc_last_backend(), TC_BACKEND_NONE) << "a refusal computes nothing";
    EXPECT_EQ(tc_add(ctx, b, b, b, 2), TC_OK);
    EXPECT_NE(tc_last_backend(), TC_BACKEND_NONE);
    EXPECT_NE(tc_add(ctx, b, b, b, 0), TC_OK);
    EXPECT_NE(tc_last_backend(), TC_BACKEND_NONE);
  }).join();
}

TEST_F(Kit, EnvironmentForcesTheCpuOnEveryCall) {
  EXPECT_FALSE(kit::environment_forces_cpu());
  tc_buffer* b = filled<f16>({1, 2});
  for (const char* value : {"1", "true", "YES", "On"}) {
    const Variable v("TC_DISABLE_CUDA_GEMM", value);
    EXPECT_TRUE(kit::environment_forces_cpu()) << value;
    EXPECT_EQ(tc_add(ctx, b, b, b, 2), TC_OK);
    EXPECT_EQ(tc_last_backend(), TC_BACKEND_PORTABLE_CPU);
  }
  for (const char* name : {"TC_CUDA_GEMM", "TC_USE_CUDA_GEMM"})
    for (const char* value : {"0", "false", "No", "OFF"}) {
      const Variable v(name, value);
      EXPECT_TRUE(kit::environment_forces_cpu()) << name << "=" << value;
    }
  const Variable off("TC_DISABLE_CUDA_GEMM", "0"), on("TC_CUDA_GEMM", "1"), empty("TC_USE_CUDA_GEMM", "");
  EXPECT_FALSE(kit::environment_forces_cpu());
}

}  // namespace
}  // namespace tc::testing
