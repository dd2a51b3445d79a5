// What check and bench run for linear cross entropy.
#include "traincore/testing/cases.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "traincore/core/view.h"
#include "traincore/ops/linear_cross_entropy/linear_cross_entropy.h"

namespace tc::ops::linear_cross_entropy {

using Forward = tcx_linear_cross_entropy_forward_args;
using Backward = tcx_linear_cross_entropy_backward_args;
template <class Real>
void forward_oracle(const Forward&);
template <class Real>
void backward_oracle(const Backward&);

namespace {

using testing::Case;
using testing::Effort;
using testing::Layout;
using testing::Random;

constexpr double kIgnore = -100;

// Any class; about one row in eight is ignored, but never the first.
double random_targets(const Case& c, Random& random, int64_t row) {
  const int64_t target = random.below(c.extent("classes"));
  return row > 0 && random.below(8) == 0 ? kIgnore : static_cast<double>(target);
}

Case with_reduction(int reduction) {
  return Case()
      .set("reduction", reduction)
      .with({"row_max", "row_log_sum", "valid_count"})
      .fill("target", random_targets)
      .fill("weight", testing::normal(0.3));
}
Case sized(int reduction, std::vector<int64_t> rows, int64_t width, int64_t classes) {
  return with_reduction(reduction).dim("rows", std::move(rows)).dim("width", width).dim("classes", classes);
}
// Loss and every gradient in one pass, and the gradients by themselves.
Case fused(Case c) { return c.with({"bias", "dloss", "dhidden", "dweight", "dbias"}); }

void add_sizes(std::vector<Case>& all, Effort effort) {
  const auto add = [&](int64_t rows, int64_t width, int64_t classes) {
    // One class leaves no gradient, and neither does no row.
    const auto tolerant = [](Case c) {
      return c.may_be_zero({"loss", "row_log_sum", "dhidden", "dweight", "dbias", "row_max"});
    };
    const Case plain = sized(TC_REDUCTION_NONE, {rows}, width, classes);
    const Case mean = fused(sized(TC_REDUCTION_MEAN, {rows}, width, classes));
    all.push_back(rows == 0 || classes == 1 ? tolerant(plain) : plain);
    all.push_back(rows == 0 || classes == 1 ? tolerant(mean) : mean);
  };
  for (const int64_t rows : {0, 1, 2, 7}) add(rows, 17, 33);
  for (const int64_t width : {1, 2, 3, 31, 64, 65, 129, 257}) add(5, width, 33);
  for (const int64_t classes : {1, 2, 3, 31, 64, 127, 383}) add(6, 19, classes);
  add(8300, 3, 5);  // more rows than a chunk, of a GPU too
  if (effort == Effort::quick) return;
  for (const int64_t classes : {1000, 4097, 8193, 32001}) add(7, 33, classes);
  add(2600, 17, 33);
  add(5000, 64, 65);
  add(130, 5, 131072);  // chunks of 128 rows
  add(65, 600, 700);    // products of several tiles and panels
  if (effort == Effort::full) add(20, 3, 2000003);
}

// Every option, alone and with others, in all reductions.
void add_options(std::vector<Case>& all) {
  for (const int reduction : {TC_REDUCTION_NONE, TC_REDUCTION_SUM, TC_REDUCTION_MEAN}) {
    const auto small = [&] { return sized(reduction, {3, 5}, 16, 67); };
    all.push_back(small());
    all.push_back(small().with({"bias"}));
    all.push_back(fused(small()));
    all.push_back(small().with({"dhidden", "dloss"}));
    all.push_back(small().with({"dweight", "dloss"}).set("label_smoothing", 0.1));
    all.push_back(fused(small()).set("label_smoothing", 1));
    all.push_back(fused(small()).set("z_loss", 0.1).with({"z_loss_part"}));
    all.push_back(small().with({"z_loss_part", "bias"}).may_be_zero({"z_loss_part"}));
    all.push_back(fused(small()).set("logit_scale", 0.5));
    all.push_back(fused(small()).set("softcap", 2));
    all.push_back(
        fused(small()).with({"class_weight"}).fill("class_weight", testing::uniform(0, 2)).set("z_loss", 0.01));
    all.push_back(
        fused(small()).set("label_smoothing", 0.2).set("z_loss", 0.01).set("softcap", 5).set("logit_scale", 2));
    all.push_back(fused(small()).alias("dhidden", "hidden"));
    all.push_back(small().alias("dhidden", "hidden"));
    all.push_back(fused(small()).set("accumulate", 1));
    all.push_back(fused(small())
                      .fill("target", testing::constant(kIgnore))
                      .may_be_zero({"loss", "dhidden", "dweight", "dbias", "row_max", "row_log_sum"}));
    all.push_back(fused(small()).set("ignore_index", 7).fill("target", [](const Case&, Random&, int64_t row) {
      return static_cast<double>(row % 3 == 1 ? 7 : row);
    }));
  }
}

void add_dtypes_and_layouts(std::vector<Case>& all) {
  const auto none = [] { return fused(sized(TC_REDUCTION_NONE, {3, 5}, 20, 45)); };
  const auto mean = [] { return fused(sized(TC_REDUCTION_MEAN, {3, 5}, 20, 45)); };
  all.push_back(mean().with({"normalizer"}).fill("normalizer", testing::constant(37)));
  all.push_back(mean()
                    .with({"normalizer"})
                    .fill("normalizer", testing::constant(0))
                    .may_be_zero({"loss", "dhidden", "dweight", "dbias"}));
  for (const int32_t d : {TC_DTYPE_F32, TC_DTYPE_BF16, TC_DTYPE_F16}) {
    all.push_back(mean().dtype("weight", d).dtype("bias", TC_DTYPE_F32));
    all.push_back(mean().dtype("dweight", d).dtype("dbias", d).dtype("class_weight", d).with({"class_weight"}));
  }
  all.push_back(none().dtype("target", TC_DTYPE_I32));
  all.push_back(none().layout({"target", "dloss"}, Layout::expanded).layout({"loss", "row_max"}, Layout::padded_rows));
  all.push_back(none().layout({"target", "dloss", "loss", "row_log_sum"}, Layout::reversed));
  all.push_back(none().layout({"target", "dloss", "loss", "row_log_sum"}, Layout::transposed));
  for (const Layout l : {Layout::padded_rows, Layout::offset_by_one, Layout::reversed})
    all.push_back(none().layout({"hidden", "weight", "dhidden", "dweight"}, l));
  all.push_back(none().layout({"hidden"}, Layout::expanded));
  all.push_back(none().layout({"weight"}, Layout::expanded).may_be_zero({"dhidden"}));  // all classes alike
  all.push_back(fused(sized(TC_REDUCTION_SUM, {}, 9, 100)));
}

void add_values(std::vector<Case>& all) {
  const auto none = [] { return fused(sized(TC_REDUCTION_NONE, {3, 5}, 20, 45)); };
  all.push_back(none().fill("hidden", testing::normal(30)));                        // peaked
  all.push_back(none().fill("hidden", testing::normal(1, 50)).set("softcap", 30));  // large mean
  all.push_back(none().fill("bias", testing::normal(1, 1e4)));
  all.push_back(none()
                    .fill("hidden", testing::normal(1e-40))
                    .fill("bias", testing::constant(0))
                    .may_be_zero({"row_max", "dweight"}));
  // Gradients of logits that are too large for f16, and too small.
  for (const auto& [dloss, logit_scale] : {std::pair{2e4, 8.0}, {1e-4, 1.0}})
    all.push_back(fused(sized(TC_REDUCTION_SUM, {15}, 20, 45))
                      .fill("dloss", testing::constant(dloss))
                      .set("logit_scale", logit_scale)
                      .fill("weight", testing::normal(0.03))
                      .dtype("dweight", TC_DTYPE_F32)
                      .dtype("dbias", TC_DTYPE_F32));
  // Rows that do not count are not read, and reach neither a parameter's gradient nor another row.
  all.push_back(none()
                    .fill("hidden",
                          [](const Case&, Random& random, int64_t i) {
                            return i / 20 % 2 ? std::numeric_limits<double>::quiet_NaN() : random.normal();
                          })
                    .fill("target", [](const Case&, Random&, int64_t row) { return row % 2 ? kIgnore : 3.0; }));
  // A row that is not finite spoils its own loss and dhidden, and the gradients of the parameters.
  all.push_back(none()
                    .fill("hidden",
                          [](const Case&, Random& random, int64_t i) {
                            return i == 45 ? std::numeric_limits<double>::quiet_NaN() : random.normal();
                          })
                    .may_be_nonfinite({"loss", "row_max", "row_log_sum", "dhidden", "dweight", "dbias"}));
}

std::vector<Case> list(Effort effort) {
  std::vector<Case> all;
  add_sizes(all, effort);
  add_options(all);
  add_dtypes_and_layouts(all);
  add_values(all);
  return all;
}

std::vector<Case> bench_sizes(const std::vector<std::array<int64_t, 3>>& sizes) {
  std::vector<Case> all;
  for (const auto& [rows, width, classes] : sizes) {
    all.push_back(sized(TC_REDUCTION_MEAN, {rows}, width, classes));
    all.push_back(sized(TC_REDUCTION_MEAN, {rows}, width, classes).with({"dhidden", "dweight"}));
  }
  return all;
}
std::vector<Case> bench() { return bench_sizes({{1024, 768, 50257}, {2048, 768, 32000}, {8192, 512, 256}}); }
// Every row counts, as in the peers' figures.
std::vector<Case> bench_cuda() {
  std::vector<Case> all = bench_sizes({{8192, 4096, 128256}, {16384, 2048, 32000}});
  for (Case& c : all) c.fill("target", testing::integers_below("classes"));
  return all;
}
// Few classes, so that a product of a row with them all is soon checked.
Case large() { return sized(TC_REDUCTION_NONE, {64}, 1024, 40).with({"dloss", "dhidden"}); }

// ---------------------------------------------------------------- magnitudes of what is added up

template <class A>
double class_weight_of(const A& a, int64_t target) {
  return given(a.class_weight) ? static_cast<const double*>(a.class_weight.data)[target] : 1;
}

template <class A>
double inverse_normalizer(const A& a) {
  if (a.reduction != TC_REDUCTION_MEAN) return 1;
  double total = 0;
  for (int64_t r = 0; r < element_count(a.target); ++r)
    if (const int64_t t = Indices(a.target)[r]; t != a.ignore_index) total += class_weight_of(a, t);
  if (given(a.normalizer)) total = *static_cast<const double*>(a.normalizer.data);
  return total == 0 ? 0 : 1 / total;
}

// Of one row. A logit is a sum itself: its magnitude is an absolute error of u, and thus a relative one of p. The
// logarithm of a sum has the sum's relative error as an absolute one: the 1.
struct RowTerms {
  double loss = 0, max = 0, log_sum = 0;
  std::vector<double> dx;
};
template <class A>
RowTerms row_terms(const A& a, int64_t row) {
  const int64_t target = Indices(a.target)[row];
  const auto weight = rows_of<const double>(a.weight);
  RowTerms terms;
  terms.dx.resize(static_cast<size_t>(weight.count));
  if (target == a.ignore_index) return terms;
  const double* h = rows_of<const double>(a.hidden)[row];
  std::vector<double> u(terms.dx.size()), sums(terms.dx.size());  // sums: magnitudes of u
  for (size_t c = 0; c < u.size(); ++c) {
    double x = given(a.bias) ? static_cast<const double*>(a.bias.data)[c] : 0, sum = std::abs(x);
    for (int64_t k = 0; k < weight.cols; ++k) {
      const double term = h[k] * weight[static_cast<int64_t>(c)][k];
      x += term, sum += std::abs(term);
    }
    u[c] = a.softcap > 0 ? a.softcap * std::tanh(a.logit_scale * x / a.softcap) : a.logit_scale * x;
    sums[c] = a.logit_scale * sum;
  }
  const size_t t = static_cast<size_t>(target), at = std::max_element(u.begin(), u.end()) - u.begin();
  const auto classes = static_cast<double>(u.size());
  double exps = 0, shifted = 0, mean_sum = 0, weighted = 0;
  for (size_t c = 0; c < u.size(); ++c) {
    const double e = std::exp(u[c] - u[at]);
    exps += e, weighted += e * sums[c], shifted += (u[at] - u[c]) / classes, mean_sum += sums[c] / classes;
  }
  const double s = a.label_smoothing, kept = class_weight_of(a, target) * (1 - s), of_lse = weighted / exps;
  const double log_sum = std::log(exps) + 1, lse = std::abs(u[at]) + log_sum + of_lse;
  terms.max = sums[at];
  terms.log_sum = log_sum + of_lse + sums[at];
  terms.loss = kept * (u[at] - u[t] + log_sum + of_lse + sums[t]) + s * (log_sum + shifted + of_lse + mean_sum) +
               a.z_loss * lse * lse;
  for (size_t c = 0; c < u.size(); ++c) {
    const double p = std::exp(u[c] - u[at]) / exps, bend = a.softcap > 0 ? 1 + 2 * sums[c] / a.softcap : 1;
    terms.dx[c] = a.logit_scale * bend *
                  ((kept + s + 2 * a.z_loss * lse) * p * (1 + sums[c] + of_lse) + s / classes + (c == t ? kept : 0));
  }
  return terms;
}

// The largest sum of terms' magnitudes behind an element of each output.
struct Magnitudes {
  double loss = 0, total_loss = 0, max = 0, log_sum = 0, dhidden = 0, dweight = 0, dbias = 0;
};
template <class A>
Magnitudes magnitudes_of(const A& a) {
  const auto weight = rows_of<const double>(a.weight), hidden = rows_of<const double>(a.hidden);
  const auto dloss = values_of<const double>(a.dloss);
  std::vector<double> dweight(static_cast<size_t>(weight.count * weight.cols)),
      dbias(static_cast<size_t>(weight.count));
  const double scale = inverse_normalizer(a);
  Magnitudes m;
  for (int64_t r = 0; r < hidden.count; ++r) {
    const RowTerms row = row_terms(a, r);
    if (!std::isfinite(row.loss) || Indices(a.target)[r] == a.ignore_index) continue;
    m.loss = std::max(m.loss, row.loss), m.total_loss += row.loss * scale;
    m.max = std::max(m.max, row.max), m.log_sum = std::max(m.log_sum, row.log_sum);
    std::vector<double> dhidden(static_cast<size_t>(weight.cols));
    for (int64_t c = 0; c < weight.count; ++c) {
      const double dx = row.dx[static_cast<size_t>(c)] * scale * std::abs(dloss.data ? *dloss[r] : 1);
      dbias[static_cast<size_t>(c)] += dx;
      for (int64_t k = 0; k < weight.cols; ++k) {
        dhidden[static_cast<size_t>(k)] += dx * std::abs(weight[c][k]);
        dweight[static_cast<size_t>(c * weight.cols + k)] += dx * std::abs(hidden[r][k]);
      }
    }
    m.dhidden = std::max(m.dhidden, *std::max_element(dhidden.begin(), dhidden.end()));
  }
  m.dweight = *std::max_element(dweight.begin(), dweight.end());
  m.dbias = *std::max_element(dbias.begin(), dbias.end());
  return m;
}

template <class A>
testing::Terms terms_of(std::string_view field, const A& a) {
  const auto rows = static_cast<double>(element_count(a.target)), classes = static_cast<double>(a.weight.shape[0]);
  const auto width = static_cast<double>(a.weight.shape[1]);
  const Magnitudes m = magnitudes_of(a);
  if (field == "loss")
    return a.reduction == TC_REDUCTION_NONE ? testing::Terms{width + classes, m.loss}
                                            : testing::Terms{width + classes + rows, m.total_loss};
  if (field == "row_max") return {width, m.max};
  if (field == "row_log_sum") return {width + classes, m.log_sum};
  if (field == "dhidden") return {width + classes, m.dhidden};
  if (field == "dweight") return {width + rows, m.dweight};
  return field == "dbias" ? testing::Terms{width + rows, m.dbias} : testing::Terms{};
}
testing::Terms forward_terms(std::string_view field, const void* exact_args) {
  return terms_of(field, *static_cast<const Forward*>(exact_args));
}
testing::Terms backward_terms(std::string_view field, const void* exact_args) {
  return terms_of(field, *static_cast<const Backward*>(exact_args));
}

// ---------------------------------------------------------------- wrong kernels that the cases must catch

template <class A>
A bent(const void* p, void (*bend)(A&)) {
  A a = *static_cast<const A*>(p);
  bend(a);
  return a;
}
void for_each_value(const tc_tensor& t, float (*change)(float)) {
  const auto all = values_of<float>(t);
  for (int64_t i = 0; given(t) && i < all.count; ++i) *all[i] = change(*all[i]);
}
void bias_forgotten(const void* p) {
  forward_oracle<float>(bent<Forward>(p, [](Forward& a) { a.bias = {}; }));
}
void smoothing_dropped(const void* p) {
  forward_oracle<float>(bent<Forward>(p, [](Forward& a) { a.label_smoothing = 0; }));
}
void dloss_ignored(const void* p) {
  forward_oracle<float>(bent<Forward>(p, [](Forward& a) { a.dloss = {}; }));
}
void mean_over_ignored_rows(const void* p) {
  const auto& a = *static_cast<const Forward*>(p);
  forward_oracle<float>(a);
  int64_t valid = 0;
  for (int64_t r = 0; r < element_count(a.target); ++r) valid += Indices(a.target)[r] != a.ignore_index;
  if (a.reduction == TC_REDUCTION_MEAN && !given(a.class_weight) && !given(a.normalizer) && valid)
    *static_cast<float*>(a.loss.data) *= static_cast<float>(valid) / static_cast<float>(element_count(a.target));
}
void dweight_in_bf16(const void* p) {
  const auto& a = *static_cast<const Backward*>(p);
  backward_oracle<float>(a);
  for_each_value(a.dweight, [](float v) { return float(bf16(v)); });
}
void z_gradient_dropped(const void* p) {
  backward_oracle<float>(bent<Backward>(p, [](Backward& a) { a.z_loss = 0; }));
}
void logit_scale_forgotten(const void* p) {
  backward_oracle<float>(bent<Backward>(p, [](Backward& a) { a.logit_scale = 1; }));
}

}  // namespace

extern const testing::OpCases cases;
const testing::OpCases cases = {
    .name = "linear_cross_entropy",
    .passes = {testing::pass_cases<Forward, forward_oracle<double>, forward_oracle<float>>(
                   "linear_cross_entropy_forward", forward_terms),
               testing::pass_cases<Backward, backward_oracle<double>, backward_oracle<float>>(
                   "linear_cross_entropy_backward", backward_terms)},
    .list = list,
    .bench = bench,
    .mutants = {{"bias forgotten", "linear_cross_entropy_forward", bias_forgotten},
                {"label_smoothing dropped", "linear_cross_entropy_forward", smoothing_dropped},
                {"dloss ignored in the one-pass form", "linear_cross_entropy_forward", dloss_ignored},
                {"mean over ignored rows too", "linear_cross_entropy_forward", mean_over_ignored_rows},
                {"dweight summed in bf16", "linear_cross_entropy_backward", dweight_in_bf16},
                {"gradient of the z loss dropped", "linear_cross_entropy_backward", z_gradient_dropped},
                {"logit_scale forgotten in backward", "linear_cross_entropy_backward", logit_scale_forgotten}},
    .constant_inputs = {"class_weight", "normalizer"},
    .bench_cuda = bench_cuda,
    .large = large,
    .loads_kernels = true,
};

}  // namespace tc::ops::linear_cross_entropy
