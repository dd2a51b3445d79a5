// Norms: published values, the kinds of fault that other libraries had, and what must be refused.
#include <cmath>

#include "tests/tensors.h"
#include "traincore/ops/layernorm/layernorm.h"
#include "traincore/ops/norm_gemv/norm_gemv.h"
#include "traincore/ops/rmsnorm/rmsnorm.h"

namespace tc {
namespace {

template <class T>
std::vector<T> stored(const std::vector<float>& values) {
  std::vector<T> out;
  for (const float v : values) out.push_back(T(v));
  return out;
}

void expect_near(const std::vector<float>& got, const std::vector<double>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], tolerance) << "element " << i;
}

// ---------------------------------------------------------------- rmsnorm

struct Rms {
  std::vector<float> y, dx, rstd;
};
Rms rms(std::vector<float> x, std::vector<float> weight, std::vector<float> dy, double eps = 1e-6) {
  Rms result{x, x, {0}};
  const auto cols = static_cast<int64_t>(x.size());
  auto forward = tcx_rmsnorm_forward_args_default();
  forward.x = view(x, {1, cols}), forward.weight = view(weight), forward.y = view(result.y, {1, cols});
  forward.rstd = view(result.rstd), forward.eps = eps;
  rmsnorm_forward(forward);
  auto backward = tcx_rmsnorm_backward_args_default();
  backward.dy = view(dy, {1, cols}), backward.x = forward.x, backward.weight = forward.weight;
  backward.rstd = forward.rstd, backward.dx = view(result.dx, {1, cols});
  rmsnorm_backward(backward);
  return result;
}

TEST(Rmsnorm, GivesThePublishedValues) {
  const Rms plain = rms({3, 4}, {1, 1}, {1, 2});
  expect_near(plain.rstd, {0.282843}, 1e-6);
  expect_near(plain.y, {0.848528, 1.131371}, 1e-6);
  expect_near(plain.dx, {-0.090510, 0.067882}, 1e-6);
  expect_near(rms({3, 4}, {2, 0.5}, {1, 2}).y, {1.697056, 0.565685}, 1e-6);
}

TEST(Rmsnorm, DividesByTheLogicalWidth) {
  const std::vector<float> ones(257, 1.0f);
  expect_near(rms(ones, ones, ones).y, std::vector<double>(257, 0.9999995), 1e-7);
}

// Bit for bit what rounding in two places means, for a row dtype and a weight dtype; y has the one where they meet.
template <class Row, class Weight, class Y>
void expect_before_weight() {
  constexpr int64_t kRows = 3, kCols = 1037;
  auto x = stored<Row>(normal(kRows * kCols, 1)), residual = stored<Row>(normal(kRows * kCols, 2));
  auto weight = stored<Weight>(normal(kCols, 3));
  std::vector<Row> kept(x.size());
  std::vector<Y> y(x.size());
  std::vector<float> rstd(kRows);
  auto a = tcx_rmsnorm_forward_args_default();
  a.rounding = TC_ROUND_BEFORE_WEIGHT, a.eps = 1e-6;
  a.x = view(x, {kRows, kCols}), a.residual = view(residual, {kRows, kCols}), a.weight = view(weight);
  a.y = view(y, {kRows, kCols}), a.residual_out = view(kept, {kRows, kCols}), a.rstd = view(rstd);
  rmsnorm_forward(a);
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t row = i / kCols;
    const Row h(static_cast<float>(x[i]) + static_cast<float>(residual[i]));
    const Row normalised(static_cast<float>(h) * rstd[row]);
    const Y want(static_cast<float>(normalised) * static_cast<float>(weight[i % kCols]));
    ASSERT_EQ(static_cast<float>(kept[i]), static_cast<float>(h)) << "element " << i;
    ASSERT_EQ(static_cast<float>(y[i]), static_cast<float>(want)) << "element " << i;
  }
}
TEST(Rmsnorm, RoundsBeforeTheWeightBitForBit) {
  expect_before_weight<bf16, bf16, bf16>();
  expect_before_weight<f16, f16, f16>();
  expect_before_weight<bf16, float, float>();
  expect_before_weight<f16, bf16, float>();
  expect_before_weight<float, bf16, float>();
}

