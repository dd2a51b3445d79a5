// What check and bench run for norm_gemv.
#include <algorithm>
#include <cmath>
#include <vector>

#include "traincore/core/view.h"
#include "traincore/ops/norm_gemv/norm_gemv.h"
#include "traincore/testing/cases.h"

namespace tc::ops::norm_gemv {

using Args = tcx_norm_gemv_args;
template <class Real>
void oracle(const Args&);

namespace {

using testing::Case;
using testing::Effort;
using testing::Layout;

Case product(int norm, int64_t rows, int64_t k, int64_t n, bool transposed) {
  return Case()
      .set("norm", norm)
      .set("eps", 1e-5)
      .set("transpose_w", transposed)
      .with({"weight"})
      .dim("rows", rows)
      .dim("k", k)
      .dim("n", n);
}
Case with_siblings(Case c) { return c.with({"w2", "y2", "w3", "y3"}).dim("n2", 33).dim("n3", 70); }

// Sizes around every way of cutting: tiles of rows, of W's rows, strips of columns, runs of k.
void add_sizes(std::vector<Case>& all, Effort effort) {
  const std::vector<int64_t> rows = {0, 1, 2, 3, 7, 8, 9, 17};
  std::vector<int64_t> widths = {1, 2, 3, 17, 33, 63, 100, 129, 257, 1001};
  if (effort != Effort::quick) widths.insert(widths.end(), {511, 513, 1408, 2048, 2304, 3072, 4096, 5120, 7168, 8192});
  size_t at = 0;
  for (const int64_t k : widths)
    for (const bool transposed : {false, true})
      for (const int norm : {TC_NORM_RMS, TC_NORM_LAYER})
        all.push_back(product(norm, rows[1 + at++ % 7], k, 65, transposed));
  for (Case& c : all)
    if (c.extent("k") == 1) c.may_be_zero({"y"});  // a row of one element is its own mean
  for (const int64_t m : rows)
    for (const int64_t n : {1, 7, 31, 130})
      for (const bool transposed : {false, true}) all.push_back(product(TC_NORM_RMS, m, 96, n, transposed));
  for (const bool transposed : {false, true}) {
    all.push_back(product(TC_NORM_LAYER, 1, 600, 5001, transposed));
    all.push_back(product(TC_NORM_RMS, 5, 1030, 1700, transposed));
    all.push_back(product(TC_NORM_LAYER, 2, 1032, 1704, transposed));
    all.push_back(product(TC_NORM_RMS, 3, 40, 0, transposed));
    // Clusters of blocks that share k, which ends inside a step.
    all.push_back(product(TC_NORM_LAYER, 4, 2056, 520, transposed));
    all.push_back(product(TC_NORM_RMS, 8, 3080, 24, transposed));
    all.push_back(product(TC_NORM_RMS, 1, 2048, 1032, transposed));
    // Rounded up, the first blocks' shares of k would leave nothing to the last one of a large cluster.
    all.push_back(product(TC_NORM_RMS, 4, 2560, 200, transposed));
    all.push_back(product(TC_NORM_LAYER, 1, 1088, 500, transposed));
    // Matrices side by side, in one launch.
    all.push_back(
        product(TC_NORM_RMS, 2, 264, 96, transposed).with({"w2", "y2", "w3", "y3"}).dim("n2", 40).dim("n3", 8));
  }
  all.push_back(product(TC_NORM_RMS, 4, 8192, 40, true));
  // More outputs than a block keeps sums of.
  all.push_back(product(TC_NORM_RMS, 8, 256, 20000, true));
  all.push_back(product(TC_NORM_RMS, 2, 64, 70000, false));
}

void add_options(std::vector<Case>& all, int64_t rows, bool transposed) {
  const auto base = [&](int norm) { return product(norm, rows, 129, 96, transposed); };
  all.push_back(with_siblings(base(TC_NORM_RMS)).set("weight_offset", 1));
  all.push_back(with_siblings(base(TC_NORM_LAYER)).with({"bias"}));
  all.push_back(base(TC_NORM_RMS).with({"w3", "y3"}).dim("n3", 5));
  all.push_back(with_siblings(base(TC_NORM_RMS)).dtype("w2", TC_DTYPE_F32).dtype("w3", TC_DTYPE_BF16));
  all.push_back(base(TC_NORM_LAYER).with({"bias"}).dtype("weight", TC_DTYPE_F16).dtype("y", TC_DTYPE_F32));
  all.push_back(base(TC_NORM_LAYER).fill("x", testing::uniform(1000, 1100)));
  all.push_back(base(TC_NORM_RMS).fill("x", testing::normal(1e-4)));
  all.push_back(base(TC_NORM_RMS).fill("x", testing::constant(0)).may_be_zero({"y"}));
  all.push_back(base(TC_NORM_RMS).dim("rows", {rows, 2}).layout({"y", "w", "x"}, Layout::padded_rows));
  all.push_back(base(TC_NORM_RMS).layout({"w", "x", "y"}, Layout::offset_by_one));
  all.push_back(base(TC_NORM_RMS).layout({"w", "x", "y"}, Layout::reversed));
  Case bare = base(TC_NORM_LAYER);
  bare.given.clear();
  all.push_back(bare);
  all.push_back(bare.dim("rows", std::vector<int64_t>{}));
}

// Wide loads of x, gain and bias of every dtype, beside W of another.
void add_mixed(std::vector<Case>& all) {
  for (const bool transposed : {false, true})
    for (const int64_t rows : {1, 3, 6}) {
      const int64_t k = rows == 3 ? 1088 : 1032;  // 1088: whole boxes for tensor cores
      const auto base = [&](int norm) { return product(norm, rows, k, 72, transposed); };
      for (const int32_t dtype : {TC_DTYPE_F32, TC_DTYPE_BF16, TC_DTYPE_F16}) {
        all.push_back(base(TC_NORM_RMS).dtype("x", dtype));
        all.push_back(base(TC_NORM_LAYER).with({"bias"}).dtype("weight", dtype).dtype("bias", dtype));
        all.push_back(base(TC_NORM_LAYER).dtype("x", dtype).dtype("w", TC_DTYPE_F16));
      }
    }
}

std::vector<Case> list(Effort effort) {
  std::vector<Case> all;
  add_sizes(all, effort);
  for (const int64_t rows : {1, 4, 11})
    for (const bool transposed : {false, true}) add_options(all, rows, transposed);
  add_mixed(all);
  return all;
}

std::vector<Case> bench() {
  std::vector<Case> all;
  for (const bool transposed : {false, true})
    for (const int64_t rows : {1, 8}) all.push_back(product(TC_NORM_RMS, rows, 4096, 4096, transposed));
  all.push_back(
      product(TC_NORM_RMS, 1, 4096, 4096, true).with({"w2", "y2", "w3", "y3"}).dim("n2", 1024).dim("n3", 1024));
  all.push_back(product(TC_NORM_LAYER, 64, 4096, 4096, true));
  return all;
}

std::vector<Case> bench_cuda() {
  std::vector<Case> all;
  for (const bool transposed : {true, false})
    for (const auto& [k, n] : {std::pair<int64_t, int64_t>{4096, 14336}, {8192, 8192}, {4096, 4096}})
      for (const int64_t rows : {1, 4, 8}) all.push_back(product(TC_NORM_RMS, rows, k, n, transposed));
  all.push_back(
      product(TC_NORM_RMS, 1, 4096, 4096, true).with({"w2", "y2", "w3", "y3"}).dim("n2", 1024).dim("n3", 1024));
  return all;
}

// x and y of many rows; matrices stay small.
Case large() { return product(TC_NORM_RMS, 4096, 64, 4096, true); }

// The sum over k of |v w|, with v = x r gain + bias before anything cancels.
testing::Terms terms(std::string_view field, const void* exact_args) {
  const auto& a = *static_cast<const Args*>(exact_args);
  const tc_tensor& matrix = field == "y" ? a.w : field == "y2" ? a.w2 : a.w3;
  const auto x = rows_of<const double>(a.x), w = rows_of<const double>(matrix);
  const auto* weight = static_cast<const double*>(a.weight.data);
  const auto* bias = static_cast<const double*>(a.bias.data);
  const int64_t n = matrix.shape[a.transpose_w ? 0 : 1];
  std::vector<double> v(static_cast<size_t>(x.cols));
  double largest = 0;
  for (int64_t r = 0; r < x.count; ++r) {
    double mean = 0, squares = 0;
    for (int64_t k = 0; k < x.cols && a.norm == TC_NORM_LAYER; ++k) mean += x[r][k] / static_cast<double>(x.cols);
    for (int64_t k = 0; k < x.cols; ++k) squares += (x[r][k] - mean) * (x[r][k] - mean);
    const double rstd = 1 / std::sqrt(squares / static_cast<double>(x.cols) + a.eps);
    for (int64_t k = 0; k < x.cols; ++k)
      v[static_cast<size_t>(k)] = std::abs((x[r][k] - mean) * rstd * (weight ? a.weight_offset + weight[k] : 1)) +
                                  (bias ? std::abs(bias[k]) : 0);
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < x.cols; ++k)
        sum += v[static_cast<size_t>(k)] * std::abs(a.transpose_w ? w[j][k] : w[k][j]);
      largest = std::max(largest, sum);
    }
  }
  return {static_cast<double>(x.cols), largest};
}

