// Which kernel a norm's backward pass takes, on machines that are not there.
#include "traincore/cuda/slab_plan.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "traincore/cuda/known_devices.h"

namespace tc::cuda {
namespace {

const DeviceInfo& kH200 = kKnownDevices[0].info;
const DeviceInfo& kA100 = kKnownDevices[1].info;
const DeviceInfo& kRtx4090 = kKnownDevices[2].info;

constexpr SlabPass kRmsNorm{false, false, 1}, kLayerNorm{false, false, 2}, kAddRmsNorm{true, true, 1},
    kAddLayerNorm{true, true, 2};

RowShape shape(int64_t rows, int64_t cols, int32_t bytes = 2) { return {rows, cols, bytes, true, false}; }

SlabKernel kernel(int64_t cols, const SlabPass& pass) {
  return plan_slabbed(shape(9, cols), pass, kH200).slabs->kernel;
}

TEST(SlabPlan, RowsFitTheirThreadsAndTheDevice) {
  for (const DeviceInfo& d : {kH200, kA100, kRtx4090})
    for (const SlabPass& pass : {kRmsNorm, kLayerNorm, kAddRmsNorm, kAddLayerNorm})
      for (const int32_t bytes : {2, 4})
        for (int64_t cols = 8; cols <= 300000; cols += cols / 9 / 8 * 8 + 8) {
          const auto plan = plan_slabbed(shape(3, cols, bytes), pass, d).slabs;
          if (!plan) continue;
          const SlabKernel& k = plan->kernel;
          const int64_t lanes = k.lanes ? k.lanes : int64_t{plan->threads} * plan->cluster;
          EXPECT_GE(lanes * k.vectors * 16, cols * bytes);
          EXPECT_EQ(plan->threads % 32, 0);
          EXPECT_LE(plan->threads, k.most_threads);
          EXPECT_LE(plan->cluster, d.code >= 90 ? k.most_cluster : 1);
          EXPECT_LE(plan->shared, d.shared_per_block);
          EXPECT_TRUE(k.sums == 0 || k.sums == pass.sums);
          EXPECT_LE(pass.has_residual ? 4 : 2 + pass.has_more, k.tensors);
          EXPECT_GE(plan->groups, 1);
          EXPECT_LE(plan->groups, 3);
        }
}

TEST(SlabPlan, EveryKernelServesSomeRow) {
  for (const SlabKernel& k : kSlabKernels) {
    bool serves = false;
    for (const SlabPass& pass : {kRmsNorm, kLayerNorm, kAddRmsNorm, kAddLayerNorm})
      for (int64_t cols = 8; cols <= 262144; cols *= 2) {
        const auto plan = plan_slabbed(shape(9, cols), pass, kH200).slabs;
        serves |= plan && plan->kernel == k;
      }
    EXPECT_TRUE(serves) << k.lanes << " lanes, " << k.vectors << " vectors, " << k.threads_per_sm << " threads an SM";
  }
}

TEST(SlabPlan, BlocksOfAnSmFitItsSharedMemory) {
  for (const SlabPass& pass : {kRmsNorm, kLayerNorm, kAddRmsNorm, kAddLayerNorm})
    for (int64_t cols = 64; cols <= 262144; cols *= 2) {
      const auto plan = plan_slabbed(shape(100000, cols), pass, kH200).slabs;
      if (!plan) continue;
      const int64_t blocks = plan->kernel.threads_per_sm / plan->threads;
      EXPECT_LE(blocks * (plan->shared + 1024), kH200.shared_per_block + 1024)
          << cols << " of " << pass.sums << " sums";
    }
}

TEST(SlabPlan, CountDependsOnTheShapeAlone) {
  for (const int64_t cols : {128, 1024, 4096, 8192}) {
    const RowShape s = shape(4096, cols);
    const SlabPass pass{false, true, 1};
    EXPECT_EQ(plan_slabbed(s, pass, kH200).count(), plan_slabbed(s, pass, kA100).count());
  }
  EXPECT_EQ(plan_slabbed(shape(1, 4096), kRmsNorm, kH200).count(), 1);
  EXPECT_EQ(plan_slabbed(shape(0, 4096), kRmsNorm, kH200).count(), 1);
}

TEST(SlabPlan, ManyTurnsTakeTheFewestGroups) {
  EXPECT_EQ(plan_slabbed(shape(32768, 4096), kRmsNorm, kH200).slabs->groups, 521);    // 63 turns, as 528 would need
  EXPECT_EQ(plan_slabbed(shape(131072, 128), kRmsNorm, kH200).slabs->groups, 396);    // 10 or 11 turns
  EXPECT_EQ(plan_slabbed(shape(2050, 131072), kLayerNorm, kH200).slabs->groups, 15);  // 137 turns, of 15
}

TEST(SlabPlan, TwoSumsHaveFourVectorsOnlyWithOneInSharedMemory) {
  EXPECT_EQ(kernel(1024, kRmsNorm).vectors, 4);
  EXPECT_EQ(kernel(1024, kLayerNorm).vectors, 2);
  EXPECT_TRUE(kernel(262144, kLayerNorm).shares_sums);
  EXPECT_EQ(kernel(262144, kLayerNorm).vectors, 4);
  EXPECT_FALSE(kernel(262144, kRmsNorm).shares_sums);
  EXPECT_FALSE(plan_slabbed(shape(9, 32768), kLayerNorm, kA100).slabs);
}

TEST(SlabPlan, LayerNormSendsForRowsOfLargeClusters) {
  EXPECT_TRUE(plan_slabbed(shape(9, 131072), kLayerNorm, kH200).slabs->sends);
  EXPECT_FALSE(plan_slabbed(shape(9, 32768), kLayerNorm, kH200).slabs->sends);
  EXPECT_FALSE(plan_slabbed(shape(9, 131072), kRmsNorm, kH200).slabs->sends);
}

TEST(SlabPlan, RmsNormLetsWhatTheLargestClustersWriteStay) {
  EXPECT_TRUE(plan_slabbed(shape(9, 262144), kRmsNorm, kH200).slabs->stays);
  EXPECT_FALSE(plan_slabbed(shape(9, 131072), kRmsNorm, kH200).slabs->stays);
  EXPECT_FALSE(plan_slabbed(shape(9, 262144), kLayerNorm, kH200).slabs->stays);
}

TEST(SlabPlan, RowsThatNoVectorFitsTakeTwoKernels) {
  RowShape s = shape(9, 1001);
  s.aligned = false;
  EXPECT_FALSE(plan_slabbed(s, kRmsNorm, kH200).slabs);
  EXPECT_EQ(plan_slabbed(s, kRmsNorm, kH200).count(), plan_columns(s).slabs);
  RowShape mixed = shape(9, 1024, 4);
  mixed.mixed = true;
  EXPECT_FALSE(plan_slabbed(mixed, kRmsNorm, kH200).slabs);
  EXPECT_TRUE(plan_slabbed(mixed, kRmsNorm, kH200).columns.is_wide);
}

}  // namespace
}  // namespace tc::cuda
