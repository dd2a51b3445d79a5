// Linear cross entropy is cross entropy of a product, whatever the options; what its chunks must not change; refusals.
#include "traincore/ops/linear_cross_entropy/linear_cross_entropy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "tests/tensors.h"
#include "traincore/ops/cross_entropy/cross_entropy.h"

namespace tc {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// One call with outputs of its own, NaN before it.
struct Head {
  Head(int64_t width_, std::vector<float> h, std::vector<float> w, std::vector<int64_t> t, int32_t reduction)
      : width(width_),
        hidden(std::move(h)),
        weight(std::move(w)),
        target(std::move(t)),
        dhidden(hidden.size(), kNaN),
        dweight(weight.size(), kNaN),
        bias(weight.size() / static_cast<size_t>(width), 0),
        dbias(bias.size(), kNaN),
        row_max(target.size(), kNaN),
        row_log_sum(target.size(), kNaN) {
    const auto rows = static_cast<int64_t>(target.size()), classes = static_cast<int64_t>(bias.size());
    loss.assign(reduction == TC_REDUCTION_NONE ? target.size() : 1, kNaN);
    dloss = normal(loss.size(), 77);
    args.reduction = reduction;
    args.hidden = view(hidden, {rows, width}), args.weight = view(weight, {classes, width}), args.target = view(target);
    args.loss = of_loss(loss), args.row_max = view(row_max), args.row_log_sum = view(row_log_sum);
    args.valid_count = view(valid_count, {});
  }
  tc_tensor of_loss(std::vector<float>& values) const {
    return args.reduction == TC_REDUCTION_NONE ? view(values) : view(values, {});
  }
  void want_gradients() {
    args.dloss = of_loss(dloss);
    args.dhidden = args.hidden, args.dhidden.data = dhidden.data();
    args.dweight = args.weight, args.dweight.data = dweight.data();
    if (args.bias.data) args.dbias = view(dbias);
  }
  void forward() { linear_cross_entropy_forward(args); }
  void backward() {
    auto b = tcx_linear_cross_entropy_backward_args_default();
    b.reduction = args.reduction, b.accumulate = args.accumulate;
    b.hidden = args.hidden, b.weight = args.weight, b.bias = args.bias, b.target = args.target;
    b.class_weight = args.class_weight, b.normalizer = args.normalizer;
    b.row_max = args.row_max, b.row_log_sum = args.row_log_sum, b.dloss = args.dloss;
    b.dhidden = args.dhidden, b.dweight = args.dweight, b.dbias = args.dbias;
    b.ignore_index = args.ignore_index, b.label_smoothing = args.label_smoothing, b.z_loss = args.z_loss;
    b.logit_scale = args.logit_scale, b.softcap = args.softcap;
    linear_cross_entropy_backward(b);
  }

  int64_t width;
  std::vector<float> hidden, weight;
  std::vector<int64_t> target;
  std::vector<float> dhidden, dweight, bias, dbias, row_max, row_log_sum, loss, dloss;
  std::vector<int64_t> valid_count = {-1};
  tcx_linear_cross_entropy_forward_args args = tcx_linear_cross_entropy_forward_args_default();
};

// Loss and dlogits of the logits themselves, by cross_entropy.
struct Reference {
  std::vector<float> logits, dlogits, loss, z_loss_part;
  explicit Reference(Head& h) : loss(h.loss.size()), z_loss_part(h.loss.size()) {
    const size_t rows = h.target.size(), classes = h.bias.size(), width = static_cast<size_t>(h.width);
    for (size_t r = 0; r < rows; ++r)
      for (size_t c = 0; c < classes; ++c) {
        double x = h.args.bias.data ? static_cast<double>(h.bias[c]) : 0;
        for (size_t k = 0; k < width; ++k)
          x += static_cast<double>(h.hidden[r * width + k]) * static_cast<double>(h.weight[c * width + k]);
        logits.push_back(static_cast<float>(x));
      }
    dlogits.resize(logits.size());
    auto a = tcx_cross_entropy_forward_args_default();
    a.reduction = h.args.reduction, a.fuse_backward = 1;
    a.logits = view(logits, {static_cast<int64_t>(rows), static_cast<int64_t>(classes)});
    a.dlogits = a.logits, a.dlogits.data = dlogits.data();
    a.target = h.args.target, a.dloss = h.of_loss(h.dloss), a.loss = h.of_loss(loss);
    a.z_loss_part = h.of_loss(z_loss_part), a.class_weight = h.args.class_weight, a.normalizer = h.args.normalizer;
    a.ignore_index = h.args.ignore_index, a.label_smoothing = h.args.label_smoothing, a.z_loss = h.args.z_loss;
    a.logit_scale = h.args.logit_scale, a.softcap = h.args.softcap;
    cross_entropy_forward(a);
  }
};

void expect_near(const std::vector<float>& got, const std::vector<double>& want, const char* what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  double largest = 0;
  for (const double w : want) largest = std::max(largest, std::abs(w));
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 2e-6 * largest) << what << " " << i;
}
std::vector<double> widened(const std::vector<float>& values) { return {values.begin(), values.end()}; }

