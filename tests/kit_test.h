// A context per test, and buffers filled from vectors.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "traincore/core/numeric.h"
#include "traincore/traincore.h"

namespace tc::testing {

class Kit : public ::testing::Test {
 protected:
  Kit() { EXPECT_EQ(tc_init(&ctx), TC_OK) << tc_last_error(); }
  ~Kit() override { EXPECT_EQ(tc_shutdown(ctx), TC_OK) << tc_last_error(); }
  Kit(const Kit&) = delete;
  Kit& operator=(const Kit&) = delete;

  tc_buffer* empty(size_t bytes) {
    tc_buffer* b = nullptr;
    EXPECT_EQ(tc_buffer_alloc(ctx, bytes, &b), TC_OK) << tc_last_error();
    std::memset(mapped<char>(b), 0xff, bytes);  // NaN in every float dtype
    return b;
  }
  template <class T>
  static T* mapped(tc_buffer* b) {
    void* p = nullptr;
    EXPECT_EQ(tc_buffer_map(b, &p), TC_OK) << tc_last_error();
    return static_cast<T*>(p);
  }
  template <class T>
  tc_buffer* filled(const std::vector<float>& values) {
    tc_buffer* b = empty(std::max<size_t>(values.size(), 1) * sizeof(T));
    std::transform(values.begin(), values.end(), mapped<T>(b), [](float v) { return static_cast<T>(v); });
    return b;
  }
  template <class T>
  static std::vector<double> read(tc_buffer* b, size_t count) {
    std::vector<double> values(count);
    const T* const p = mapped<T>(b);
    for (size_t i = 0; i < count; ++i) {
      if constexpr (std::is_arithmetic_v<T>)
        values[i] = static_cast<double>(p[i]);
      else
        values[i] = static_cast<float>(p[i]);
    }
    return values;
  }

  tc_context* ctx = nullptr;
};

inline std::vector<float> normals(size_t n, unsigned seed, float scale = 1) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> distribution(0, scale);
  std::vector<float> values(n);
  for (float& v : values) v = distribution(generator);
  return values;
}

// The values as a buffer of T holds them.
template <class T>
std::vector<double> rounded_to(const std::vector<float>& values) {
  std::vector<double> r;
  for (const float v : values) r.push_back(static_cast<float>(static_cast<T>(v)));
  return r;
}

// sqrt(mean d^2) / sqrt(mean ref^2).
inline double rms_scaled(const std::vector<double>& got, const std::vector<double>& want) {
  double difference = 0, reference = 1e-300;
  for (size_t i = 0; i < want.size(); ++i) {
    difference += (got[i] - want[i]) * (got[i] - want[i]);
    reference += want[i] * want[i];
  }
  return std::sqrt(difference / reference);
}

// A variable of the environment for as long as this lives.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

// A refusal has its status and a sentence that names `word`.
inline void expect_refused(tc_status_t want, tc_status_t got, const std::string& word) {
  EXPECT_EQ(got, want) << tc_last_error();
  EXPECT_NE(std::string(tc_last_error()).find(word), std::string::npos) << tc_last_error();
}

}  // namespace tc::testing
