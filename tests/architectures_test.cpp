#include "traincore/cuda/architectures.h"

#include <gtest/gtest.h>

namespace tc::cuda {
namespace {

TEST(Architectures, AGpuRunsTheNewestCodeThatServesIt) {
  EXPECT_EQ(code_for(90, "80,90-real"), 90);
  EXPECT_EQ(code_for(80, "80,90-real"), 80);
  EXPECT_EQ(code_for(89, "80,90-real"), 80);
  EXPECT_EQ(code_for(86, "80-real,86-real,90-real"), 86);
}

TEST(Architectures, AGpuWithoutCodeOfItsOwnRunsPtx) {
  EXPECT_EQ(code_for(100, "80,90-real"), 80);
  EXPECT_EQ(code_for(120, "80-virtual,90-real"), 80);
  EXPECT_EQ(code_for(90, "80"), 80);
  EXPECT_EQ(code_for(120, "80,90"), 90);
}

TEST(Architectures, SomeServeNobodyElse) {
  EXPECT_EQ(code_for(75, "80,90-real"), 0);
  EXPECT_EQ(code_for(100, "90-real"), 0);
  EXPECT_EQ(code_for(90, "90a-real"), 90);
  EXPECT_EQ(code_for(100, "80,90a"), 80);
}

TEST(Architectures, WordsStandForTheGpuThatIsThere) {
  EXPECT_EQ(code_for(89, "native"), 89);
  EXPECT_EQ(code_for(100, "80,all-major"), 100);
}

}  // namespace
}  // namespace tc::cuda
