// Which GPU kernel serves which row: pure, so it is tested on machines without a GPU.
#include "traincore/cuda/row_plan.h"

#include <gtest/gtest.h>

#include "traincore/cuda/known_devices.h"

namespace tc::cuda {
namespace {

const DeviceInfo& kH200 = kKnownDevices[0].info;
const DeviceInfo& kA100 = kKnownDevices[1].info;
const DeviceInfo& kRtx4090 = kKnownDevices[2].info;

RowShape shape(int64_t rows, int64_t cols, int bytes = 2) {
  RowShape s;
  s.rows = rows, s.cols = cols, s.element_bytes = bytes;
  return s;
}

TEST(RowPlan, NarrowRowsShareABlock) {
  for (const DeviceInfo& d : {kH200, kA100, kRtx4090}) {
    const RowPlan plan = plan_rows(shape(131072, 128), d);
    EXPECT_EQ(plan.variant, RowVariant::lanes8_x2);
    EXPECT_EQ(plan.rows_per_block * 8, plan.threads);
    EXPECT_EQ(plan.blocks * plan.rows_per_block, 131072);
    EXPECT_EQ(plan_rows(shape(7, 512), d).variant, RowVariant::lanes16_x4);
    EXPECT_EQ(plan_rows(shape(7, 1024), d).variant, RowVariant::warp_x4);
  }
}

TEST(RowPlan, EveryRowFitsItsThreads) {
  constexpr int kVectorBytes = 16, kVectors = 4;
  for (const DeviceInfo& d : {kH200, kA100, kRtx4090})
    for (const int bytes : {2, 4})
      for (int64_t cols = 8; cols <= 300000; cols += cols / 9 / 8 * 8 + 8) {
        const RowPlan plan = plan_rows(shape(3, cols, bytes), d);
        if (plan.variant != RowVariant::block_x4) continue;
        EXPECT_GE(int64_t{plan.threads} * plan.cluster * kVectors * kVectorBytes, cols * bytes) << cols;
        EXPECT_EQ(plan.threads % 32, 0);
        EXPECT_EQ(plan.blocks, 3 * plan.cluster);
      }
}

TEST(RowPlan, OnlyHopperHasClusters) {
  EXPECT_EQ(plan_rows(shape(1024, 262144), kH200).cluster, 16);
  EXPECT_EQ(plan_rows(shape(1024, 262144), kH200).variant, RowVariant::block_x4);
  EXPECT_EQ(plan_rows(shape(1024, 262144), kA100).variant, RowVariant::block_loop);
  EXPECT_EQ(plan_rows(shape(1024, 262144), kRtx4090).cluster, 1);
  EXPECT_EQ(plan_rows(shape(9, int64_t{1} << 20), kH200).variant, RowVariant::block_loop);
}

TEST(RowPlan, RowsThatNoVectorFitsGoElementByElement) {
  RowShape s = shape(5, 1001);
  s.aligned = false;
  EXPECT_EQ(plan_rows(s, kH200).variant, RowVariant::warp_scalar);
  s.cols = 65537;
  EXPECT_EQ(plan_rows(s, kH200).variant, RowVariant::block_scalar);
}

TEST(RowPlan, GridsStayWithinTheHardware) {
  const int64_t many = int64_t{1} << 40;
  for (const int64_t cols : {8, 1024, 4096, 65536})
    EXPECT_LT(plan_rows(shape(many, cols), kH200).blocks, int64_t{1} << 31);
}

TEST(RowPlan, SlabsDependOnTheShapeAlone) {
  for (const int64_t cols : {128, 1024, 4096, 16384}) {
    const RowShape s = shape(4096, cols);
    EXPECT_EQ(plan_slabs(s, plan_rows(s, kH200), 3).slabs, plan_slabs(s, plan_rows(s, kA100), 3).slabs);
    EXPECT_LE(plan_slabs(s, plan_rows(s, kH200), 4).shared, 227 << 10);
  }
  const RowShape one = shape(1, 4096);
  EXPECT_EQ(plan_slabs(one, plan_rows(one, kH200), 2).slabs, 1);
  const RowShape none = shape(0, 4096);
  EXPECT_EQ(plan_slabs(none, plan_rows(none, kH200), 2).slabs, 1);
}

TEST(RowPlan, WideGroupsTakeEveryRow) {
  const RowPlan plan = plan_rows(shape(8192, 128256), kH200);
  ASSERT_GT(plan.cluster, 1);
  EXPECT_EQ(wide_groups(plan, 0), 0);
  EXPECT_EQ(wide_groups(plan, 1), 1);
  for (const int64_t rows : {7, 1000, 8192, 1 << 20}) {
    EXPECT_LE(wide_groups(plan, rows), rows);
    EXPECT_GE(wide_groups(plan, rows) * 8, rows);
  }
}

TEST(RowPlan, ColumnTilesCoverEveryColumn) {
  for (const int64_t cols : {1, 255, 256, 257, 65537}) {
    RowShape s = shape(1000, cols);
    s.aligned = false;
    const ColumnPlan plan = plan_columns(s);
    EXPECT_GE(plan.tiles * kColumnThreads, cols);
    EXPECT_GE(plan.slabs, 1);
    EXPECT_LE(plan.slabs, s.rows);
  }
}

}  // namespace
}  // namespace tc::cuda