// The three gradients against products of dlogits in double.
void expect_gradients(const Head& h, const Reference& reference) {
  const size_t rows = h.target.size(), classes = h.bias.size(), width = static_cast<size_t>(h.width);
  std::vector<double> dhidden(h.hidden.size()), dweight(h.weight.size()), dbias(classes);
  for (size_t r = 0; r < rows; ++r)
    for (size_t c = 0; c < classes; ++c) {
      const double dx = reference.dlogits[r * classes + c];
      dbias[c] += dx;
      for (size_t k = 0; k < width; ++k) {
        dhidden[r * width + k] += dx * static_cast<double>(h.weight[c * width + k]);
        dweight[c * width + k] += dx * static_cast<double>(h.hidden[r * width + k]);
      }
    }
  expect_near(h.dhidden, dhidden, "dhidden");
  expect_near(h.dweight, dweight, "dweight");
  if (h.args.bias.data) expect_near(h.dbias, dbias, "dbias");
}

Head small(int32_t reduction) {
  return {16, normal(8 * 16, 1), normal(33 * 16, 2), {3, -100, 32, 0, 7, -100, 11, 32}, reduction};
}

TEST(LinearCrossEntropy, IsCrossEntropyOfTheProductUnderEveryOption) {
  std::vector<float> class_weight = normal(33, 3), normalizer = {37};
  for (float& w : class_weight) w = std::abs(w);
  const std::vector<std::function<void(Head&)>> options = {
      [](Head&) {},
      [](Head& h) { h.args.label_smoothing = .1; },
      [](Head& h) { h.args.z_loss = .01; },
      [](Head& h) { h.args.softcap = 3, h.args.logit_scale = .5; },
      [&](Head& h) { h.args.class_weight = view(class_weight); },
      [&](Head& h) {
        if (h.args.reduction == TC_REDUCTION_MEAN) h.args.normalizer = view(normalizer, {});
        h.args.ignore_index = 32, h.target[1] = h.target[5] = 1;
      },
      [](Head& h) { h.args.label_smoothing = .2, h.args.z_loss = .01, h.args.softcap = 5; }};
  for (const int32_t reduction : {TC_REDUCTION_NONE, TC_REDUCTION_SUM, TC_REDUCTION_MEAN})
    for (const bool biased : {false, true})
      for (const bool z_part : {false, true})
        for (size_t option = 0; option < options.size(); ++option) {
          SCOPED_TRACE(::testing::Message() << "reduction " << reduction << " bias " << biased << " option " << option);
          Head apart = small(reduction), fused = small(reduction);
          std::vector<float> z_loss_part(apart.loss.size(), kNaN);
          for (Head* h : {&apart, &fused}) {
            if (biased) h->bias = normal(33, 4), h->args.bias = view(h->bias);
            options[option](*h);
          }
          if (z_part) apart.args.z_loss_part = apart.of_loss(z_loss_part);
          const Reference reference(apart);
          apart.forward();
          apart.want_gradients();
          apart.backward();
          fused.want_gradients();
          fused.forward();
          expect_near(apart.loss, widened(reference.loss), "loss");
          if (z_part) expect_near(z_loss_part, widened(reference.z_loss_part), "z_loss_part");
          expect_gradients(apart, reference);
          EXPECT_EQ(apart.loss, fused.loss);
          expect_gradients(fused, reference);
        }
}