// Wrong kernels that the cases must catch.
void other_norm(const void* p) {
  Args a = *static_cast<const Args*>(p);
  a.norm = TC_NORM_RMS;
  oracle<float>(a);
}
void forgotten_offset(const void* p) {
  Args a = *static_cast<const Args*>(p);
  a.weight_offset = 0;
  oracle<float>(a);
}
void forgotten_bias(const void* p) {
  Args a = *static_cast<const Args*>(p);
  a.bias = tc_tensor{};
  oracle<float>(a);
}
void last_k_lost(const void* p) {  // of a k that is not a multiple of 8
  const auto& a = *static_cast<const Args*>(p);
  std::vector<float> copy(static_cast<const float*>(a.w.data),
                          static_cast<const float*>(a.w.data) + a.w.shape[0] * a.w.shape[1]);
  Args cut = a;
  cut.w.data = copy.data();
  const auto x = rows_of<const float>(a.x);
  cut.w.stride[0] = a.w.shape[1];
  for (int64_t k = x.cols / 8 * 8; k < x.cols; ++k)
    for (int64_t n = 0; n < a.w.shape[a.transpose_w ? 0 : 1]; ++n)
      copy[static_cast<size_t>(a.transpose_w ? n * x.cols + k : k * a.w.shape[1] + n)] = 0;
  oracle<float>(cut);
}
void same_matrix(const void* p) {
  Args a = *static_cast<const Args*>(p);
  oracle<float>(a);
  const auto y = rows_of<float>(a.y), y2 = rows_of<float>(a.y2);
  for (int64_t r = 0; given(a.y2) && r < y2.count; ++r)
    for (int64_t c = 0; c < std::min(y.cols, y2.cols); ++c) y2[r][c] = y[r][c];
}

}  // namespace

extern const testing::OpCases cases;
const testing::OpCases cases = {
    .name = "norm_gemv",
    .passes = {testing::pass_cases<Args, oracle<double>, oracle<float>>("norm_gemv", terms)},
    .list = list,
    .bench = bench,
    .mutants = {{"rms in place of layer", "norm_gemv", other_norm},
                {"weight_offset forgotten", "norm_gemv", forgotten_offset},
                {"bias forgotten", "norm_gemv", forgotten_bias},
                {"the tail of k lost", "norm_gemv", last_k_lost},
                {"w2 read as w", "norm_gemv", same_matrix}},
    .bench_cuda = bench_cuda,
    .large = large,
};

}  // namespace tc::ops::norm_gemv
