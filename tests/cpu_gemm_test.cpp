// cpu/gemm against double, over shapes, layouts, dtypes, scalars and thread counts.
#include "traincore/cpu/gemm.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "traincore/core/error.h"
#include "traincore/core/numeric.h"
#include "traincore/cpu/parallel.h"
#include "traincore/cpu/vector.h"

namespace tc {
namespace {

enum class Order { rows, columns, neither, reversed_rows, shared_row };

// A random matrix of any dtype in memory of its own. Every byte in and around it that is no element is 0xff.
class Stored {
 public:
  Stored(int64_t rows, int64_t cols, int32_t dtype, Order order, int64_t offset, uint32_t seed)
      : rows_(rows), cols_(cols), dtype_(dtype) {
    const int64_t padding = 3;
    switch (order) {
      case Order::rows:
        row_stride = cols + padding;
        break;
      case Order::columns:
        row_stride = 1, col_stride = rows + padding;
        break;
      case Order::neither:
        col_stride = 2, row_stride = 2 * cols + padding;
        break;
      case Order::reversed_rows:
        row_stride = -(cols + padding);
        break;
      case Order::shared_row:
        row_stride = 0;
        break;
    }
    const int64_t row_span = (rows > 0 ? rows - 1 : 0) * std::abs(row_stride);
    const int64_t size = offset + row_span + (cols > 0 ? cols - 1 : 0) * col_stride + 1 + padding;
    start_ = offset + (row_stride < 0 ? row_span : 0);
    bytes.assign(static_cast<size_t>(size) * tc_dtype_size(dtype), 0xff);  // NaN in every float dtype
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < cols; ++j) {
        seed = seed * 1664525u + 1013904223u;
        const float value = static_cast<float>(seed >> 8) * 0x1p-23f - 1.0f;
        narrow(dtype, &value, 1, at(i, j));
      }
  }
  void* at(int64_t i, int64_t j) {
    return bytes.data() + (start_ + i * row_stride + j * col_stride) * static_cast<int64_t>(tc_dtype_size(dtype_));
  }
  float operator()(int64_t i, int64_t j) {
    float value;
    widen(dtype_, at(i, j), 1, &value);
    return value;
  }
  std::vector<double> values() {
    std::vector<double> all;
    for (int64_t i = 0; i < rows_; ++i)
      for (int64_t j = 0; j < cols_; ++j) all.push_back((*this)(i, j));
    return all;
  }
  void erase() {
    for (int64_t i = 0; i < rows_; ++i)
      for (int64_t j = 0; j < cols_; ++j) std::memset(at(i, j), 0xff, tc_dtype_size(dtype_));
  }
  GemmInput input() { return {at(0, 0), dtype_, row_stride, col_stride}; }
  GemmOutput output() { return {at(0, 0), dtype_, row_stride}; }

  std::vector<uint8_t> bytes;
  int64_t row_stride = 0, col_stride = 1;