// The logits themselves, through a unit matrix.
TEST(LinearCrossEntropy, SmoothingCountsValidRowsOnly) {
  Head h(3, {1, 2, 3, 0, 0, 4, 2, -1, .5f}, {1, 0, 0, 0, 1, 0, 0, 0, 1}, {2, -100, 0}, TC_REDUCTION_MEAN);
  h.args.label_smoothing = .1;
  h.want_gradients();
  h.dloss = {1};
  h.forward();
  EXPECT_NEAR(h.loss[0], .4494586306, 1e-6);
  expect_near(h.dhidden, {.0283486199, .105697569, -.134046189, 0, 0, 0, -.0738681494, .00288961997, .0709785294},
              "dhidden");
  EXPECT_EQ(h.valid_count[0], 2);
}

TEST(LinearCrossEntropy, IgnoredRowsAreNotRead) {
  for (const int32_t reduction : {TC_REDUCTION_NONE, TC_REDUCTION_SUM, TC_REDUCTION_MEAN}) {
    Head clean = small(reduction), dirty = small(reduction), none = small(reduction);
    for (const size_t row : {1, 5}) std::fill_n(dirty.hidden.begin() + static_cast<int64_t>(row) * 16, 16, kNaN);
    std::fill(none.target.begin(), none.target.end(), -100);
    std::fill(none.hidden.begin(), none.hidden.end(), kNaN);
    for (Head* h : {&clean, &dirty, &none}) {
      h->args.z_loss = .1;
      h->want_gradients();
      h->forward();
    }
    EXPECT_EQ(clean.loss, dirty.loss);
    EXPECT_EQ(clean.dhidden, dirty.dhidden);
    EXPECT_EQ(clean.dweight, dirty.dweight);
    for (const auto* zero : {&none.loss, &none.dhidden, &none.dweight, &none.row_max})
      for (const float v : *zero) EXPECT_EQ(v, 0);
    EXPECT_EQ(none.valid_count[0], 0);
  }
}

// Small contributions survive any number of chunks: dweight is summed in f32, in whatever it is stored.
TEST(LinearCrossEntropy, GradientsOfWeightsDoNotGrowCoarseWithTheRows) {
  constexpr int64_t kRows = 20000, kWidth = 16, kClasses = 8;  // 20 chunks
  const auto rounded = [](size_t n, unsigned seed) {
    std::vector<bf16> values;
    for (const float v : normal(n, seed)) values.emplace_back(v + 1);
    return values;
  };
  std::vector<bf16> hidden = rounded(kRows * kWidth, 1), weight = rounded(kClasses * kWidth, 2), narrow(weight.size());
  std::vector<int64_t> target(kRows);
  for (size_t r = 0; r < kRows; ++r) target[r] = static_cast<int64_t>(r * r % kClasses);
  std::vector<double> want(weight.size());
  for (size_t r = 0; r < kRows; ++r) {
    double u[kClasses] = {}, sum = 0;
    for (size_t c = 0; c < kClasses; ++c)
      for (size_t k = 0; k < kWidth; ++k)
        u[c] += static_cast<double>(float(hidden[r * kWidth + k])) * static_cast<double>(float(weight[c * kWidth + k]));
    const double max = *std::max_element(u, u + kClasses);
    for (double& v : u) sum += v = std::exp(v - max);
    for (size_t c = 0; c < kClasses; ++c)
      for (size_t k = 0; k < kWidth; ++k)
        want[c * kWidth + k] += (u[c] / sum - (static_cast<int64_t>(c) == target[r])) / kRows *
                                static_cast<double>(float(hidden[r * kWidth + k]));
  }
  double largest = 0;
  for (const double w : want) largest = std::max(largest, std::abs(w));
  std::vector<float> loss(1), exact(weight.size());
  auto a = tcx_linear_cross_entropy_forward_args_default();
  a.reduction = TC_REDUCTION_MEAN, a.target = view(target), a.loss = view(loss, {});
  a.hidden = view(hidden, {kRows, kWidth}), a.weight = view(weight, {kClasses, kWidth});
  a.dweight = view(exact, {kClasses, kWidth});
  linear_cross_entropy_forward(a);
  a.dweight = view(narrow, {kClasses, kWidth});
  linear_cross_entropy_forward(a);
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_NEAR(exact[i], want[i], 3e-6 * largest) << i;
    EXPECT_EQ(narrow[i].bits, bf16(exact[i]).bits) << i;  // one rounding
  }
}