TEST(Rmsnorm, RefusesAnOutputThatBeforeWeightDoesNotRoundTo) {
  std::vector<bf16> x(6), y(6);
  std::vector<float> weight(3);
  auto a = tcx_rmsnorm_forward_args_default();
  a.x = view(x, {2, 3}), a.y = view(y, {2, 3}), a.weight = view(weight), a.eps = 1;
  rmsnorm_forward(a);
  a.rounding = TC_ROUND_BEFORE_WEIGHT;
  EXPECT_EQ(refusal(TC_ERR_UNSUPPORTED_DTYPE, [&] { rmsnorm_forward(a); }),
            "rmsnorm_forward: y has dtype bf16, but before_weight rounds to f32, where a bf16 row and its weight meet");
}

// Outputs beyond 8 MB go past the caches; their rows must be the same as those of a small call.
TEST(Rmsnorm, WritesLargeOutputsAsSmallOnes) {
  constexpr int64_t kRows = 2600, kCols = 1001;  // rows begin at every alignment
  auto x = stored<bf16>(normal(kRows * kCols, 1)), residual = stored<bf16>(normal(kRows * kCols, 2));
  std::vector<bf16> y(x.size() * 2), kept(x.size() * 2 + 1);
  const auto run = [&](int64_t first, int64_t count, bf16* to, bf16* keep) {
    const int64_t shape[] = {count, kCols};
    auto a = tcx_rmsnorm_forward_args_default();
    a.x = tc_tensor_dense(x.data() + first * kCols, TC_DTYPE_BF16, 2, shape);
    a.residual = tc_tensor_dense(residual.data() + first * kCols, TC_DTYPE_BF16, 2, shape);
    a.y = tc_tensor_dense(to, TC_DTYPE_BF16, 2, shape);
    a.residual_out = tc_tensor_dense(keep, TC_DTYPE_BF16, 2, shape);
    a.eps = 1e-5;
    rmsnorm_forward(a);
  };
  constexpr int64_t kTimes = 2;
  ASSERT_GT(kTimes * kRows * kCols * 2, int64_t{8} << 20);
  x.insert(x.end(), x.begin(), x.begin() + kRows * kCols);
  residual.insert(residual.end(), residual.begin(), residual.begin() + kRows * kCols);
  run(0, kTimes * kRows, y.data(), kept.data() + 1);
  std::vector<bf16> row(kCols), sum(kCols);
  for (const int64_t r : {int64_t{0}, int64_t{1}, int64_t{7}, kRows - 1, kRows, 2 * kRows - 1}) {
    run(r, 1, row.data(), sum.data());
    for (int64_t c = 0; c < kCols; ++c) {
      ASSERT_EQ(y[r * kCols + c].bits, row[c].bits) << r << " " << c;
      ASSERT_EQ(kept[1 + r * kCols + c].bits, sum[c].bits) << r << " " << c;
    }
  }
}

// ---------------------------------------------------------------- layernorm

std::vector<float> layer(std::vector<float> x, double eps, std::vector<float>* dx_of_ones = nullptr) {
  const auto cols = static_cast<int64_t>(x.size());
  std::vector<float> y(x.size()), mean(1), rstd(1), ones(x.size(), 1.0f);
  auto forward = tcx_layernorm_forward_args_default();
  forward.x = view(x, {1, cols}), forward.y = view(y, {1, cols}), forward.eps = eps;
  forward.mean = view(mean), forward.rstd = view(rstd);
  layernorm_forward(forward);
  if (!dx_of_ones) return y;
  dx_of_ones->assign(x.size(), NAN);
  auto backward = tcx_layernorm_backward_args_default();
  backward.dy = view(ones, {1, cols}), backward.x = forward.x, backward.mean = forward.mean;
  backward.rstd = forward.rstd, backward.dx = view(*dx_of_ones, {1, cols}), backward.weight = view(ones);
  layernorm_backward(backward);
  return y;
}

TEST(Layernorm, CountsNoPaddedLaneInTheVariance) {
  expect_near(layer({1, 2, 3}, 1e-5), {-1.2247357, 0, 1.2247357}, 1e-6);
}