 private:
  int64_t rows_, cols_;
  int32_t dtype_;
  int64_t start_;
};

struct Problem {
  int64_t m, n, k;
  Order a = Order::rows, b = Order::rows;
  int32_t a_dtype = TC_DTYPE_F32, b_dtype = TC_DTYPE_F32, c_dtype = TC_DTYPE_F32;
  float alpha = 1, beta = 0;
  int64_t offset = 0;
  Order c = Order::rows;
};

double half_ulp(int32_t dtype) {  // of 1
  return dtype == TC_DTYPE_F32 ? 0x1p-24 : dtype == TC_DTYPE_F16 ? 0x1p-11 : 0x1p-8;
}

// The product is right, gaps in and around C are untouched, and 1, 2 and 3 threads give the same bits.
void expect_right(const Problem& p) {
  SCOPED_TRACE(std::to_string(p.m) + "x" + std::to_string(p.n) + "x" + std::to_string(p.k));
  Stored a(p.m, p.k, p.a_dtype, p.a, p.offset, 1), b(p.k, p.n, p.b_dtype, p.b, p.offset, 2);
  Stored before(p.m, p.n, p.c_dtype, p.c, p.offset, 3);
  if (p.beta == 0) std::fill(before.bytes.begin(), before.bytes.end(), 0xff);
  Stored c = before;
  run_gemm({p.m, p.n, p.k, a.input(), b.input(), c.output(), p.alpha, p.beta}, 1);
  for (const int threads : {2, 3}) {
    Stored again = before;
    run_gemm({p.m, p.n, p.k, a.input(), b.input(), again.output(), p.alpha, p.beta}, threads);
    ASSERT_EQ(c.bytes, again.bytes) << threads << " threads";
  }
  const std::vector<double> av = a.values(), bv = b.values();
  for (int64_t i = 0; i < p.m; ++i)
    for (int64_t j = 0; j < p.n; ++j) {
      double sum = 0, magnitude = 0;
      for (int64_t l = 0; l < p.k; ++l) {
        const double term = av[static_cast<size_t>(i * p.k + l)] * bv[static_cast<size_t>(l * p.n + j)];
        sum += term, magnitude += std::abs(term);
      }
      const double old = p.beta == 0 ? 0 : p.beta * static_cast<double>(before(i, j));
      const double want = p.alpha * sum + old;
      magnitude = std::abs(p.alpha) * magnitude + std::abs(old);
      const double bound = (4 + std::sqrt(static_cast<double>(p.k)) / 2) * 0x1p-24 * magnitude +
                           half_ulp(p.c_dtype) * std::abs(want) + 0x1p-25;  // half of f16's least subnormal
      ASSERT_NEAR(c(i, j), want, bound) << "at " << i << ", " << j;
    }
  c.erase();
  for (const uint8_t byte : c.bytes) ASSERT_EQ(byte, 0xff) << "a byte outside C was written";
}

TEST(Gemm, AnyShapeAndTransposition) {
  const int64_t shapes[][3] = {{1, 1, 1},       {1, 7, 5},       {6, 1, 9},      {2, 3, 1},
                               {17, 31, 33},    {63, 65, 129},   {8, 100, 96},   {129, 64, 257},
                               {33, 70, 511},   {513, 257, 100}, {30, 300, 513}, {260, 67, 1025},
                               {400, 390, 530}, {1, 70, 5000},   {70, 1, 5000},  {1, 300, 64}};
  for (const auto& s : shapes)
    for (const Order a : {Order::rows, Order::columns})
      for (const Order b : {Order::rows, Order::columns}) expect_right({s[0], s[1], s[2], a, b});
}

TEST(Gemm, LongSumsAreCutIntoParts) {
  for (const Order a : {Order::rows, Order::columns})
    for (const float beta : {0.0f, -0.5f}) {
      expect_right({3, 5, 40000, a, Order::rows, TC_DTYPE_F32, TC_DTYPE_F32, TC_DTYPE_F32, 0.25f, beta});
      expect_right({70, 65, 5000, a, Order::columns, TC_DTYPE_BF16, TC_DTYPE_BF16, TC_DTYPE_BF16, 1, beta});
    }
}

TEST(Gemm, AnyStrides) {
  for (const Order a : {Order::neither, Order::reversed_rows, Order::shared_row})
    for (const Order b : {Order::rows, Order::neither, Order::shared_row})
      for (const int64_t m : {1, 19}) {
        expect_right({m, 67, 41, a, b});
        expect_right({m, 67, 41, a, b, TC_DTYPE_BF16, TC_DTYPE_F16});
      }
  for (const float beta : {0.0f, 2.0f}) {
    Problem reversed{9, 70, 12};
    reversed.c = Order::reversed_rows, reversed.beta = beta;
    expect_right(reversed);
  }
}

TEST(Gemm, AnyDtypesAndOffsets) {
  const int32_t dtypes[] = {TC_DTYPE_F32, TC_DTYPE_BF16, TC_DTYPE_F16};
  int64_t offset = 0;
  for (const int32_t a : dtypes)
    for (const int32_t b : dtypes)
      for (const int32_t c : dtypes)
        for (const float beta : {0.0f, 1.0f}) {
          offset = (offset + 1) % 7;
          expect_right({21, 37, 53, Order::rows, Order::columns, a, b, c, 1, beta, offset});
          expect_right({65, 33, 600, Order::columns, Order::rows, a, b, c, -0.75f, beta, offset});
        }
}

TEST(Gemm, Scalars) {
  for (const float alpha : {0.0f, 1.0f, -2.5f})
    for (const float beta : {0.0f, 1.0f, 0.3f})
      for (const int32_t c : {TC_DTYPE_F32, TC_DTYPE_F16})
        expect_right({34, 51, 75, Order::rows, Order::rows, TC_DTYPE_F32, TC_DTYPE_F32, c, alpha, beta});
}

TEST(Gemm, EmptySumsGiveBetaC) {
  for (const float beta : {0.0f, 1.0f, -3.0f})
    for (const int32_t c : {TC_DTYPE_F32, TC_DTYPE_BF16})
      expect_right({13, 300, 0, Order::rows, Order::columns, TC_DTYPE_F32, TC_DTYPE_F32, c, 1, beta});
}

TEST(Gemm, EmptyOutputsAreLeftAlone) {
  expect_right({0, 5, 3});
  expect_right({4, 0, 3});
  expect_right({0, 0, 0});
}

TEST(Gemm, AlphaZeroDoesNotReadTheInputs) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> a(6, nan), b(8, nan);
  std::vector<float> c(12, 2);
  run_gemm({3, 4, 2, {a.data(), TC_DTYPE_F32, 2, 1}, {b.data(), TC_DTYPE_F32, 4, 1}, {c.data(), TC_DTYPE_F32, 4}, 0, 3},
           1);
  for (const float value : c) EXPECT_EQ(value, 6);
}