TEST(LinearCrossEntropy, NoRows) {
  Head none(4, {}, normal(12, 1), {}, TC_REDUCTION_MEAN);
  none.want_gradients();
  none.forward();
  EXPECT_EQ(none.loss[0], 0);
  EXPECT_EQ(none.dweight, std::vector<float>(12, 0));
  none.dweight.assign(12, kNaN);
  none.backward();
  EXPECT_EQ(none.dweight, std::vector<float>(12, 0));
}

TEST(LinearCrossEntropy, TargetOutOfRangeIsRefusedBeforeAnythingIsWritten) {
  Head h = small(TC_REDUCTION_MEAN);
  h.target[4] = 33;
  h.want_gradients();
  const std::string want = "linear_cross_entropy_forward: target of row 4 is 33, but must be a class in [0, 33)";
  EXPECT_EQ(refusal(TC_ERR_INVALID_ARG, [&] { h.forward(); }).substr(0, want.size()), want);
  EXPECT_THROW(h.backward(), Error);
  for (const auto* untouched : {&h.loss, &h.dhidden, &h.dweight, &h.row_max, &h.row_log_sum})
    for (const float v : *untouched) EXPECT_TRUE(std::isnan(v));
  EXPECT_EQ(h.valid_count[0], -1);
}

TEST(LinearCrossEntropy, WhatWouldBeIgnoredIsRefused) {
  const auto sentence = [](auto change) {
    Head h = small(TC_REDUCTION_SUM);
    change(h);
    return refusal(TC_ERR_INVALID_ARG, [&] { h.forward(); });
  };
  EXPECT_EQ(
      sentence([](Head& h) { h.args.dloss = h.of_loss(h.dloss); }),
      "linear_cross_entropy_forward: dloss is given, but none of dhidden, dweight and dbias, so nothing would use it");
  EXPECT_EQ(sentence([](Head& h) { h.args.dbias = view(h.dbias); }),
            "linear_cross_entropy_forward: dbias is given, but bias is not");
  EXPECT_EQ(sentence([](Head& h) { h.args.label_smoothing = 2; }),
            "linear_cross_entropy_forward: label_smoothing is 2, but must be in [0, 1]");
  EXPECT_EQ(sentence([](Head& h) { h.args.weight.shape[0] = 0; }),
            "linear_cross_entropy_forward: weight has 0 classes, but a row needs at least one");
}

TEST(LinearCrossEntropy, WorkspaceIsBounded) {
  auto a = tcx_linear_cross_entropy_forward_args_default();
  // A size query reads nothing, so the addresses may be made up: far from each other and from `loss`.
  const auto made_up = [](int bit) { return reinterpret_cast<void*>(uintptr_t{1} << bit); };
  const int64_t rows = 1 << 17, hidden[] = {rows, 768}, weight[] = {50257, 768};
  float loss;
  a.reduction = TC_REDUCTION_MEAN;
  a.hidden = tc_tensor_dense(made_up(40), TC_DTYPE_BF16, 2, hidden);
  a.weight = tc_tensor_dense(made_up(41), TC_DTYPE_BF16, 2, weight);
  a.target = tc_tensor_dense(made_up(42), TC_DTYPE_I64, 1, &rows);
  a.loss = tc_tensor_dense(&loss, TC_DTYPE_F32, 0, nullptr);
  size_t bytes = 0;
  ASSERT_EQ(tcx_linear_cross_entropy_forward_workspace(&a, nullptr, &bytes), TC_OK) << tc_last_error();
  EXPECT_LT(bytes, size_t{68} << 20);
}

}  // namespace
}  // namespace tc
