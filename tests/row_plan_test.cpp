// Which GPU kernel serves which row: pure, so it is tested on machines without a GPU.
#include "traincore/cuda/row_plan.h"

#include <gtest/gtest.h>

#include "traincore/core/error.h"
#include "traincore/cuda/known_devices.h"
#include "traincore/cuda/row_shape.h"

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
  const RowPlan plan = plan_rows(shape(131072, 128));
  EXPECT_EQ(plan.variant, RowVariant::lanes8_x2);
  EXPECT_EQ(plan.rows_per_block * 8, plan.threads);
  EXPECT_EQ(plan.blocks * plan.rows_per_block, 131072);
  EXPECT_EQ(plan_rows(shape(7, 512)).variant, RowVariant::lanes16_x4);
  EXPECT_EQ(plan_rows(shape(7, 1024)).variant, RowVariant::warp_x4);
}

TEST(RowPlan, EveryRowFitsItsThreads) {
  constexpr int kVectorBytes = 16, kVectors = 4;
  for (const int bytes : {2, 4})
    for (int64_t cols = 8; cols <= 300000; cols += cols / 9 / 8 * 8 + 8) {
      const RowPlan plan = plan_rows(shape(3, cols, bytes));
      if (plan.variant != RowVariant::block_x4) continue;
      EXPECT_GE(int64_t{plan.threads} * kVectors * kVectorBytes, cols * bytes) << cols;
      EXPECT_EQ(plan.threads % 32, 0);
      EXPECT_EQ(plan.blocks, 3);
    }
}

TEST(RowPlan, RowsAheadFitTheirThreadsAndTheDevice) {
  for (const DeviceInfo& d : {kH200, kA100, kRtx4090})
    for (const AheadShape& kernel : {kNormAhead, kBiasedNormAhead, kFullNormAhead, kSoftmaxAhead, kSoftmaxTwoAhead,
                                     kSoftmaxBackwardAhead, kSoftmaxBackwardTwoAhead})
      for (const int tensors : {1, 2, 4})
        for (int64_t cols = 8; cols <= 300000; cols += cols / 9 / 8 * 8 + 8) {
          const auto plan = plan_ahead(shape(3, cols), kernel, tensors, 4, d);
          if (!plan) continue;
          const int64_t lanes = plan->lanes ? plan->lanes : int64_t{plan->threads} * plan->cluster;
          EXPECT_GE(lanes * plan->vectors * 8, cols);
          EXPECT_EQ(plan->threads % 32, 0);
          EXPECT_LE(plan->threads, kernel.threads);
          EXPECT_LE(plan->cluster, d.code >= 90 ? 16 : 1);
          EXPECT_LE(plan->shared, d.shared_per_block);
          EXPECT_GE(plan->groups, 1);
          EXPECT_LE(plan->groups, 3);
        }
}

TEST(RowPlan, EightVectorsAThreadAreForOpsThatHaveRoom) {
  EXPECT_EQ(plan_rows(shape(9, 32768)).variant, RowVariant::block_loop);
  EXPECT_EQ(plan_rows(shape(9, 32768), 8).variant, RowVariant::block_x8);
  EXPECT_EQ(plan_rows(shape(9, 16384), 8).variant, RowVariant::block_x4);
  EXPECT_EQ(plan_rows(shape(9, 32776), 8).variant, RowVariant::block_loop);
}

TEST(RowPlan, WhatClustersOfFourWriteForANormStays) {
  const auto stays = [](const AheadShape& kernel, int64_t cols) {
    return plan_ahead(shape(9, cols), kernel, 1, 4, kH200)->stays;
  };
  EXPECT_TRUE(stays(kNormAhead, 262144));
  EXPECT_TRUE(stays(kNormAhead, 131072));
  EXPECT_FALSE(stays(kNormAhead, 65536));
  EXPECT_FALSE(stays(kBiasedNormAhead, 262144));
}

TEST(RowPlan, OnlyHopperHasClusters) {
  const RowShape wide = shape(1024, 262144);
  EXPECT_EQ(plan_rows(wide).variant, RowVariant::block_loop);
  EXPECT_EQ(plan_rows(wide, kNormAhead, 1, 1, kH200).ahead->cluster, 8);
  EXPECT_FALSE(plan_rows(wide, kNormAhead, 1, 1, kA100).ahead);
  EXPECT_FALSE(plan_rows(wide, kNormAhead, 1, 1, kRtx4090).ahead);
  EXPECT_FALSE(plan_rows(shape(9, int64_t{1} << 20), kNormAhead, 1, 1, kH200).ahead);
  EXPECT_FALSE(plan_rows(shape(1024, 4096), kNormAhead, 1, 1, kH200).ahead);  // stays in registers
}

TEST(RowPlan, RowsThatNoVectorFitsGoElementByElement) {
  RowShape s = shape(5, 1001);
  s.aligned = false;
  EXPECT_EQ(plan_rows(s).variant, RowVariant::warp_scalar);
  s.cols = 65537;
  EXPECT_EQ(plan_rows(s).variant, RowVariant::block_scalar);
}

