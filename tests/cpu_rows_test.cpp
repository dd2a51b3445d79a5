// Rows, conversions and vectors of traincore/cpu, on every SIMD target that this machine can run.
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "simd_test.h"
#include "traincore/cpu/vector.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/cpu_rows_test.cpp"
#include "hwy/foreach_target.h"
//
#include "traincore/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tc::HWY_NAMESPACE {
namespace {

int64_t lane_count() { return lanes(); }

template <class T>
void copy(const T* x, int64_t n, T* y) {
  for_row(n, [&](auto at) HWY_ATTR { at.store(y, at.load(x)); });
}
void copy_f32(const float* x, int64_t n, float* y) { copy(x, n, y); }
void copy_bf16(const bf16* x, int64_t n, bf16* y) { copy(x, n, y); }
void copy_f16(const f16* x, int64_t n, f16* y) { copy(x, n, y); }

float sum(const float* x, int64_t n) {
  return sum_row(n, [&](auto at) HWY_ATTR { return at.load(x); });
}
// Terms that are not 0, and not even finite, where the row has no element.
float sum_of_reciprocals(const float* x, int64_t n) {
  return sum_row(n, [&](auto at) HWY_ATTR { return hn::Div(set(1.0f), at.load(x)); });
}
std::array<float, 3> moments(const float* x, int64_t n) {
  return sums_row<3>(n, [&](auto at) HWY_ATTR {
    const V v = at.load(x);
    return std::array<V, 3>{set(1.0f), v, hn::Mul(v, v)};
  });
}
float max(const float* x, int64_t n) {
  return max_row(n, [&](auto at) HWY_ATTR { return at.load(x); });
}

}  // namespace
}  // namespace tc::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tc {
namespace {

HWY_EXPORT(lane_count);
HWY_EXPORT(copy_f32);
HWY_EXPORT(copy_bf16);
HWY_EXPORT(copy_f16);
HWY_EXPORT(sum);
HWY_EXPORT(sum_of_reciprocals);
HWY_EXPORT(moments);
HWY_EXPORT(max);

using testing::bits_of;
using testing::float_of;
using testing::kInf;
using testing::kNaN;

class CpuRows : public testing::OnTarget {
 protected:
  int64_t lanes() const { return HWY_DYNAMIC_DISPATCH(lane_count)(); }
};
INSTANTIATE_TEST_SUITE_P(Targets, CpuRows, ::testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         testing::target_name);

// n elements whose last one is the last of a page, with an inaccessible page behind it: reading or writing past the end
// is a crash. The bytes before the first element are canaries.
template <class T>
class GuardedRow {
 public:
  explicit GuardedRow(int64_t n) : bytes_(n * sizeof(T)), page_(sysconf(_SC_PAGESIZE)) {
    used_ = (bytes_ / page_ + 1) * page_;
    base_ = static_cast<unsigned char*>(
        mmap(nullptr, used_ + page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_EQ(mprotect(base_ + used_, page_, PROT_NONE), 0);
    std::memset(base_, kCanary, used_);
  }
  ~GuardedRow() {
    for (size_t i = 0; i < used_ - bytes_; ++i) EXPECT_EQ(base_[i], kCanary);
    munmap(base_, used_ + page_);
  }
  GuardedRow(const GuardedRow&) = delete;
  T* data() { return reinterpret_cast<T*>(base_ + used_ - bytes_); }

 private:
  static constexpr unsigned char kCanary = 0xa5;
  size_t bytes_, page_, used_;
  unsigned char* base_;
};

template <class T>
void expect_widens_exactly() {
  std::vector<T> from(65536);
  std::vector<float> to(from.size());
  for (size_t i = 0; i < from.size(); ++i) from[i].bits = static_cast<uint16_t>(i);
  widen(dtype_of<T>, from.data(), from.size(), to.data());
  for (size_t i = 0; i < from.size(); ++i) ASSERT_EQ(bits_of(to[i]), bits_of(static_cast<float>(from[i]))) << i;
}

template <class T>
void expect_narrows_exactly(const std::vector<float>& from) {
  std::vector<T> to(from.size());
  narrow(dtype_of<T>, from.data(), from.size(), to.data());
  for (size_t i = 0; i < from.size(); ++i) ASSERT_EQ(to[i].bits, T(from[i]).bits) << std::hexfloat << from[i];
}

// The neighbourhood of every value of T and of every midpoint between two of them.
template <class T>
std::vector<float> rounding_boundaries() {
  std::vector<float> values;
  for (uint32_t pattern = 0; pattern < 65536; ++pattern) {
    T low, high;
    low.bits = static_cast<uint16_t>(pattern);
    high.bits = static_cast<uint16_t>(pattern + 1);
    const uint32_t at = bits_of(static_cast<float>(low));
    const double sum = static_cast<double>(static_cast<float>(low)) + static_cast<double>(static_cast<float>(high));
    const uint32_t middle = bits_of(static_cast<float>(sum / 2));
    for (const uint32_t centre : {at, middle}) {
      for (const uint32_t bits : {centre - 1, centre, centre + 1}) values.push_back(float_of(bits));
    }
  }
  return values;
}

TEST_P(CpuRows, WidensEvery16BitPattern) {
  expect_widens_exactly<bf16>();
  expect_widens_exactly<f16>();
}

TEST_P(CpuRows, NarrowsAtEveryRoundingBoundary) {
  expect_narrows_exactly<bf16>(rounding_boundaries<bf16>());
  expect_narrows_exactly<f16>(rounding_boundaries<f16>());
}

TEST_P(CpuRows, NarrowsAcrossAllFloats) {
  constexpr uint64_t kStride = 251, kChunk = 1 << 16;
  std::vector<float> values;
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += kStride) {
    values.push_back(float_of(static_cast<uint32_t>(bits)));
    if (values.size() < kChunk && bits + kStride < uint64_t{1} << 32) continue;
    expect_narrows_exactly<bf16>(values);
    expect_narrows_exactly<f16>(values);
    if (HasFatalFailure()) return;
    values.clear();
  }
}

// The scalar conversions themselves, at values worked out by hand.
TEST(Numeric, ConvertsKnownValues) {
  EXPECT_EQ(f16(65519.996f).bits, 0x7bff);
  EXPECT_EQ(f16(65520.0f).bits, 0x7c00);
  EXPECT_EQ(f16(-kInf).bits, 0xfc00);
  EXPECT_EQ(f16(0x1p-24f).bits, 0x0001);
  EXPECT_EQ(f16(0x1p-25f).bits, 0x0000);
  EXPECT_EQ(f16(0x1.8p-24f).bits, 0x0002);
  EXPECT_EQ(f16(1.0f + 0x1p-11f).bits, 0x3c00);
  EXPECT_EQ(f16(1.0f + 0x1.8p-10f).bits, 0x3c02);
  EXPECT_EQ(bf16(1.0f + 0x1p-8f).bits, 0x3f80);
  EXPECT_EQ(bf16(1.0f + 0x1.8p-7f).bits, 0x3f82);
  EXPECT_EQ(bf16(0x1.fffffep127f).bits, 0x7f80);
  EXPECT_TRUE(std::isnan(static_cast<float>(bf16(float_of(0x7f800001)))));
  EXPECT_TRUE(std::isnan(static_cast<float>(f16(float_of(0xff800001)))));
}

template <class T, class Copy>
void expect_copies_exactly(int64_t n, Copy copy) {
  GuardedRow<T> from(n), to(n);
  for (int64_t i = 0; i < n; ++i) from.data()[i] = T(static_cast<float>(i + 1));
  copy(from.data(), n, to.data());
  for (int64_t i = 0; i < n; ++i) EXPECT_EQ(static_cast<float>(to.data()[i]), static_cast<float>(i + 1)) << n;
}

TEST_P(CpuRows, TouchesNothingOutsideARow) {
  for (int64_t n = 0; n <= 3 * lanes() + 1; ++n) {
    expect_copies_exactly<float>(n, [](auto... a) { HWY_DYNAMIC_DISPATCH(copy_f32)(a...); });
    expect_copies_exactly<bf16>(n, [](auto... a) { HWY_DYNAMIC_DISPATCH(copy_bf16)(a...); });
    expect_copies_exactly<f16>(n, [](auto... a) { HWY_DYNAMIC_DISPATCH(copy_f16)(a...); });
  }
}

TEST_P(CpuRows, SumsExactlyTheElementsOfARow) {
  for (int64_t n = 0; n <= 9 * lanes() + 1; ++n) {
    GuardedRow<float> x(n);
    for (int64_t i = 0; i < n; ++i) x.data()[i] = i % 2 ? -0.5f : 0.25f;
    const float pairs = static_cast<float>(n / 2), odd = static_cast<float>(n % 2);
    EXPECT_EQ(HWY_DYNAMIC_DISPATCH(sum)(x.data(), n), -0.25f * pairs + 0.25f * odd) << n;
    EXPECT_EQ(HWY_DYNAMIC_DISPATCH(sum_of_reciprocals)(x.data(), n), 2.0f * pairs + 4.0f * odd) << n;
    const std::array<float, 3> moments = HWY_DYNAMIC_DISPATCH(moments)(x.data(), n);
    EXPECT_EQ(moments[0], static_cast<float>(n));
    EXPECT_EQ(moments[1], -0.25f * pairs + 0.25f * odd) << n;
    EXPECT_EQ(moments[2], 0.3125f * pairs + 0.0625f * odd) << n;
  }
}

TEST_P(CpuRows, SumsAsWellAtFourMillionElementsAsAtAThousand) {
  std::mt19937 generator(11);
  std::uniform_real_distribution<float> uniform(0.0f, 1.0f);
  std::vector<float> x((1 << 22) + 3);
  for (float& value : x) value = uniform(generator);
  for (const int64_t n : {1, 7, 1000, 8191, 8192, 8193, 131072, (1 << 22) + 3}) {
    double exact = 0;
    float left_to_right = 0;
    for (int64_t i = 0; i < n; ++i) {
      exact += x[i];
      left_to_right += x[i];
    }
    const double error = std::abs(HWY_DYNAMIC_DISPATCH(sum)(x.data(), n) - exact) / exact;
    EXPECT_LE(error, 4e-7) << n;
    if (n >= 131072) {
      EXPECT_LT(error, std::abs(left_to_right - exact) / exact) << n;
    }
  }
}

TEST_P(CpuRows, PropagatesNonFiniteTermsThroughSums) {
  const int64_t n = 5 * lanes() + 1;
  std::vector<float> x(n, 1.0f);
  for (int64_t i = 0; i < n; ++i) {
    x[i] = kInf;
    EXPECT_EQ(HWY_DYNAMIC_DISPATCH(sum)(x.data(), n), kInf);
    x[i] = kNaN;
    EXPECT_TRUE(std::isnan(HWY_DYNAMIC_DISPATCH(sum)(x.data(), n)));
    x[i] = 1.0f;
  }
}

TEST_P(CpuRows, FindsTheMaximumAndPropagatesNaN) {
  EXPECT_EQ(HWY_DYNAMIC_DISPATCH(max)(nullptr, 0), -kInf);
  for (const int64_t n : {int64_t{1}, int64_t{3}, lanes(), lanes() + 1, 4 * lanes(), 9 * lanes() + 2}) {
    GuardedRow<float> row(n);
    float* x = row.data();
    std::fill(x, x + n, -kInf);
    EXPECT_EQ(HWY_DYNAMIC_DISPATCH(max)(x, n), -kInf);
    std::fill(x, x + n, -7.0f);
    for (int64_t i = 0; i < n; ++i) {
      for (const float value : {-3.0f, kInf, kNaN, -kNaN}) {
        x[i] = value;
        const float got = HWY_DYNAMIC_DISPATCH(max)(x, n);
        EXPECT_TRUE(std::isnan(value) ? std::isnan(got) : got == value) << i << " " << got;
      }
      x[i] = -7.0f;
    }
  }
}

template <class T>
tc_tensor vector_of(std::vector<T>& values) {
  const int64_t n = static_cast<int64_t>(values.size());
  return tc_tensor_dense(values.data(), dtype_of<T>, 1, &n);
}

TEST_P(CpuRows, ReadsVectorsOfAnyFloatDtype) {
  std::vector<float> scratch(37), plain(37);
  std::vector<f16> half(37);
  for (int i = 0; i < 37; ++i) half[i] = f16(plain[i] = 0.125f * static_cast<float>(i - 20));
  EXPECT_EQ(as_f32(vector_of(plain), scratch.data()), plain.data());
  EXPECT_EQ(as_f32(tc_tensor{}, scratch.data()), nullptr);
  ASSERT_EQ(as_f32(vector_of(half), scratch.data()), scratch.data());
  EXPECT_EQ(scratch, plain);
}

TEST_P(CpuRows, StoresAndAccumulatesVectors) {
  std::vector<float> values(37), plain(37, 0.5f);
  std::vector<bf16> half(37, bf16(9.0f));
  for (int i = 0; i < 37; ++i) values[i] = 0.125f * static_cast<float>(i - 20);
  store_as(vector_of(half), values.data(), false);
  for (int i = 0; i < 37; ++i) EXPECT_EQ(static_cast<float>(half[i]), values[i]);
  store_as(vector_of(plain), values.data(), true);
  for (int i = 0; i < 37; ++i) EXPECT_EQ(plain[i], 0.5f + values[i]);
  store_as(vector_of(plain), values.data(), false);
  EXPECT_EQ(plain, values);
}

}  // namespace
}  // namespace tc
#endif
