// How a GPU divides the products of norm_gemv: pure, so it is tested on machines without a GPU.
#include "tests/tensors.h"
#include "traincore/cuda/known_devices.h"
#include "traincore/ops/norm_gemv/plan.h"

namespace tc::ops::norm_gemv {
namespace {

constexpr int64_t kFixedShared = 2 << 10;  // what a kernel has beside what it is given, at most

const cuda::DeviceInfo& h200() { return cuda::kKnownDevices[0].info; }

GpuProduct product(int64_t rows, int64_t k, std::array<int64_t, kMatrices> outputs, int32_t width = 8) {
  return {rows, k, outputs, width, TC_DTYPE_F16, {}};
}

template <class F>
void for_each_product(F&& f) {
  for (const auto& [word, device] : cuda::kKnownDevices)
    for (const int64_t rows : {1, 3, 8})
      for (const int64_t k : {1, 96, 1001, 1032, 1088, 2560, 3200, 4096, 8192, 14336, 262144})
        for (const int64_t n : {1, 65, 256, 1024, 8192, 14336, 128256, 1 << 20})
          for (const int32_t width : {1, 4, 8}) {
            SCOPED_TRACE(fmt::format("{} rows={} k={} n={} width={}", word, rows, k, n, width));
            f(product(rows, k, {n, n / 4, 33}, width), device);
          }
}

TEST(NormGemvPlan, DotsTakeAllOfKInPartsThatFit) {
  for_each_product([](const GpuProduct& p, const cuda::DeviceInfo& device) {
    const DotsPlan plan = plan_dots(p, device);
    const int rows = gpu_rows(p.rows, p.width);
    EXPECT_GE(plan.part * plan.parts, p.k);
    EXPECT_LT(plan.part * (plan.parts - 1), p.k);
    EXPECT_EQ(plan.part % (gpu_stages(rows) * kGpuWarp * p.width), 0) << "whole turns of the ring";
    EXPECT_GE(plan.shared, static_cast<size_t>(plan.part * rows) * sizeof(float));
    EXPECT_LE(static_cast<int64_t>(plan.shared) + kFixedShared, device.shared_per_block);
    EXPECT_GE(plan.blocks, 1);
    EXPECT_LE(plan.blocks, device.multiprocessors);
  });
}

TEST(NormGemvPlan, StripsTakeEveryColumnAndAllOfK) {
  for_each_product([](const GpuProduct& p, const cuda::DeviceInfo& device) {
    const StripsPlan plan = plan_strips(p, device);
    const int rows = gpu_rows(p.rows, p.width);
    int64_t strips = 0;
    for (const int64_t n : p.outputs) strips += strips_of(n, p.width, plan.lanes);
    EXPECT_EQ(plan.blocks, strips * plan.cluster);
    EXPECT_GE(plan.share * plan.cluster, p.k);
    EXPECT_LT(plan.share * (plan.cluster - 1), p.k) << "every block has a share";
    EXPECT_EQ(plan.part % (gpu_stages(rows) * kGpuLoads * plan.slots()), 0) << "whole turns of the ring";
    EXPECT_EQ(plan.share % kGpuNormWide, 0) << "x is aligned where a share begins";
    EXPECT_EQ(plan.lanes % 4, 0) << "v is aligned behind the sums";
    EXPECT_GE(plan.slots(), 1);
    const int64_t sums = int64_t{rows} * plan.lanes * p.width;
    EXPECT_GE(plan.shared, static_cast<size_t>(plan.part * rows + sums) * sizeof(float));
    EXPECT_LE(static_cast<int64_t>(plan.shared) + kFixedShared, device.shared_per_block);
    EXPECT_LE(plan.cluster, device.code < 90 ? 1 : 8);
  });
}

TEST(NormGemvPlan, StripsAreWideAndNoMoreThanTheMultiprocessors) {
  for (const auto& [k, n] : {std::pair<int64_t, int64_t>{4096, 14336}, {8192, 8192}, {4096, 4096}}) {
    const StripsPlan plan = plan_strips(product(1, k, {n, 0, 0}), h200());
    EXPECT_GE(plan.lanes, 32) << n;
    EXPECT_LE(plan.blocks, h200().multiprocessors) << n;
    EXPECT_GE(plan.blocks, h200().multiprocessors * 95 / 100) << n;
  }
}

TEST(NormGemvPlan, TilesTakeEveryOutputAndAllOfK) {
  for_each_product([](const GpuProduct& p, const cuda::DeviceInfo& device) {
    for (const bool transposed : {false, true}) {
      const TilesPlan plan = plan_tiles(p, transposed, device);
      EXPECT_FALSE(plan.serves && p.width != 8) << "its elements have 16 bits";
      EXPECT_FALSE(plan.serves && device.sm != 90) << "it has no boxes";
      if (!plan.serves) continue;
      const int64_t rows = gpu_rows(p.rows, p.width), outputs = gpu_tile_outputs(transposed);
      const int64_t places = gpu_tile_places(transposed);
      int64_t units = 0;
      for (const int64_t n : p.outputs) units += (n + outputs - 1) / outputs;
      EXPECT_EQ(plan.units, units);
      EXPECT_EQ(plan.blocks % plan.cluster, 0);
      EXPECT_LE(plan.blocks, device.multiprocessors);
      EXPECT_LE(plan.blocks / plan.cluster, units) << "every cluster has some";
      EXPECT_LE(plan.slices * plan.abreast, kGpuTileWarps);
      EXPECT_GE(plan.steps * plan.slices * places, plan.share);
      EXPECT_GE(int64_t{plan.share} * plan.cluster, p.k);
      EXPECT_LT(int64_t{plan.share} * (plan.cluster - 1), p.k) << "every block has a share";
      EXPECT_EQ(plan.share % places, 0) << "no box has places of two blocks";
      EXPECT_EQ(plan.batch % (plan.abreast * outputs), 0) << "whole items";
      EXPECT_GE(plan.batch, outputs);
      EXPECT_GE(plan.stride, plan.steps * plan.slices * places);
      EXPECT_EQ(plan.stride % 4, 0) << "rows of v are aligned";
      const int64_t floats = rows * (plan.stride + plan.slices * plan.batch);
      EXPECT_GE(plan.shared,
                static_cast<size_t>(floats) * sizeof(float) + static_cast<size_t>(plan.boxes * kGpuTileRing));
      EXPECT_GE(plan.boxes, 1);
      EXPECT_LE(static_cast<int64_t>(plan.shared) + kFixedShared, device.shared_per_block);
      EXPECT_LE(plan.cluster, 8);
    }
  });
}

// What measured fastest on the H200: two blocks share v where it is more than 64 KB, or half of the GPU would be idle.
struct Expected {
  bool transposed;
  int64_t k, n;
  std::array<int32_t, 3> clusters;  // for 1, 4 and 8 rows
};
TEST(NormGemvPlan, TilesTakeTheSmallestClusterThatFillsTheGpu) {
  for (const auto& [transposed, k, n, clusters] : {Expected{true, 4096, 14336, {1, 1, 2}},
                                                   {true, 8192, 8192, {1, 2, 2}},
                                                   {true, 4096, 4096, {1, 1, 2}},
                                                   {false, 4096, 14336, {1, 1, 2}},
                                                   {false, 8192, 8192, {1, 2, 2}},
                                                   {false, 4096, 4096, {2, 2, 2}}})
    for (size_t i = 0; i < clusters.size(); ++i) {
      const std::array<int64_t, 3> rows = {1, 4, 8};
      SCOPED_TRACE(fmt::format("k={} n={} transposed={} rows={}", k, n, transposed, rows[i]));
      const TilesPlan plan = plan_tiles(product(rows[i], k, {n, 0, 0}), transposed, h200());
      ASSERT_TRUE(plan.serves);
      EXPECT_EQ(plan.cluster, clusters[i]);
      EXPECT_EQ(plan.boxes, plan.cluster == 1 && k * n > 4096 * 4096 ? 2 : 1) << "more than few boxes a warp";
      EXPECT_GE(plan.blocks, h200().multiprocessors * 4 / 5);
      EXPECT_EQ(plan.slices * plan.abreast, kGpuTileWarps) << "every warp has work";
    }
}

TEST(NormGemvPlan, MatricesThatAreReadTheSameWayShareALaunch) {
  std::vector<float> x(2 * 16), w(16 * 24), w3(16 * 6);
  std::vector<f16> w2(16 * 8);
  std::vector<float> y(2 * 24), y2(2 * 8), y3(2 * 6);
  auto a = tcx_norm_gemv_args_default();
  a.x = view(x, {2, 16}), a.w = view(w, {16, 24}), a.w2 = view(w2, {16, 8}), a.w3 = view(w3, {16, 6});
  a.y = view(y, {2, 24}), a.y2 = view(y2, {2, 8}), a.y3 = view(y3, {2, 6});
  GpuProducts all = gpu_products(a);
  ASSERT_EQ(all.count, 3) << "w2 has another dtype, rows of w3 fill no vectors";
  EXPECT_EQ(all.list[1].dtype, TC_DTYPE_F16);
  EXPECT_EQ(all.list[2].width, 1);
  a.w3 = view(w3, {16, 4}), a.y3 = view(y3, {2, 4});
  all = gpu_products(a);
  ASSERT_EQ(all.count, 2);
  EXPECT_EQ(all.list[0].outputs, (std::array<int64_t, kMatrices>{24, 4, 0}));
  EXPECT_EQ(all.list[1].outputs, (std::array<int64_t, kMatrices>{8, 0, 0}));
  EXPECT_TRUE(all.list[1].has_boxes);
  a.w2.stride[0] = 0;
  EXPECT_FALSE(gpu_products(a).list[1].has_boxes) << "its rows are one";
  a.w2.stride[0] = 8;
  a.w = view(w, {16, 0}), a.y = view(y, {2, 0}), a.w2 = a.y2 = a.w3 = a.y3 = tc_tensor{};
  EXPECT_EQ(gpu_products(a).count, 0);
}

}  // namespace
}  // namespace tc::ops::norm_gemv
