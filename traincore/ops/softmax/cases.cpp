// What check and bench run for softmax and log-softmax.
#include "traincore/testing/cases.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "traincore/core/view.h"
#include "traincore/ops/softmax/softmax.h"

namespace tc::ops::softmax {

using SoftmaxForward = tcx_softmax_forward_args;
using SoftmaxBackward = tcx_softmax_backward_args;
using LogSoftmaxForward = tcx_log_softmax_forward_args;
using LogSoftmaxBackward = tcx_log_softmax_backward_args;
template <class Real>
void softmax_forward_oracle(const SoftmaxForward&);
template <class Real>
void softmax_backward_oracle(const SoftmaxBackward&);
template <class Real>
void log_softmax_forward_oracle(const LogSoftmaxForward&);
template <class Real>
void log_softmax_backward_oracle(const LogSoftmaxBackward&);

namespace {

using testing::Case;
using testing::Effort;
using testing::Layout;
using testing::Random;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// One row each: all -inf; a NaN; a +inf; only the last element finite; only the first; every third one -inf; plain.
double special_rows(const Case& c, Random& random, int64_t index) {
  const int64_t cols = c.extent("cols"), row = index / cols, col = index % cols;
  const double plain = random.normal();
  switch (row) {
    case 0:
      return -kInfinity;
    case 1:
      return col == cols - 2 ? std::numeric_limits<double>::quiet_NaN() : plain;
    case 2:
      return col == cols - 3 ? kInfinity : plain;
    case 3:
      return col == cols - 1 ? plain : -kInfinity;
    case 4:
      return col == 0 ? plain - 1e4 : -kInfinity;
    case 5:
      return col % 3 == 0 ? -kInfinity : plain;
    default:
      return plain;
  }
}

std::vector<Case> list(Effort effort) {
  std::vector<Case> all = testing::row_sweep(effort, Case().may_be_zero({"y", "dx"}), {"x", "y", "dy", "dx"});
  const auto small = [] { return Case().dim("rows", {3, 5}).dim("cols", 129); };
  all.push_back(small());
  all.push_back(Case().dim("rows", std::vector<int64_t>{}).dim("cols", 100));
  all.push_back(small().layout({"dy"}, Layout::expanded));
  // Tensors that start differently far from a multiple of 16 bytes, and rows that do.
  for (const int64_t cols : {1001, 9001})
    for (const char* field : {"x", "y", "dy", "dx"})
      all.push_back(Case().dim("rows", {2, 5}).dim("cols", cols).layout({field}, Layout::offset_by_one));
  all.push_back(Case().dim("rows", {3, 5}).dim("cols", 1001).alias("y", "x").alias("dx", "dy"));
  if (effort != Effort::quick)  // so many rows of odd width that kernels go round several times
    for (const auto& [rows, cols] : testing::kOddTurns) all.push_back(Case().dim("rows", rows).dim("cols", cols));
  all.push_back(small().layout({"x"}, Layout::expanded).layout({"y"}, Layout::padded_rows));
  all.push_back(small().alias("y", "x").alias("dx", "dy"));
  all.push_back(Case().dim("rows", 2).dim("cols", 3).fill("x", testing::values({1000, -1000, 0, 0, 1, 2})));
  all.push_back(Case()  // beyond f16: a row of -inf there
                    .dim("rows", 2)
                    .dim("cols", 3)
                    .fill("x", testing::values({-1e7, -1e7 + 1, -1e7 + 2, 0, 1, 2}))
                    .may_be_nonfinite({"y", "dx"}));
  all.push_back(small().fill("x", testing::normal(100)));       // peaked
  all.push_back(small().fill("x", testing::normal(1, 5000)));   // large mean
  all.push_back(small().fill("x", testing::normal(1e-40)));     // denormals: uniform rows
  all.push_back(small().fill("dy", testing::normal(1, 1000)));  // dy - sum(y dy) cancels
  // Rising by 40 every 4096 elements, so that the maximum moves and old sums vanish.
  all.push_back(Case().dim("rows", 2).dim("cols", 9001).fill("x", [](const Case&, Random& random, int64_t i) {
    const int64_t step = i % 9001 / 4096;
    return static_cast<double>(step * 40) + random.normal();
  }));
  for (const int64_t cols : {37, 9001})
    all.push_back(Case().dim("rows", 8).dim("cols", cols).fill("x", special_rows).may_be_nonfinite({"y", "dx"}));
  return all;
}

std::vector<Case> bench() {
  std::vector<Case> all;
  for (const auto& [rows, cols] : {std::pair{16384, 4096}, {131072, 128}, {32768, 1000}, {1024, 50257}})
    all.push_back(Case().dim("rows", rows).dim("cols", cols));
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
                                   {65536, 1001},
                                   {16384, 50257}})
    all.push_back(Case().dim("rows", rows).dim("cols", cols));
  return all;
}

