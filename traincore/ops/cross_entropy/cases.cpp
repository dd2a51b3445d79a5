// What check and bench run for cross entropy.
#include "traincore/testing/cases.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "traincore/core/view.h"
#include "traincore/ops/cross_entropy/cross_entropy.h"

namespace tc::ops::cross_entropy {

using Forward = tcx_cross_entropy_forward_args;
using Backward = tcx_cross_entropy_backward_args;
template <class Real>
void forward_oracle(const Forward&);
template <class Real>
void backward_oracle(const Backward&);

namespace {

using testing::Case;
using testing::Effort;
using testing::Fill;
using testing::Layout;
using testing::Random;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kIgnore = -100;

// Any class; about one row in eight is ignored, but never the first.
double random_targets(const Case& c, Random& random, int64_t row) {
  const int64_t target = random.below(c.extent("classes"));
  return row > 0 && random.below(8) == 0 ? kIgnore : static_cast<double>(target);
}

// One row each: target at -inf; a NaN; a +inf; all -inf; -inf but for the last class; ignored and NaN; plain.
constexpr int64_t kSpecialRows = 7;
double special_logits(const Case& c, Random& random, int64_t index) {
  const int64_t classes = c.extent("classes"), row = index / classes, col = index % classes;
  const double plain = random.normal();
  switch (row) {
    case 0:
      return col % 2 == 0 ? -kInfinity : plain;
    case 1:
      return col == classes - 2 ? std::numeric_limits<double>::quiet_NaN() : plain;
    case 2:
      return col == classes - 3 ? kInfinity : plain;
    case 3:
      return -kInfinity;
    case 4:
      return col == classes - 1 ? plain : -kInfinity;
    case 5:
      return std::numeric_limits<double>::quiet_NaN();
    default:
      return plain;
  }
}
double special_targets(const Case& c, Random&, int64_t row) {
  if (row == 4) return static_cast<double>(c.extent("classes") - 1);
  return row == 5 ? kIgnore : 0;
}

Case with_reduction(int reduction) {
  return Case()
      .set("reduction", reduction)
      .with({"row_max", "row_log_sum", "valid_count"})
      .fill("target", random_targets);
}

// The sweep of shapes, once a row at a time and once reduced to the mean in one pass. A mean and its gradient depend on
// every row, which the batch-invariance mode can only leave out by its second row dimension.
std::vector<Case> sweep(Effort effort) {
  const auto rows = [&](const Case& base) {
    const Case tolerant = Case(base).may_be_zero({"loss", "dlogits", "row_log_sum"});  // one class; no rows
    return testing::row_sweep(effort, tolerant, {"logits", "dlogits"}, "rows", "classes");
  };
  std::vector<Case> all = rows(with_reduction(TC_REDUCTION_NONE));
  for (Case& c : rows(with_reduction(TC_REDUCTION_MEAN).set("fuse_backward", 1).with({"dlogits"}))) {
    c.dims.find("rows")->second.insert(c.dims.find("rows")->second.begin(), 1);
    all.push_back(c);
  }
  return all;
}

// Every option, alone and with others, in all reductions.
void add_options(std::vector<Case>& all) {
  for (const int reduction : {TC_REDUCTION_NONE, TC_REDUCTION_SUM, TC_REDUCTION_MEAN}) {
    const auto small = [&] { return with_reduction(reduction).dim("rows", {3, 5}).dim("classes", 129); };
    const auto fused = [&] { return small().set("fuse_backward", 1).with({"dlogits", "dloss"}); };
    all.push_back(small());
    all.push_back(fused());
    all.push_back(small().set("label_smoothing", 0.1));
    all.push_back(small().set("label_smoothing", 1));
    all.push_back(small().set("z_loss", 0.1).with({"z_loss_part"}));
    all.push_back(small().with({"z_loss_part"}).may_be_zero({"z_loss_part"}));
    all.push_back(small().set("logit_scale", 0.5));
    all.push_back(small().set("softcap", 2));
    all.push_back(small().with({"class_weight"}).fill("class_weight", testing::uniform(0, 2)).set("z_loss", 0.01));
    all.push_back(fused().set("label_smoothing", 0.2).set("z_loss", 0.01).set("softcap", 5).set("logit_scale", 2));
    all.push_back(fused().alias("dlogits", "logits"));
    all.push_back(small().alias("dlogits", "logits"));
    all.push_back(
        small().fill("target", testing::constant(kIgnore)).may_be_zero({"loss", "dlogits", "row_max", "row_log_sum"}));
    all.push_back(small().set("ignore_index", 7).fill("target", [](const Case&, Random&, int64_t row) {
      return static_cast<double>(row % 3 == 1 ? 7 : row);
    }));
  }
}

// A class at either end of its row, by turns.
double outermost_targets(const Case& c, Random&, int64_t row) {
  return row % 2 == 0 ? 0 : static_cast<double>(c.extent("classes") - 1);
}

// Rows that start anywhere between multiples of 16 bytes.
void add_odd_rows(std::vector<Case>& all, Effort effort) {
  const auto fused = [](int64_t rows, int64_t classes) {
    return with_reduction(TC_REDUCTION_NONE)
        .dim("rows", {2, rows})
        .dim("classes", classes)
        .set("fuse_backward", 1)
        .with({"dlogits", "dloss"});
  };
  for (const int64_t classes : {259, 1001, 9001}) {
    all.push_back(fused(5, classes).fill("target", outermost_targets));
    all.push_back(fused(5, classes).alias("dlogits", "logits"));
    all.push_back(fused(5, classes).layout({"logits"}, Layout::offset_by_one));
    all.push_back(fused(5, classes).layout({"dlogits"}, Layout::offset_by_one).fill("target", outermost_targets));
    all.push_back(fused(5, classes).set("label_smoothing", 0.2).set("z_loss", 0.01).set("softcap", 5));
  }
  if (effort == Effort::quick) return;
  for (const auto& [rows, classes] : testing::kOddTurns) all.push_back(fused(rows / 2, classes));
}

// Smoothed labels in one pass, where a block, or several, take rows in turn: that fit 16-byte accesses, and that do not.
void add_smoothed_rows(std::vector<Case>& all) {
  for (const int64_t classes : {9001, 16640, 69632})
    for (const double z_loss : {0.0, 0.01})
      all.push_back(with_reduction(TC_REDUCTION_MEAN)
                        .dim("rows", {1, 3})
                        .dim("classes", classes)
                        .set("fuse_backward", 1)
                        .set("label_smoothing", 0.2)
                        .set("z_loss", z_loss)
                        .with({"dlogits", "dloss"})
                        .fill("target", outermost_targets));
}

std::vector<Case> list(Effort effort) {
  std::vector<Case> all = sweep(effort);
  add_options(all);
  add_odd_rows(all, effort);
  add_smoothed_rows(all);
  const auto none = [] { return with_reduction(TC_REDUCTION_NONE).dim("rows", {3, 5}).dim("classes", 129); };
  const auto mean = [] { return with_reduction(TC_REDUCTION_MEAN).dim("rows", {3, 5}).dim("classes", 129); };
  all.push_back(mean().with({"normalizer"}).fill("normalizer", testing::constant(37)));
  all.push_back(mean()
                    .with({"normalizer", "z_loss_part"})
                    .set("z_loss", 0.1)
                    .fill("normalizer", testing::constant(0))
                    .may_be_zero({"loss", "z_loss_part", "dlogits"}));
  all.push_back(mean().with({"class_weight"}).dtype("class_weight", TC_DTYPE_BF16));
  all.push_back(
      mean().with({"class_weight"}).fill("class_weight", testing::constant(0)).may_be_zero({"loss", "dlogits"}));
  all.push_back(none().dtype("target", TC_DTYPE_I32));
  all.push_back(none().layout({"target", "dloss"}, Layout::expanded).layout({"loss", "row_max"}, Layout::padded_rows));
  all.push_back(none().layout({"target", "dloss", "loss", "row_log_sum"}, Layout::reversed));
  all.push_back(with_reduction(TC_REDUCTION_SUM).dim("rows", std::vector<int64_t>{}).dim("classes", 100));
  all.push_back(none().fill("logits", testing::normal(1, 1e4)).set("label_smoothing", 0.1));  // large mean
  all.push_back(none().fill("logits", testing::normal(50)));                                  // peaked
  all.push_back(none().fill("logits", testing::normal(1e-40)).may_be_zero({"row_max"}));      // denormals; 0 in f16
  // Sums of logits that lose everything unless the maximum goes first, over several blocks of the kernels.
  all.push_back(with_reduction(TC_REDUCTION_NONE)
                    .dim("rows", 3)
                    .dim("classes", 9001)
                    .set("label_smoothing", 0.5)
                    .fill("logits", [](const Case&, Random& random, int64_t i) {
                      return 1e4 + static_cast<double>(i % 9001 / 4096) * 40 + random.normal();
                    }));
  for (const int64_t classes : {37, 9001})
    all.push_back(with_reduction(TC_REDUCTION_NONE)
                      .dim("rows", kSpecialRows)
                      .dim("classes", classes)
                      .fill("logits", special_logits)
                      .fill("target", special_targets)
                      .may_be_nonfinite({"loss", "row_max", "row_log_sum", "dlogits"}));
  return all;
}

std::vector<Case> bench_fused(int reduction, std::initializer_list<std::pair<int64_t, int64_t>> sizes) {
  std::vector<Case> all;
  for (const auto& [rows, classes] : sizes)
    all.push_back(with_reduction(reduction)
                      .set("fuse_backward", 1)
                      .with({"dlogits"})
                      .alias("dlogits", "logits")
                      .dim("rows", rows)
                      .dim("classes", classes));
  return all;
}
std::vector<Case> bench() { return bench_fused(TC_REDUCTION_MEAN, {{2048, 32000}, {1024, 50257}, {16384, 256}}); }
// Every row counts, as in the peers' figures. The first, whose rows know nothing of each other, is also what check --large
// makes larger and samples.
std::vector<Case> bench_cuda() {
  std::vector<Case> all = bench_fused(TC_REDUCTION_NONE, {{16384, 32000}});
  for (const Case& c :
       bench_fused(TC_REDUCTION_MEAN, {{16384, 32000}, {8192, 128256}, {4096, 262144}, {8192, 50257}, {262144, 256}}))
    all.push_back(c);
  for (Case& c : all) c.fill("target", testing::integers_below("classes"));
  return all;
}

template <class Real, class A>
double weight_of(const A& a, int64_t target) {
  return given(a.class_weight) ? static_cast<const Real*>(a.class_weight.data)[target] : 1;
}

// What loss and gradient are multiplied by after their row has been summed.
double inverse_normalizer(const Forward& a) {
  if (a.reduction != TC_REDUCTION_MEAN) return 1;
  double total = 0;
  for (int64_t r = 0; r < element_count(a.target); ++r)
    if (const int64_t t = Indices(a.target)[r]; t != a.ignore_index) total += weight_of<double>(a, t);
  if (given(a.normalizer)) total = *static_cast<const double*>(a.normalizer.data);
  return total == 0 ? 0 : 1 / total;
}

// Magnitudes of the terms of one row. The logarithm of a sum has the sum's relative error as an absolute one: the 1.
struct RowTerms {
  double loss = 0, log_sum = 0, gradient = 0;
};
RowTerms row_terms(const Forward& a, int64_t row) {
  const int64_t classes = a.logits.shape[a.logits.rank - 1], target = Indices(a.target)[row];
  if (target == a.ignore_index) return {};
  const double* x = rows_of<const double>(a.logits)[row];
  const auto u = [&](int64_t c) {
    const double scaled = a.logit_scale * x[c];
    return a.softcap > 0 ? a.softcap * std::tanh(scaled / a.softcap) : scaled;
  };
  double max = -kInfinity, sum = 0, shifted = 0;
  for (int64_t c = 0; c < classes; ++c) max = std::max(max, u(c));
  for (int64_t c = 0; c < classes; ++c) sum += std::exp(u(c) - max), shifted += max - u(c);
  const double s = a.label_smoothing, kept = weight_of<double>(a, target) * (1 - s), log_sum = std::log(sum) + 1;
  const double lse = std::abs(max) + log_sum, mean = shifted / static_cast<double>(classes);
  return {kept * (max - u(target) + log_sum) + s * (log_sum + mean) + a.z_loss * lse * lse, log_sum,
          a.logit_scale * ((kept + s + 2 * a.z_loss * lse) / sum + s / static_cast<double>(classes) + kept)};
}

testing::Terms forward_terms(std::string_view field, const void* exact_args) {
  const auto& a = *static_cast<const Forward*>(exact_args);
  const auto classes = static_cast<double>(a.logits.shape[a.logits.rank - 1]);
  const auto rows = element_count(a.target);
  const auto dloss = values_of<const double>(a.dloss);
  double total = 0, largest = 0;
  for (int64_t r = 0; r < rows; ++r) {
    const RowTerms row = row_terms(a, r);
    const double gradient = row.gradient * std::abs(dloss.data ? *dloss[r] : 1);
    const double magnitude = field == "dlogits" ? gradient : field == "loss" ? row.loss : row.log_sum;
    if (!std::isfinite(magnitude)) continue;
    total += magnitude;
    largest = std::max(largest, magnitude);
  }
  if (field == "loss")
    return a.reduction == TC_REDUCTION_NONE
               ? testing::Terms{classes, largest}
               : testing::Terms{classes + static_cast<double>(rows), total * inverse_normalizer(a)};
  if (field == "dlogits") return {classes, largest * inverse_normalizer(a)};
  return field == "row_log_sum" ? testing::Terms{classes, largest} : testing::Terms{};
}

// A backward call seen as the fused forward call that would give the same dlogits.
Forward as_forward(const Backward& b) {
  Forward a = tcx_cross_entropy_forward_args_default();
  a.reduction = b.reduction;
  a.logits = b.logits, a.target = b.target, a.class_weight = b.class_weight, a.normalizer = b.normalizer;
  a.dloss = b.dloss, a.dlogits = b.dlogits;
  a.ignore_index = b.ignore_index, a.label_smoothing = b.label_smoothing, a.z_loss = b.z_loss;
  a.logit_scale = b.logit_scale, a.softcap = b.softcap;
  return a;
}
testing::Terms backward_terms(std::string_view field, const void* exact_args) {
  const Forward a = as_forward(*static_cast<const Backward*>(exact_args));
  return forward_terms(field, &a);
}

// Wrong kernels that the cases must catch: a right one with an argument changed, or with its result bent.
void scale_values(const tc_tensor& t, double factor) {
  const auto rows = rows_of<float>(t);
  for (int64_t r = 0; r < rows.count; ++r)
    for (int64_t c = 0; c < rows.cols; ++c) rows[r][c] *= static_cast<float>(factor);
}
void mean_over_ignored_rows(const void* p) {
  const auto& a = *static_cast<const Forward*>(p);
  forward_oracle<float>(a);
  int64_t valid = 0;
  for (int64_t r = 0; r < element_count(a.target); ++r) valid += Indices(a.target)[r] != a.ignore_index;
  if (a.reduction == TC_REDUCTION_MEAN && !given(a.class_weight) && !given(a.normalizer) && valid)
    scale_values(a.loss, static_cast<double>(valid) / static_cast<double>(element_count(a.target)));
}
void smoothing_dropped(const void* p) {
  Forward a = *static_cast<const Forward*>(p);
  a.label_smoothing = 0;
  forward_oracle<float>(a);
}
void normalizer_ignored(const void* p) {
  Forward a = *static_cast<const Forward*>(p);
  a.normalizer = {};
  forward_oracle<float>(a);
}
void not_shifted(const void* p) {
  const auto& a = *static_cast<const Forward*>(p);
  forward_oracle<float>(a);
  const auto x = rows_of<const float>(a.logits);
  for (int64_t r = 0; a.reduction == TC_REDUCTION_NONE && r < x.count; ++r) {
    const int64_t t = Indices(a.target)[r];
    if (t == a.ignore_index) continue;
    float sum = 0;
    for (int64_t c = 0; c < x.cols; ++c) sum += std::exp(x[r][c]);
    if (a.label_smoothing == 0 && a.z_loss == 0 && a.softcap == 0 && a.logit_scale == 1)
      *values_of<float>(a.loss)[r] = static_cast<float>(weight_of<float>(a, t)) * (std::log(sum) - x[r][t]);
  }
}
void dloss_of_the_first_row(const void* p) {
  Backward a = *static_cast<const Backward*>(p);
  for (int i = 0; i < a.dloss.rank; ++i) a.dloss.stride[i] = 0;
  backward_oracle<float>(a);
}
void z_gradient_dropped(const void* p) {
  Backward a = *static_cast<const Backward*>(p);
  a.z_loss = 0;
  backward_oracle<float>(a);
}
void scale_factor_dropped(const void* p) {
  const auto& a = *static_cast<const Backward*>(p);
  backward_oracle<float>(a);
  scale_values(a.dlogits, 1 / a.logit_scale);
}
void ignored_row_has_gradient(const void* p) {
  Backward a = *static_cast<const Backward*>(p);
  const int64_t ignored = a.ignore_index;
  a.ignore_index = INT32_MIN;
  std::vector<int64_t> targets;
  for (int64_t r = 0; r < element_count(a.target); ++r) {
    const int64_t t = Indices(a.target)[r];
    targets.push_back(t == ignored ? 0 : t);
  }
  const tc_tensor given_target = a.target;
  a.target = tc_tensor_dense(targets.data(), TC_DTYPE_I64, given_target.rank, given_target.shape);
  backward_oracle<float>(a);
}

}  // namespace

extern const testing::OpCases cases;
const testing::OpCases cases = {
    .name = "cross_entropy",
    .passes = {testing::pass_cases<Forward, forward_oracle<double>, forward_oracle<float>>("cross_entropy_forward",
                                                                                           forward_terms),
               testing::pass_cases<Backward, backward_oracle<double>, backward_oracle<float>>("cross_entropy_backward",
                                                                                              backward_terms)},
    .list = list,
    .bench = bench,
    .mutants = {{"mean over ignored rows too", "cross_entropy_forward", mean_over_ignored_rows},
                {"label_smoothing dropped", "cross_entropy_forward", smoothing_dropped},
                {"normalizer ignored", "cross_entropy_forward", normalizer_ignored},
                {"exp without subtracting the maximum", "cross_entropy_forward", not_shifted},
                {"dloss of the first row for all", "cross_entropy_backward", dloss_of_the_first_row},
                {"gradient of the z loss dropped", "cross_entropy_backward", z_gradient_dropped},
                {"logit_scale missing in the gradient", "cross_entropy_backward", scale_factor_dropped},
                {"ignored rows have a gradient", "cross_entropy_backward", ignored_row_has_gradient}},
    .constant_inputs = {"class_weight", "normalizer"},
    .bench_cuda = bench_cuda,
};

}  // namespace tc::ops::cross_entropy
