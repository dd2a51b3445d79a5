// Tests that run on every SIMD target that this machine can run.
#pragma once
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "hwy/targets.h"

namespace tc::testing {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

inline uint32_t bits_of(float v) { return __builtin_bit_cast(uint32_t, v); }
inline float float_of(uint32_t bits) { return __builtin_bit_cast(float, bits); }

// Runs the body of a test on one SIMD target.
class OnTarget : public ::testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { choose(GetParam()); }
  void TearDown() override { choose(0); }

 private:
  static void choose(int64_t targets) {
    hwy::SetSupportedTargetsForTest(targets);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

inline std::string target_name(const ::testing::TestParamInfo<int64_t>& info) { return hwy::TargetName(info.param); }

}  // namespace tc::testing