// Both gradients subtract a sum over the row: the magnitudes of their terms, largest over the tensor.
template <class A, class F>
testing::Terms gradient_terms(const A& a, F&& of_row) {
  const auto y = rows_of<const double>(a.y), dy = rows_of<const double>(a.dy);
  testing::Terms terms{static_cast<double>(y.cols), 0};
  for (int64_t r = 0; r < y.count; ++r) {
    const double row = of_row(y[r], dy[r], y.cols);
    if (std::isfinite(row)) terms.magnitude = std::max(terms.magnitude, row);
  }
  return terms;
}
testing::Terms softmax_terms(std::string_view, const void* exact_args) {
  return gradient_terms(*static_cast<const SoftmaxBackward*>(exact_args),
                        [](const double* y, const double* dy, int64_t cols) {
                          double dot = 0, largest = 0;
                          for (int64_t c = 0; c < cols; ++c) dot += std::abs(y[c] * dy[c]);
                          for (int64_t c = 0; c < cols; ++c)
                            largest = std::max(largest, std::abs(y[c]) * (std::abs(dy[c]) + dot));
                          return largest;
                        });
}
testing::Terms log_softmax_terms(std::string_view, const void* exact_args) {
  return gradient_terms(*static_cast<const LogSoftmaxBackward*>(exact_args),
                        [](const double* y, const double* dy, int64_t cols) {
                          double total = 0, largest = 0;
                          for (int64_t c = 0; c < cols; ++c) total += std::abs(dy[c]);
                          for (int64_t c = 0; c < cols; ++c)
                            largest = std::max(largest, std::abs(dy[c]) + std::exp(y[c]) * total);
                          return largest;
                        });
}

// Wrong kernels that the cases must catch.
template <class A, class F>
void change_outputs(const A& a, const tc_tensor& output, F&& change) {
  const auto y = rows_of<float>(output);
  for (int64_t r = 0; r < y.count; ++r) change(a, r, y[r], y.cols);
}
void no_maximum(const void* p) {
  const auto& a = *static_cast<const SoftmaxForward*>(p);
  change_outputs(a, a.y, [](const SoftmaxForward& f, int64_t r, float* y, int64_t cols) {
    const float* x = rows_of<const float>(f.x)[r];
    float sum = 0;
    for (int64_t c = 0; c < cols; ++c) sum += std::exp(x[c]);
    for (int64_t c = 0; c < cols; ++c) y[c] = std::exp(x[c]) / sum;
  });
}
void masked_row_is_uniform(const void* p) {
  const auto& a = *static_cast<const SoftmaxForward*>(p);
  softmax_forward_oracle<float>(a);
  change_outputs(a, a.y, [](const SoftmaxForward&, int64_t, float* y, int64_t cols) {
    if (std::all_of(y, y + cols, [](float v) { return v == 0; })) std::fill_n(y, cols, 1 / static_cast<float>(cols));
  });
}
void no_dot(const void* p) {
  const auto& a = *static_cast<const SoftmaxBackward*>(p);
  change_outputs(a, a.dx, [](const SoftmaxBackward& b, int64_t r, float* dx, int64_t cols) {
    for (int64_t c = 0; c < cols; ++c) dx[c] = rows_of<const float>(b.y)[r][c] * rows_of<const float>(b.dy)[r][c];
  });
}
void log_of_softmax(const void* p) {
  const auto& a = *static_cast<const LogSoftmaxForward*>(p);
  softmax_forward_oracle<float>({sizeof(SoftmaxForward), a.x, a.y});
  change_outputs(a, a.y, [](const LogSoftmaxForward&, int64_t, float* y, int64_t cols) {
    std::transform(y, y + cols, y, [](float v) { return std::log(v); });
  });
}
void probability_not_exponentiated(const void* p) {
  const auto& a = *static_cast<const LogSoftmaxBackward*>(p);
  change_outputs(a, a.dx, [](const LogSoftmaxBackward& b, int64_t r, float* dx, int64_t cols) {
    const float *y = rows_of<const float>(b.y)[r], *dy = rows_of<const float>(b.dy)[r];
    float total = 0;
    for (int64_t c = 0; c < cols; ++c) total += dy[c];
    for (int64_t c = 0; c < cols; ++c) dx[c] = dy[c] - y[c] * total;
  });
}
void masked_row_has_gradient(const void* p) {
  const auto& a = *static_cast<const LogSoftmaxBackward*>(p);
  log_softmax_backward_oracle<float>(a);
  change_outputs(a, a.dx, [](const LogSoftmaxBackward& b, int64_t r, float* dx, int64_t cols) {
    const float* y = rows_of<const float>(b.y)[r];
    if (std::all_of(y, y + cols, [](float v) { return std::isinf(v); }))
      std::copy_n(rows_of<const float>(b.dy)[r], cols, dx);
  });
}

}  // namespace

extern const testing::OpCases cases;
const testing::OpCases cases = {
    .name = "softmax",
    .passes = {testing::pass_cases<SoftmaxForward, softmax_forward_oracle<double>, softmax_forward_oracle<float>>(
                   "softmax_forward"),
               testing::pass_cases<SoftmaxBackward, softmax_backward_oracle<double>, softmax_backward_oracle<float>>(
                   "softmax_backward", softmax_terms),
               testing::pass_cases<LogSoftmaxForward, log_softmax_forward_oracle<double>,
                                   log_softmax_forward_oracle<float>>("log_softmax_forward"),
               testing::pass_cases<LogSoftmaxBackward, log_softmax_backward_oracle<double>,
                                   log_softmax_backward_oracle<float>>("log_softmax_backward", log_softmax_terms)},
    .list = list,
    .bench = bench,
    .mutants = {{"exp without subtracting the maximum", "softmax_forward", no_maximum},
                {"a masked row is uniform", "softmax_forward", masked_row_is_uniform},
                {"sum(y dy) forgotten", "softmax_backward", no_dot},
                {"log(softmax(x))", "log_softmax_forward", log_of_softmax},
                {"y where exp(y) belongs", "log_softmax_backward", probability_not_exponentiated},
                {"a masked row has a gradient", "log_softmax_backward", masked_row_has_gradient}},
    .bench_cuda = bench_cuda,
};

}  // namespace tc::ops::softmax