// The tiles partition C, and each is final when the epilogue sees it, whichever way it was summed.
void expect_epilogue(int64_t m, int64_t n, int64_t k, int32_t dtype) {
  Stored a(m, k, dtype, Order::rows, 0, 1), b(k, n, dtype, Order::rows, 0, 2), c(m, n, dtype, Order::rows, 0, 3);
  std::vector<float> sums(static_cast<size_t>(m * n));  // the product without the epilogue, unrounded
  for (int64_t i = 0; i < m * n; ++i) sums[static_cast<size_t>(i)] = c(i / n, i % n);
  run_gemm({m, n, k, a.input(), b.input(), {sums.data(), TC_DTYPE_F32, n}, 0.5f, 1}, 1);

  const auto bend = [](float value, int64_t i, int64_t j) { return 2 * value + static_cast<float>(i % 7 - j % 5); };
  const auto bend_tile = [&](const GemmTile& t) {
    for (int64_t i = 0; i < t.rows; ++i)
      for (int64_t j = 0; j < t.cols; ++j) {
        float& value = t.values[i * t.stride + j];
        value = bend(value, t.row + i, t.col + j);
      }
  };
  const GemmEpilogue epilogue = bend_tile;
  run_gemm({m, n, k, a.input(), b.input(), c.output(), 0.5f, 1, &epilogue}, 2);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      const double want = bend(sums[static_cast<size_t>(i * n + j)], i, j);
      ASSERT_NEAR(c(i, j), want, 4 * half_ulp(dtype) * (1 + std::abs(want))) << "at " << i << ", " << j;
    }
}

TEST(Gemm, EpilogueSeesEveryElementOnce) {
  for (const int32_t dtype : {TC_DTYPE_F32, TC_DTYPE_BF16}) {
    expect_epilogue(150, 530, 40, dtype);
    expect_epilogue(5, 9, 9000, dtype);
    expect_epilogue(40, 30, 0, dtype);
  }
}

TEST(Gemm, RunsInsideAParallelLoop) {
  constexpr int64_t kSize = 70, kCount = 6;
  Stored a(kSize, kSize, TC_DTYPE_F32, Order::columns, 0, 1), b(kSize, kSize, TC_DTYPE_F32, Order::rows, 0, 2);
  const GemmInput left = a.input(), right = b.input();
  std::vector<std::vector<float>> results(kCount + 1, std::vector<float>(kSize * kSize));
  const auto run = [&](int64_t i) {
    run_gemm({kSize, kSize, kSize, left, right, {results[static_cast<size_t>(i)].data(), TC_DTYPE_F32, kSize}}, 0);
  };
  run(kCount);
  parallel_for(kCount, 3, run);
  for (int64_t i = 0; i < kCount; ++i) EXPECT_EQ(results[static_cast<size_t>(i)], results.back());
}

// A million threads would end the process: OpenMP has no way to say that it could not start one. So a process of its own
// asks for them, and ends by itself with the number of threads that it got.
TEST(ParallelForDeathTest, TakesAbsurdThreadCounts) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto workers_of_a_large_team = [] {
    constexpr int64_t kCount = int64_t{1} << 20;
    std::mutex mutex;
    std::set<std::thread::id> workers;
    std::atomic<int64_t> done = 0;
    parallel_for(kCount, INT32_MAX, [&](int64_t) {
      thread_local bool seen = false;
      if (!seen) {
        const std::lock_guard lock(mutex);
        workers.insert(std::this_thread::get_id());
        seen = true;
      }
      ++done;
    });
    return done == kCount ? workers.size() : 0;
  };
  const size_t most = std::max(64u, std::thread::hardware_concurrency());
  EXPECT_EXIT(
      {
        const size_t workers = workers_of_a_large_team();
        _exit(workers >= 1 && workers <= most ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST(ParallelFor, FirstExceptionLeavesIt) {
  for (const int threads : {1, 3})
    EXPECT_THROW(parallel_for(100, threads,
                              [](int64_t i) {
                                if (i % 10 == 7) throw Error(TC_ERR_PIPELINE, "here");
                              }),
                 Error);
}

}  // namespace
}  // namespace tc