RowsPlan plan_odd(int64_t cols, const DeviceInfo& device, int bytes = 2) {
  RowShape s = shape(300, cols, bytes);
  s.aligned = false;
  return plan_rows_anywhere(s, kSoftmaxAhead, kSoftmaxTwoAhead, 1, 4, device);
}

TEST(RowPlan, RowsThatStartAnywhereGoThroughSharedMemory) {
  EXPECT_FALSE(plan_odd(129, kH200).ahead);  // narrow ones go element by element
  EXPECT_EQ(plan_odd(1001, kH200).ahead->lanes, 32);
  EXPECT_EQ(plan_odd(16383, kA100).ahead->cluster, 1);
  EXPECT_EQ(plan_odd(50257, kH200).ahead->cluster, 4);
  EXPECT_FALSE(plan_odd(50257, kA100).ahead);
  EXPECT_FALSE(plan_odd(262145, kH200).ahead);
  RowShape even = shape(300, 65536);
  EXPECT_FALSE(plan_rows_anywhere(even, kSoftmaxAhead, kSoftmaxTwoAhead, 1, 4, kH200).ahead->anywhere);
  const RowsPlan kept = plan_rows_anywhere(shape(300, 32768), kSoftmaxAhead, kSoftmaxTwoAhead, 1, 4, kH200, 8);
  EXPECT_EQ(kept.rows.variant, RowVariant::block_x8);
  EXPECT_FALSE(kept.ahead);
}

TEST(RowPlan, AnSmHasABlockOfARowOrTwo) {
  const auto ahead = [](const AheadShape& kernel, int64_t cols) {
    return *plan_ahead(shape(100000, cols), kernel, 1, 4, kH200);
  };
  EXPECT_EQ(ahead(kSoftmaxAhead, 131072).cluster, 4);
  EXPECT_EQ(ahead(kSoftmaxAhead, 131072).groups, 30);
  EXPECT_EQ(ahead(kSoftmaxTwoAhead, 131072).cluster, 8);
  EXPECT_EQ(ahead(kSoftmaxTwoAhead, 131072).groups, 30);
  EXPECT_EQ(ahead(kSoftmaxTwoAhead, 65536).groups, 62);  // more than twice the 30 with an SM for every block
  EXPECT_EQ(ahead(kSoftmaxAhead, 32000).groups, 132);
  EXPECT_EQ(ahead(kSoftmaxTwoAhead, 32000).groups, 132);
}

TEST(RowPlan, RowsThatStartAnywhereFitTheirThreadsAndTheDevice) {
  for (const DeviceInfo& d : {kH200, kA100, kRtx4090})
    for (const int bytes : {2, 4})
      for (int64_t cols = 257; cols <= 300000; cols += cols / 9 / 2 * 2 + 2) {
        const auto plan = plan_odd(cols, d, bytes).ahead;
        if (!plan) continue;
        const int64_t threads = plan->lanes ? plan->lanes : int64_t{plan->threads} * plan->cluster;
        EXPECT_GE(threads * plan->vectors * 16, cols * bytes);
        EXPECT_LE(plan->shared, d.shared_per_block);
        // Every warp of a block has its rows, a vector wider than what its threads have of them.
        EXPECT_GE(plan->shared, plan->stages * (plan->threads / 32) * (32 * plan->vectors + 1) * 16);
        EXPECT_GE(plan->groups, 1);
      }
}

TEST(RowPlan, RowsOfSeveralDtypesTakeOneGenericKernel) {
  for (const int64_t cols : {1, 96, 4096, 262144}) {
    RowShape s = shape(5, cols, 4);
    s.mixed = true;
    const RowPlan plan = plan_rows(s);
    EXPECT_EQ(plan.variant, RowVariant::mixed);
    EXPECT_EQ(plan.blocks, 5);
    EXPECT_EQ(plan.threads % 32, 0);
    EXPECT_LE(plan.threads, 512);
    s.aligned = false;
    EXPECT_EQ(plan_rows(s).variant, RowVariant::mixed_scalar);
  }
}

TEST(RowPlan, GridsStayWithinTheHardware) {
  const int64_t many = int64_t{1} << 40;
  for (const int64_t cols : {8, 1024, 4096, 65536}) EXPECT_LT(plan_rows(shape(many, cols)).blocks, int64_t{1} << 31);
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

TEST(RowPlan, RowsTooWideAreRefusedByName) {
  const int64_t extents[] = {1, int64_t{INT32_MAX} + 1};
  const tc_tensor x = tc_tensor_dense(nullptr, TC_DTYPE_BF16, 2, extents);
  try {
    row_shape("op_forward", "x", {&x}, {});
    FAIL() << "not refused";
  } catch (const Error& e) {
    EXPECT_EQ(e.code, TC_ERR_KERNEL_NOT_FOUND);
    EXPECT_STREQ(e.what(),
                 "op_forward: x has rows of 2147483648 elements, but its GPU kernels serve rows of up to 2147467263");
  }
}

}  // namespace
}  // namespace tc::cuda
