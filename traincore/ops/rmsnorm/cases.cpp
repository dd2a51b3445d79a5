// What check and bench run for RMSNorm.
#include <algorithm>
#include <cmath>
#include "traincore/ops/rmsnorm/rmsnorm.h"

#include "traincore/core/view.h"
#include "traincore/testing/cases.h"

namespace tc::ops::rmsnorm {

using Forward = tcx_rmsnorm_forward_args;
using Backward = tcx_rmsnorm_backward_args;
template <class Real>
void forward_oracle(const Forward&, const Forward& stored);
template <class Real>
void backward_oracle(const Backward&, const Backward& stored);

namespace {

using testing::Case;
using testing::Effort;
using testing::Layout;

// Rows of whole vectors, for a warp to several blocks, under gains of every dtype, with an offset, a residual, and no gain.
void add_gains(std::vector<Case>& all, const Case& base) {
  for (const int64_t cols : {264, 4104, 40000}) {
    const Case wide = Case(base).dim("rows", 3).dim("cols", cols);
    for (const int32_t dtype : {TC_DTYPE_F32, TC_DTYPE_BF16, TC_DTYPE_F16})
      all.push_back(Case(wide).dtype("weight", dtype));
    all.push_back(Case(wide).set("weight_offset", 1));
    all.push_back(Case(wide).with({"residual", "residual_out", "dresidual_out"}).dtype("weight", TC_DTYPE_F32));
    all.push_back(wide);
    all.back().given = {"rstd", "dx"};
  }
}

std::vector<Case> list(Effort effort) {
  const std::vector<const char*> full_size = {"x", "residual", "y", "residual_out", "dy", "dresidual_out", "dx"};
  const Case base = Case().set("eps", 1e-6).with({"weight", "rstd", "dx", "dweight"}).may_be_zero({"dx"});
  std::vector<Case> all = testing::row_sweep(effort, base, full_size);
  const auto small = [&] { return Case(base).dim("rows", {3, 5}).dim("cols", 129); };
  all.push_back(small().set("weight_offset", 1));
  all.push_back(small().set("accumulate", 1));
  all.push_back(small().with({"residual", "residual_out", "dresidual_out"}));
  all.push_back(Case().set("eps", 1e-5).dim("rows", {3, 5}).dim("cols", 129).with({"dx"}));
  all.push_back(Case().set("eps", 1e-5).dim("rows", {3, 5}).dim("cols", 129).with({"weight", "rstd", "dweight"}));
  all.push_back(Case(base).dim("rows", std::vector<int64_t>{}).dim("cols", 100));
  all.push_back(small().layout({"dy"}, Layout::expanded));
  all.push_back(small().alias("y", "x").alias("dx", "dy"));
  all.push_back(small()
                    .with({"residual", "residual_out", "dresidual_out"})
                    .alias("y", "residual")
                    .alias("residual_out", "x")
                    .alias("dx", "dresidual_out"));
  all.push_back(small().dtype("weight", TC_DTYPE_F16).dtype("dweight", TC_DTYPE_BF16));
  add_gains(all, base);
  for (const Case& mixed : testing::mixed_norm_sweep(base)) all.push_back(mixed);
  const auto rounding = [&] { return small().set("rounding", TC_ROUND_BEFORE_WEIGHT); };
  all.push_back(rounding());
  all.push_back(rounding().with({"residual", "residual_out", "dresidual_out"}).set("weight_offset", 1));
  all.push_back(Case().set("eps", 1e-6).set("rounding", TC_ROUND_BEFORE_WEIGHT).dim("rows", 7).dim("cols", 65));
  all.back().with({"dx"}).layout({"x", "y"}, Layout::offset_by_one);
  all.push_back(rounding()  // a bf16 row under an f32 weight gives an f32 y
                    .dtype("x", TC_DTYPE_BF16)
                    .dtype("weight", TC_DTYPE_F32)
                    .dtype("y", TC_DTYPE_F32)
                    .dtype("dx", TC_DTYPE_BF16));
  all.push_back(rounding()  // bf16 and f16 meet in f32, and so do that row and its weight
                    .with({"residual", "residual_out"})
                    .dtype("x", TC_DTYPE_BF16)
                    .dtype("residual", TC_DTYPE_F16)
                    .dtype("y", TC_DTYPE_F32));
  all.push_back(rounding()  // a sum of two bf16 is rounded to bf16, whatever stores it
                    .dim("cols", 512)
                    .with({"residual", "residual_out", "dresidual_out"})
                    .dtype("x", TC_DTYPE_BF16)
                    .dtype("residual", TC_DTYPE_BF16)
                    .dtype("residual_out", TC_DTYPE_F32)
                    .dtype("weight", TC_DTYPE_F32)
                    .dtype("y", TC_DTYPE_F32));
  all.push_back(small().fill("x", testing::normal(1, 300)));  // squares beyond f16's range
  all.push_back(small().fill("x", testing::normal(1e-4)));    // eps matters, and must not be rounded to the dtype
  all.push_back(
      small().fill("x", testing::normal(1e-30)).fill("dy", testing::normal(1e-20)).may_be_zero({"y", "dweight"}));
  all.push_back(small().fill("x", testing::constant(0)).may_be_zero({"y", "dweight"}));
  return all;
}

std::vector<Case> bench() {
  std::vector<Case> all;
  for (const auto& [rows, cols] : {std::pair{16384, 4096}, {131072, 128}, {32768, 1000}})
    all.push_back(
        Case().set("eps", 1e-6).with({"weight", "rstd", "dx", "dweight"}).dim("rows", rows).dim("cols", cols));
  return all;
}

std::vector<Case> bench_cuda() {
  std::vector<Case> all;
  for (const auto& [rows, cols] : {std::pair{32768, 1024},
                                   {32768, 4096},
                                   {16384, 8192},
                                   {8192, 32768},
                                   {2048, 131072},
                                   {1024, 262144},
                                   {131072, 128}})
    all.push_back(
        Case().set("eps", 1e-6).with({"weight", "rstd", "dx", "dweight"}).dim("rows", rows).dim("cols", cols));
  for (const auto& [rows, cols] : {std::pair{32768, 4096}, {8192, 32768}, {1, 2048}})
    all.push_back(Case()
                      .set("eps", 1e-6)
                      .with({"weight", "rstd", "dx", "dweight", "residual", "residual_out", "dresidual_out"})
                      .dim("rows", rows)
                      .dim("cols", cols));
  return all;
}

// dweight sums over rows, dx over the row with cancellation: the magnitudes of their terms.
testing::Terms backward_terms(std::string_view field, const void* exact_args) {
  const auto& a = *static_cast<const Backward*>(exact_args);
  const auto dy = rows_of<const double>(a.dy), x = rows_of<const double>(a.x),
             residual = rows_of<const double>(a.residual);
  const auto rstd = values_of<const double>(a.rstd);
  const auto* weight = static_cast<const double*>(a.weight.data);
  std::vector<double> dweight(static_cast<size_t>(dy.cols));
  double dx = 0;
  for (int64_t r = 0; r < dy.count; ++r) {
    double dot = 0, largest_v = 0, largest_gw = 0;
    for (int64_t c = 0; c < dy.cols; ++c) {
      const double v = x[r][c] + (residual.data ? residual[r][c] : 0);
      const double gw = std::abs(dy[r][c] * (weight ? a.weight_offset + weight[c] : 1));
      dweight[static_cast<size_t>(c)] += std::abs(dy[r][c] * v * *rstd[r]);
      dot += gw * std::abs(v);
      largest_v = std::max(largest_v, std::abs(v));
      largest_gw = std::max(largest_gw, gw);
    }
    const double s = *rstd[r];
    dx = std::max(dx, s * (largest_gw + largest_v * s * s * dot / static_cast<double>(dy.cols)));
  }
  if (field == "dx") return {static_cast<double>(dy.cols), dx};
  return {static_cast<double>(dy.count), dy.count ? *std::max_element(dweight.begin(), dweight.end()) : 0};
}

// Wrong kernels that the cases must catch: the right one, then its result bent.
void padded_denominator(const void* p) {
  Forward a = *static_cast<const Forward*>(p);
  const auto cols = static_cast<double>(a.x.shape[a.x.rank - 1]);
  double padded = 1;
  while (padded < cols) padded *= 2;
  a.eps *= padded / cols;
  forward_oracle<float>(a, a);
  const auto y = rows_of<float>(a.y);
  for (int64_t r = 0; r < y.count; ++r)
    for (int64_t c = 0; c < y.cols; ++c) y[r][c] *= static_cast<float>(std::sqrt(padded / cols));
}
void mean_over_rows(const void* p) {
  const auto& a = *static_cast<const Backward*>(p);
  backward_oracle<float>(a, a);
  const auto dy = rows_of<float>(a.dy);
  auto* dweight = static_cast<float*>(a.dweight.data);
  for (int64_t c = 0; dweight && c < dy.cols && dy.count; ++c) dweight[c] /= static_cast<float>(dy.count);
}
void missing_cube(const void* p) {
  const auto& a = *static_cast<const Backward*>(p);
  backward_oracle<float>(a, a);
  const auto dy = rows_of<float>(a.dy), dx = rows_of<float>(a.dx);
  const auto rstd = values_of<float>(a.rstd);
  const auto* weight = static_cast<const float*>(a.weight.data);
  for (int64_t r = 0; dx.data && r < dx.count; ++r)
    for (int64_t c = 0; c < dx.cols; ++c)
      dx[r][c] = *rstd[r] * dy[r][c] * (weight ? static_cast<float>(a.weight_offset) + weight[c] : 1.0f);
}
void ignored_cotangent(const void* p) {
  Backward a = *static_cast<const Backward*>(p);
  a.dresidual_out = tc_tensor{};
  backward_oracle<float>(a, a);
}
void forgotten_offset(const void* p) {
  Forward a = *static_cast<const Forward*>(p);
  a.weight_offset = 0;
  forward_oracle<float>(a, a);
}

}  // namespace

extern const testing::OpCases cases;
const testing::OpCases cases = {
    .name = "rmsnorm",
    .passes = {testing::pass_cases<Forward, forward_oracle<double>, forward_oracle<float>>("rmsnorm_forward"),
               testing::pass_cases<Backward, backward_oracle<double>, backward_oracle<float>>("rmsnorm_backward",
                                                                                              backward_terms)},
    .list = list,
    .bench = bench,
    .mutants = {{"mean over a padded width", "rmsnorm_forward", padded_denominator},
                {"weight_offset forgotten", "rmsnorm_forward", forgotten_offset},
                {"dweight averaged over rows", "rmsnorm_backward", mean_over_rows},
                {"dx without its r^3 term", "rmsnorm_backward", missing_cube},
                {"dresidual_out ignored", "rmsnorm_backward", ignored_cotangent}},
    .bench_cuda = bench_cuda,
    .summed = {"dy"},
};

}  // namespace tc::ops::rmsnorm
