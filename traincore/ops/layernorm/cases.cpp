// What check and bench run for LayerNorm.
#include <algorithm>
#include <cmath>
#include <limits>

#include "traincore/core/view.h"
#include "traincore/ops/layernorm/layernorm.h"
#include "traincore/testing/cases.h"

namespace tc::ops::layernorm {

using Forward = tcx_layernorm_forward_args;
using Backward = tcx_layernorm_backward_args;
template <class Real>
void forward_oracle(const Forward&);
template <class Real>
void backward_oracle(const Backward&);

namespace {

using testing::Case;
using testing::Effort;
using testing::Layout;

constexpr double kEps = 1e-5;

// Rows of whole vectors, for a warp to several blocks, under gains and biases of every dtype, with either alone, with
// neither, and with a residual.
void add_gains(std::vector<Case>& all, const Case& base) {
  for (const int64_t cols : {264, 4104, 40000}) {
    const Case wide = Case(base).dim("rows", 3).dim("cols", cols);
    for (const int32_t dtype : {TC_DTYPE_F32, TC_DTYPE_BF16, TC_DTYPE_F16}) {
      all.push_back(Case(wide).dtype("weight", dtype).dtype("bias", dtype));
      all.push_back(Case(wide).dtype("weight", dtype));
      all.back().given = {"weight", "mean", "rstd", "dx", "dweight"};
    }
    all.push_back(Case(wide).dtype("weight", TC_DTYPE_F32).dtype("bias", TC_DTYPE_F16));
    all.push_back(Case(wide).with({"residual", "residual_out", "dresidual_out"}).dtype("weight", TC_DTYPE_F32));
    all.push_back(wide);
    all.back().given = {"bias", "rstd", "dx", "dbias"};
    all.push_back(wide);
    all.back().given = {"rstd", "dx"};
  }
}

void add_options(std::vector<Case>& all, const Case& base) {
  const auto small = [&] { return Case(base).dim("rows", {3, 5}).dim("cols", 129); };
  const auto bare = [&] { return Case().set("eps", kEps).dim("rows", {3, 5}).dim("cols", 129); };
  all.push_back(small().set("accumulate", 1));
  all.push_back(small().with({"residual", "residual_out", "dresidual_out"}));
  all.push_back(bare().with({"dx"}));
  all.push_back(bare().with({"weight", "dweight", "mean", "rstd"}));
  all.push_back(bare().with({"bias", "dx", "dbias", "rstd"}));
  all.push_back(Case(base).dim("rows", std::vector<int64_t>{}).dim("cols", 100));
  all.push_back(small().layout({"dy"}, Layout::expanded));
  all.push_back(small().alias("y", "x").alias("dx", "dy"));
  all.push_back(small()
                    .with({"residual", "residual_out", "dresidual_out"})
                    .alias("y", "residual")
                    .alias("residual_out", "x")
                    .alias("dx", "dresidual_out"));
  all.push_back(small()
                    .dtype("weight", TC_DTYPE_F16)
                    .dtype("bias", TC_DTYPE_F32)
                    .dtype("dweight", TC_DTYPE_BF16)
                    .dtype("dbias", TC_DTYPE_F16));
  add_gains(all, base);
  for (const Case& mixed : testing::mixed_norm_sweep(base)) all.push_back(mixed);
}

// Of every row the first `count` elements, of which kernels may take a value near its mean.
Case outliers_first(const Case& base, int64_t cols, int64_t count, double value) {
  const auto x = [=](const Case&, testing::Random& random, int64_t i) {
    const double usual = random.normal();
    return i % cols < count ? value * (1 + 0.1 * usual) : usual;
  };
  return Case(base).dim("rows", 3).dim("cols", cols).fill("x", x);
}

// All alike but for one element, which the largest gradient meets: the row lies far from 0 for its width.
Case all_but_one(const Case& base, int64_t cols) {
  const auto x = [=](const Case&, testing::Random&, int64_t i) { return i % cols == 7 ? 1000.5 : 1000.0; };
  const auto dy = [=](const Case&, testing::Random& random, int64_t i) { return i % cols == 7 ? 64 : random.normal(); };
  return Case(base).dim("rows", 2).dim("cols", cols).fill("x", x).fill("dy", dy);
}

void add_values(std::vector<Case>& all, const Case& base) {
  const auto small = [&] { return Case(base).dim("rows", {3, 5}).dim("cols", 129); };
  all.push_back(small().fill("x", testing::normal(1, 300)));       // squares beyond f16's range
  all.push_back(small().fill("x", testing::normal(1e-4)));         // eps matters, and must not be rounded to the dtype
  all.push_back(small().fill("x", testing::uniform(1000, 1100)));  // E[x^2] - E[x]^2 would be noise
  all.push_back(Case(base).dim("rows", 2).dim("cols", 20001).fill("x", testing::uniform(16000, 16100)));
  all.push_back(Case(base).dim("rows", 2).dim("cols", 70000).fill("x", testing::uniform(1000, 1100)));
  for (const auto& [cols, count] : {std::pair{1000, 8}, {4096, 8}, {4096, 1024}, {131072, 8}, {131072, 1024}})
    all.push_back(outliers_first(base, cols, count, 3000));
  for (const int64_t cols : {1000, 40000}) all.push_back(all_but_one(base, cols));
  for (const int64_t cols : {1000, 40000})  // the mean is exact, or eps is not all of the variance
    all.push_back(
        Case(base).dim("rows", 2).dim("cols", cols).fill("x", testing::constant(100)).may_be_zero({"dweight"}));
  all.push_back(small().fill("x", testing::constant(3)).may_be_zero({"dweight"}));
  all.push_back(small().fill("x", testing::constant(0)).may_be_zero({"mean", "dweight"}));
  for (const int64_t cols : {129, 40000}) {
    const auto one_nan = [=](const Case&, testing::Random& random, int64_t i) {
      return i == cols + 5 ? std::numeric_limits<double>::quiet_NaN() : random.normal();
    };
    all.push_back(Case(base)
                      .dim("rows", 3)
                      .dim("cols", cols)
                      .fill("x", one_nan)
                      .may_be_nonfinite({"y", "mean", "rstd", "dx", "dweight"}));
  }
}

std::vector<Case> list(Effort effort) {
  const std::vector<const char*> full_size = {"x", "residual", "y", "residual_out", "dy", "dresidual_out", "dx"};
  const Case base = Case()
                        .set("eps", kEps)
                        .with({"weight", "bias", "mean", "rstd", "dx", "dweight", "dbias"})
                        .may_be_zero({"dx", "dweight"});  // a row of one element is its own mean
  std::vector<Case> all = testing::row_sweep(effort, base, full_size);
  add_options(all, base);
  add_values(all, base);
  return all;
}

std::vector<Case> bench() {
  std::vector<Case> all;
  for (const auto& [rows, cols] : {std::pair{16384, 4096}, {131072, 128}, {32768, 1000}})
    all.push_back(Case()
                      .set("eps", kEps)
                      .with({"weight", "bias", "mean", "rstd", "dx", "dweight", "dbias"})
                      .dim("rows", rows)
                      .dim("cols", cols));
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
    all.push_back(Case()
                      .set("eps", kEps)
                      .with({"weight", "bias", "mean", "rstd", "dx", "dweight", "dbias"})
                      .dim("rows", rows)
                      .dim("cols", cols));
  return all;
}

// y is a difference of v and its mean.
testing::Terms forward_terms(std::string_view field, const void* exact_args) {
  const auto& a = *static_cast<const Forward*>(exact_args);
  if (field != "mean") return {};
  const auto x = rows_of<const double>(a.x), residual = rows_of<const double>(a.residual);
  double largest = 0;
  for (int64_t r = 0; r < x.count; ++r) {
    double sum = 0;
    for (int64_t c = 0; c < x.cols; ++c) sum += std::abs(x[r][c] + (residual.data ? residual[r][c] : 0));
    largest = std::max(largest, sum / static_cast<double>(x.cols));
  }
  return {static_cast<double>(x.cols), largest};
}

// dweight and dbias sum over rows, dx over the row with cancellation: the magnitudes of their terms.
testing::Terms backward_terms(std::string_view field, const void* exact_args) {
  const auto& a = *static_cast<const Backward*>(exact_args);
  const auto dy = rows_of<const double>(a.dy), x = rows_of<const double>(a.x),
             residual = rows_of<const double>(a.residual);
  const auto mean = values_of<const double>(a.mean), rstd = values_of<const double>(a.rstd);
  const auto* weight = static_cast<const double*>(a.weight.data);
  std::vector<double> column(static_cast<size_t>(dy.cols));
  double dx = 0;
  for (int64_t r = 0; r < dy.count; ++r) {
    double sum = 0, dot = 0, largest_c = 0, largest_gw = 0;
    for (int64_t c = 0; c < dy.cols; ++c) {
      const double v = x[r][c] + (residual.data ? residual[r][c] : 0);
      const double normalised = std::abs((v - *mean[r]) * *rstd[r]);
      const double gw = std::abs(dy[r][c] * (weight ? weight[c] : 1));
      column[static_cast<size_t>(c)] += std::abs(dy[r][c]) * (field == "dweight" ? normalised : 1);
      sum += gw, dot += gw * normalised;
      largest_c = std::max(largest_c, normalised);
      largest_gw = std::max(largest_gw, gw);
    }
    dx = std::max(dx, *rstd[r] * (largest_gw + (sum + largest_c * dot) / static_cast<double>(dy.cols)));
  }
  if (field == "dx") return {static_cast<double>(dy.cols), dx};
  return {static_cast<double>(dy.count), dy.count ? *std::max_element(column.begin(), column.end()) : 0};
}

// Wrong kernels that the cases must catch: the right one, then its result bent.
void bend_y(const Forward& a, float (*factor)(float rstd, int64_t cols, float eps)) {
  std::vector<float> own(static_cast<size_t>(rows_of<const float>(a.x).count));
  Forward plain = a;
  plain.bias = tc_tensor{};
  if (!given(a.rstd)) {
    const auto rows = static_cast<int64_t>(own.size());
    plain.rstd = tc_tensor_dense(own.data(), TC_DTYPE_F32, 1, &rows);
  }
  forward_oracle<float>(plain);
  const auto y = rows_of<float>(a.y);
  const auto rstd = values_of<float>(plain.rstd);
  const auto* bias = static_cast<const float*>(a.bias.data);
  for (int64_t r = 0; r < y.count; ++r)
    for (int64_t c = 0; c < y.cols; ++c)
      y[r][c] = y[r][c] * factor(*rstd[r], y.cols, static_cast<float>(a.eps)) + (bias ? bias[c] : 0);
}
float sample_factor(float rstd, int64_t cols, float eps) {  // divides by n - 1
  const auto n = static_cast<float>(cols);
  const float variance = 1 / (rstd * rstd) - eps;
  return 1 / std::sqrt(variance * n / std::max(n - 1, 1.0f) + eps) / rstd;
}
float outside_factor(float rstd, int64_t, float eps) {  // eps added to the root
  return 1 / (std::sqrt(std::max(1 / (rstd * rstd) - eps, 0.0f)) + eps) / rstd;
}
void sample_variance(const void* p) { bend_y(*static_cast<const Forward*>(p), sample_factor); }
void eps_outside_root(const void* p) { bend_y(*static_cast<const Forward*>(p), outside_factor); }
void one_pass_variance(const void* p) {
  const auto& a = *static_cast<const Forward*>(p);
  forward_oracle<float>(a);
  const auto x = rows_of<const float>(a.x), residual = rows_of<const float>(a.residual);
  const auto rstd = values_of<float>(a.rstd);
  for (int64_t r = 0; rstd.data && r < x.count; ++r) {
    float sum = 0, squares = 0;
    for (int64_t c = 0; c < x.cols; ++c) {
      const float v = x[r][c] + (residual.data ? residual[r][c] : 0);
      sum += v, squares += v * v;
    }
    const auto n = static_cast<float>(x.cols);
    *rstd[r] = 1 / std::sqrt(std::max(squares / n - sum / n * (sum / n), 0.0f) + static_cast<float>(a.eps));
  }
}
void missing_mean(const void* p) {
  const auto& a = *static_cast<const Backward*>(p);
  backward_oracle<float>(a);
  const auto dy = rows_of<const float>(a.dy);
  const auto dx = rows_of<float>(a.dx);
  const auto rstd = values_of<const float>(a.rstd);
  const auto* weight = static_cast<const float*>(a.weight.data);
  for (int64_t r = 0; dx.data && r < dx.count; ++r) {
    float sum = 0;
    for (int64_t c = 0; c < dx.cols; ++c) sum += dy[r][c] * (weight ? weight[c] : 1);
    for (int64_t c = 0; c < dx.cols; ++c) dx[r][c] += *rstd[r] * sum / static_cast<float>(dx.cols);
  }
}
void averaged_gradients(const void* p) {
  const auto& a = *static_cast<const Backward*>(p);
  backward_oracle<float>(a);
  const auto dy = rows_of<const float>(a.dy);
  for (const tc_tensor* t : {&a.dweight, &a.dbias})
    for (int64_t c = 0; t->data && c < dy.cols && dy.count; ++c)
      static_cast<float*>(t->data)[c] /= static_cast<float>(dy.count);
}
void ignored_cotangent(const void* p) {
  Backward a = *static_cast<const Backward*>(p);
  a.dresidual_out = tc_tensor{};
  backward_oracle<float>(a);
}

}  // namespace

extern const testing::OpCases cases;
const testing::OpCases cases = {
    .name = "layernorm",
    .passes = {testing::pass_cases<Forward, forward_oracle<double>, forward_oracle<float>>("layernorm_forward",
                                                                                           forward_terms),
               testing::pass_cases<Backward, backward_oracle<double>, backward_oracle<float>>("layernorm_backward",
                                                                                              backward_terms)},
    .list = list,
    .bench = bench,
    .mutants = {{"variance of a sample", "layernorm_forward", sample_variance},
                {"eps outside the root", "layernorm_forward", eps_outside_root},
                {"variance as E[x^2] - E[x]^2", "layernorm_forward", one_pass_variance},
                {"dx without mean(gw)", "layernorm_backward", missing_mean},
                {"parameter gradients averaged over rows", "layernorm_backward", averaged_gradients},
                {"dresidual_out ignored", "layernorm_backward", ignored_cotangent}},
    .bench_cuda = bench_cuda,
    .summed = {"dy"},
};

}  // namespace tc::ops::layernorm