TEST(Layernorm, IsExactFarFromZero) {
  const double r = 1 / std::sqrt(0.125 / 3 + 1e-5);
  expect_near(layer({4095.75f, 4096, 4096.25f}, 1e-5), {-0.25 * r, 0, 0.25 * r}, 3e-6);
}

TEST(Layernorm, HasNoGradientAlongOnes) {
  for (const size_t cols : {3u, 64u, 257u, 4096u}) {
    std::vector<float> dx;
    layer(normal(cols, 5), 1e-5, &dx);
    expect_near(dx, std::vector<double>(cols, 0), 1e-6);
  }
}

TEST(Layernorm, ASixteenBitSumOfManyRowsKeepsItsBits) {
  constexpr int64_t kRows = 32768, kCols = 16;
  std::vector<bf16> x = stored<bf16>(normal(kRows * kCols, 1)), dy(x.size(), bf16(1.0f));
  std::vector<float> mean(kRows, 0.0f), rstd(kRows, 1.0f), dbias(kCols);
  auto a = tcx_layernorm_backward_args_default();
  a.dy = view(dy, {kRows, kCols}), a.x = view(x, {kRows, kCols});
  a.mean = view(mean), a.rstd = view(rstd), a.dbias = view(dbias);
  layernorm_backward(a);
  EXPECT_EQ(dbias, std::vector<float>(kCols, kRows));
}

// ---------------------------------------------------------------- norm_gemv

// The separate path: the norm, rounded to f16, then a product in double.
TEST(NormGemv, AgreesWithTheSeparatePathInHalf) {
  constexpr int64_t kCols = 2304, kOut = 96;
  for (const int64_t rows : {1, 3, 8, 12}) {
    auto x = stored<f16>(normal(rows * kCols, 1)), weight = stored<f16>(normal(kCols, 2));
    auto w = stored<f16>(normal(kCols * kOut, 3));
    std::vector<f16> y(rows * kOut), v(x.size());
    auto a = tcx_norm_gemv_args_default();
    a.norm = TC_NORM_RMS, a.eps = 1e-5;
    a.x = view(x, {rows, kCols}), a.weight = view(weight), a.w = view(w, {kCols, kOut}), a.y = view(y, {rows, kOut});
    norm_gemv(a);
    auto separate = tcx_rmsnorm_forward_args_default();
    separate.x = a.x, separate.weight = a.weight, separate.y = view(v, {rows, kCols}), separate.eps = a.eps;
    rmsnorm_forward(separate);
    double error = 0, size = 0;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t n = 0; n < kOut; ++n) {
        double want = 0;
        for (int64_t k = 0; k < kCols; ++k)
          want += double{static_cast<float>(v[r * kCols + k])} * double{static_cast<float>(w[k * kOut + n])};
        error += std::pow(static_cast<float>(y[r * kOut + n]) - want, 2);
        size += want * want;
      }
    EXPECT_LE(std::sqrt(error / static_cast<double>(rows * kOut)),
              5e-3 * std::sqrt(size / static_cast<double>(rows * kOut)))
        << rows << " rows";
  }
}

TEST(NormGemv, RefusesWhatDoesNotBelongTogether) {
  std::vector<float> x(4), w(8), y(2), bias(4);
  auto a = tcx_norm_gemv_args_default();
  a.x = view(x, {1, 4}), a.w = view(w, {4, 2}), a.y = view(y, {1, 2}), a.eps = 1e-5;
  EXPECT_EQ(refusal(TC_ERR_INVALID_ARG, [&] { norm_gemv(a); }), "norm_gemv: norm is not set; choose one of rms|layer");
  a.norm = TC_NORM_RMS;
  a.bias = view(bias);
  EXPECT_EQ(refusal(TC_ERR_INVALID_ARG, [&] { norm_gemv(a); }),
            "norm_gemv: bias is given, but only the norm layer has one");
  a.bias = tc_tensor{};
  a.w2 = view(w, {4, 2});
  EXPECT_EQ(refusal(TC_ERR_INVALID_ARG, [&] { norm_gemv(a); }),
            "norm_gemv: w2 and y2 belong together, but only one of them is given");
}

}  // namespace
}  // namespace tc
