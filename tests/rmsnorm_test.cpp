// RMSNorm where other libraries fail: squares beyond f16, an eps below it, cotangents that are expanded, no rows.
#include "traincore/ops/rmsnorm/rmsnorm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/tensors.h"

namespace tc {
namespace {

tcx_rmsnorm_forward_args forward_of(const tc_tensor& x, const tc_tensor& y, double eps) {
  auto a = tcx_rmsnorm_forward_args_default();
  a.x = x, a.y = y, a.eps = eps;
  return a;
}

TEST(Rmsnorm, SquaresBeyondF16) {
  for (const float value : {300.0f, 60000.0f}) {
    std::vector<f16> x(4096, f16(value)), y(4096);
    rmsnorm_forward(forward_of(view(x), view(y), 1e-6));
    for (const f16 v : y) EXPECT_EQ(float(v), 1);
  }
}

TEST(Rmsnorm, EpsIsNotRoundedToTheDtype) {
  const double tiny = float(f16(1e-4f));
  for (const double eps : {1e-5, 1e-6, 1e-8}) {
    std::vector<f16> x(64, f16(1e-4f)), y(64);
    rmsnorm_forward(forward_of(view(x), view(y), eps));
    const double want = tiny / std::sqrt(tiny * tiny + eps);
    EXPECT_NEAR(float(y[0]) / want, 1, 5e-4) << eps;
  }
}

TEST(Rmsnorm, KnownValues) {
  std::vector<float> x = {3, 4}, y(2), rstd(1), weight = {2, .5f}, dy = {1, 2}, dx(2);
  auto a = forward_of(view(x), view(y), 1e-6);
  a.rstd = view(rstd, {});
  rmsnorm_forward(a);
  EXPECT_NEAR(rstd[0], .282843, 1e-6);
  EXPECT_NEAR(y[0], .848528, 1e-6);
  auto b = tcx_rmsnorm_backward_args_default();
  b.x = view(x), b.dy = view(dy), b.rstd = a.rstd, b.dx = view(dx);
  rmsnorm_backward(b);
  EXPECT_NEAR(dx[0], -.090510, 1e-6);
  EXPECT_NEAR(dx[1], .067882, 1e-6);
  a.weight = view(weight);
  rmsnorm_forward(a);
  EXPECT_NEAR(y[0], 1.697056, 1e-6);
  EXPECT_NEAR(y[1], .565685, 1e-6);
  std::vector<float> ones(257, 1), normed(257);  // 257, not 512, is what the mean divides by
  rmsnorm_forward(forward_of(view(ones), view(normed), 1e-6));
  for (const float v : normed) EXPECT_NEAR(v, .9999995, 1e-7);
}

// x, dy [rows, 96]: every gradient of a call.
struct Gradients {
  std::vector<float> dx, dweight;
  bool operator==(const Gradients&) const = default;
};
Gradients gradients(int64_t rows, tc_tensor dy) {
  std::vector<float> x = normal(static_cast<size_t>(rows * 96), 1), weight = normal(96, 2);
  std::vector<float> rstd(static_cast<size_t>(rows), .7f);
  Gradients g{std::vector<float>(x.size(), NAN), std::vector<float>(96, NAN)};
  auto b = tcx_rmsnorm_backward_args_default();
  b.x = view(x, {rows, 96}), b.dy = dy, b.weight = view(weight), b.rstd = view(rstd);
  b.dx = view(g.dx, {rows, 96}), b.dweight = view(g.dweight);
  rmsnorm_backward(b);
  return g;
}

TEST(Rmsnorm, ExpandedCotangent) {
  std::vector<float> row = normal(96, 3), dense;
  for (int r = 0; r < 8; ++r) dense.insert(dense.end(), row.begin(), row.end());
  tc_tensor expanded = view(row, {1, 96});
  expanded.shape[0] = 8, expanded.stride[0] = 0;
  EXPECT_EQ(gradients(8, expanded), gradients(8, view(dense, {8, 96})));
}

TEST(Rmsnorm, NoRowsLeaveAGradientOfZero) {
  std::vector<float> none;
  const Gradients g = gradients(0, view(none, {0, 96}));
  EXPECT_EQ(g.dweight, std::vector<float>(96, 0));
}

TEST(Rmsnorm, AVectorIsOneRow) {
  std::vector<float> x(4, 0), dy(4, 1), rstd(1, 1000), dweight(4, NAN);
  auto b = tcx_rmsnorm_backward_args_default();
  b.x = view(x), b.dy = view(dy), b.rstd = view(rstd, {}), b.dweight = view(dweight);
  rmsnorm_backward(b);
  EXPECT_EQ(dweight, std::vector<float>(4, 0));
}

}  // namespace
}  // namespace tc
