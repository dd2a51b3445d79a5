// How a GPU serves linear cross entropy: pure, so it is tested on machines without a GPU.
#include "tests/tensors.h"
#include "traincore/ops/linear_cross_entropy/cuda_plan.h"

namespace tc::ops::linear_cross_entropy {
namespace {

alignas(16) float memory[64];

tc_tensor tensor(int32_t dtype, std::vector<int64_t> shape) {
  return tc_tensor_dense(memory, dtype, static_cast<int32_t>(shape.size()), shape.data());
}

tcx_linear_cross_entropy_forward_args call(int32_t hidden, int32_t weight, int32_t dweight, int64_t rows = 8192,
                                           int64_t width = 4096, int64_t classes = 128256) {
  auto a = tcx_linear_cross_entropy_forward_args_default();
  a.hidden = a.dhidden = tensor(hidden, {rows, width});
  a.weight = tensor(weight, {classes, width});
  a.dweight = tensor(dweight, {classes, width});
  a.target = tensor(TC_DTYPE_I64, {rows});
  return a;
}

GpuPlan plan(const tcx_linear_cross_entropy_forward_args& a, int32_t precision = TC_STANDARD) {
  tc_exec exec = tc_exec_default();
  exec.precision = precision;
  return plan_gpu("linear_cross_entropy_forward", a, exec);
}

TEST(LinearCrossEntropyPlan, ChunksHoldAboutSoManyLogitsAndEveryRow) {
  for (const int64_t classes : {1, 33, 32000, 50257, 128256, 262144, 5000000})
    for (const int64_t rows : {0, 1, 127, 128, 129, 1000, 8192, 8193, 1000000}) {
      const int64_t chunk = gpu_chunk_rows({rows, 64, classes});
      SCOPED_TRACE(fmt::format("rows={} classes={}: chunks of {}", rows, classes, chunk));
      EXPECT_EQ(chunk % 128, 0);
      EXPECT_GE(chunk, 128);
      EXPECT_LE(chunk, 8192);
      EXPECT_TRUE(chunk == 128 || chunk * classes <= int64_t{1} << 27);
      EXPECT_LT(chunk, std::max<int64_t>(rows, 1) + 128) << "no rows of nothing";
    }
  EXPECT_EQ(gpu_chunk_rows({8192, 4096, 128256}), 1024);
  EXPECT_EQ(gpu_chunk_rows({16384, 2048, 32000}), 4096);
}

TEST(LinearCrossEntropyPlan, PartsOfTheLogitsGradientHoldWhatAnF32Does) {
  for (const int32_t d : {TC_DTYPE_BF16, TC_DTYPE_F16}) {
    EXPECT_EQ(plan(call(d, d, d)).dtype, d);
    EXPECT_EQ(plan(call(d, d, d)).parts, d == TC_DTYPE_BF16 ? 3 : 2);
    EXPECT_EQ(plan(call(d, d, TC_DTYPE_F32)).parts, plan(call(d, d, d)).parts);
    EXPECT_EQ(plan(call(d, d, TC_DTYPE_F32), TC_FAST).parts, 1);
    EXPECT_EQ(plan(call(d, d, d)).scales_dx, d == TC_DTYPE_F16);
  }
}

TEST(LinearCrossEntropyPlan, StrictCallsAndTwoDtypesTakeProductsOfF32) {
  for (const GpuPlan& p : {plan(call(TC_DTYPE_BF16, TC_DTYPE_BF16, TC_DTYPE_BF16), TC_STRICT),
                           plan(call(TC_DTYPE_F16, TC_DTYPE_F32, TC_DTYPE_F32)),
                           plan(call(TC_DTYPE_F32, TC_DTYPE_BF16, TC_DTYPE_F32), TC_FAST)}) {
    EXPECT_EQ(p.dtype, TC_DTYPE_F32);
    EXPECT_EQ(p.parts, 1);
    EXPECT_FALSE(p.scales_dx);
  }
  EXPECT_TRUE(plan(call(TC_DTYPE_BF16, TC_DTYPE_BF16, TC_DTYPE_BF16), TC_STRICT).copies_weight);
  EXPECT_FALSE(plan(call(TC_DTYPE_BF16, TC_DTYPE_F32, TC_DTYPE_F32)).copies_weight);
}

TEST(LinearCrossEntropyPlan, MatricesThatProductsMayNotReadOrWriteAreCopied) {
  const auto call_of = [](int64_t width) { return call(TC_DTYPE_BF16, TC_DTYPE_BF16, TC_DTYPE_F32, 7, width, 33); };
  EXPECT_FALSE(plan(call_of(24)).copies_weight);
  EXPECT_FALSE(plan(call_of(24)).adds_dweight_apart);
  EXPECT_TRUE(plan(call_of(20)).copies_weight) << "rows of 40 bytes";
  EXPECT_FALSE(plan(call_of(20)).adds_dweight_apart) << "rows of 80 bytes";
  EXPECT_TRUE(plan(call_of(17)).adds_dweight_apart);
  auto a = call_of(20);
  a.weight.stride[0] = 32;
  EXPECT_FALSE(plan(a).copies_weight);
  for (const int64_t stride : {0, 16, -32}) {
    a.weight.stride[0] = a.dweight.stride[0] = stride;
    EXPECT_TRUE(plan(a).copies_weight) << stride;
    EXPECT_TRUE(plan(a).adds_dweight_apart) << stride;
  }
  a = call_of(24);
  a.weight.data = reinterpret_cast<std::byte*>(memory) + 2;
  a.dweight.data = reinterpret_cast<std::byte*>(memory) + 4;
  EXPECT_TRUE(plan(a).copies_weight);
  EXPECT_TRUE(plan(a).adds_dweight_apart);
  EXPECT_TRUE(plan(call(TC_DTYPE_BF16, TC_DTYPE_BF16, TC_DTYPE_BF16)).adds_dweight_apart) << "stored in 16 bits";
}

}  // namespace
}  // namespace tc::ops::linear_cross_entropy
