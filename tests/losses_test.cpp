// Softmax and cross entropy against published values and the faults of other libraries (the numbers are worked out by
// hand or taken from the papers' formulas, not from an oracle), and what cross entropy refuses once it reads targets.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "traincore/core/numeric.h"
#include "traincore/ops/cross_entropy/cross_entropy.h"
#include "traincore/ops/softmax/softmax.h"

namespace tc {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

template <class T>
tc_tensor view(std::vector<T>& values, std::vector<int64_t> shape) {
  return tc_tensor_dense(values.data(), dtype_of<T>, static_cast<int32_t>(shape.size()), shape.data());
}

void expect_near(const std::vector<float>& got, const std::vector<double>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::isfinite(want[i]))
      EXPECT_NEAR(got[i], want[i], tolerance) << "element " << i;
    else
      EXPECT_EQ(got[i], static_cast<float>(want[i])) << "element " << i;
  }
}

// One cross entropy with outputs of its own, NaN before the call.
struct Loss {
  Loss(std::vector<float> x, std::vector<int64_t> t, int32_t reduction)
      : logits(std::move(x)),
        target(std::move(t)),
        dlogits(logits.size(), kNaN),
        row_max(target.size(), kNaN),
        row_log_sum(target.size(), kNaN) {
    const auto rows = static_cast<int64_t>(target.size()), size = static_cast<int64_t>(logits.size());
    loss.assign(reduction == TC_REDUCTION_NONE ? target.size() : 1, kNaN);
    dloss.assign(loss.size(), 1);
    args.reduction = reduction;
    args.logits = view(logits, {rows, rows ? size / rows : kClassesOfNoRows});
    args.target = view(target, {rows});
    args.row_max = view(row_max, {rows});
    args.row_log_sum = view(row_log_sum, {rows});
    args.loss = of_loss(loss);
    args.valid_count = view(valid_count, {});
  }
  tc_tensor of_loss(std::vector<float>& values) const {
    if (args.reduction != TC_REDUCTION_NONE) return view(values, {});
    return view(values, {static_cast<int64_t>(target.size())});
  }
  tc_tensor of_gradient() {
    tc_tensor t = args.logits;
    t.data = dlogits.data();
    return t;
  }
  void forward() { cross_entropy_forward(args); }
  void backward() {
    tcx_cross_entropy_backward_args b = tcx_cross_entropy_backward_args_default();
    b.reduction = args.reduction;
    b.logits = args.logits, b.target = args.target, b.class_weight = args.class_weight, b.normalizer = args.normalizer;
    b.row_max = args.row_max, b.row_log_sum = args.row_log_sum;
    b.dloss = of_loss(dloss), b.dlogits = of_gradient();
    b.ignore_index = args.ignore_index, b.label_smoothing = args.label_smoothing, b.z_loss = args.z_loss;
    b.logit_scale = args.logit_scale, b.softcap = args.softcap;
    cross_entropy_backward(b);
  }
  // The one-pass form, the gradient over the logits.
  void fused() {
    args.fuse_backward = 1;
    args.dlogits = args.logits;
    forward();
  }
  // loss and dlogits, from two calls and from one.
  void expect(const std::vector<double>& want_loss, const std::vector<double>& want_gradient, double tolerance = 1e-6) {
    forward();
    backward();
    expect_near(loss, want_loss, tolerance);
    expect_near(dlogits, want_gradient, tolerance);
    loss.assign(loss.size(), kNaN);
    fused();
    expect_near(loss, want_loss, tolerance);
    expect_near(logits, want_gradient, tolerance);
  }

  static constexpr int64_t kClassesOfNoRows = 33;
  std::vector<float> logits;
  std::vector<int64_t> target;
  std::vector<float> dlogits, row_max, row_log_sum, loss, dloss;
  std::vector<int64_t> valid_count = {-1};
  tcx_cross_entropy_forward_args args = tcx_cross_entropy_forward_args_default();
};

std::vector<float> wave(size_t n) {
  std::vector<float> x(n);
  for (size_t i = 0; i < n; ++i) x[i] = std::sin(static_cast<float>(i) * 1.7f) * 2;
  return x;
}

TEST(CrossEntropy, NoReductionKeepsEveryRowInOrder) {
  const std::vector<int64_t> target = {3, -100, 10, 0, -100, 7};
  Loss none(wave(66), target, TC_REDUCTION_NONE), sum(wave(66), target, TC_REDUCTION_SUM);
  none.forward();
  sum.forward();
  double total = 0;
  for (size_t r = 0; r < target.size(); ++r) {
    double exps = 0;
    for (size_t c = 0; c < 11; ++c) exps += std::exp(static_cast<double>(none.logits[11 * r + c]));
    const size_t t = 11 * r + static_cast<size_t>(std::max<int64_t>(target[r], 0));
    const double want = target[r] < 0 ? 0 : std::log(exps) - static_cast<double>(none.logits[t]);
    EXPECT_NEAR(none.loss[r], want, 1e-6);
    total += static_cast<double>(none.loss[r]);
  }
  EXPECT_NEAR(sum.loss[0], total, 1e-6);
  EXPECT_EQ(none.loss[1], 0);
  EXPECT_EQ(none.valid_count[0], 4);
}

TEST(CrossEntropy, SmoothingCountsValidRowsOnly) {
  Loss l({1, 2, 3, 0, 0, 4, 2, -1, .5f}, {2, -100, 0}, TC_REDUCTION_MEAN);
  l.args.label_smoothing = .1;
  l.expect({.4494586306}, {.0283486199, .105697569, -.134046189, 0, 0, 0, -.0738681494, .00288961997, .0709785294});
  EXPECT_EQ(l.valid_count[0], 2);
}

TEST(CrossEntropy, NothingValidIsZeroNotNaN) {
  for (const int32_t reduction : {TC_REDUCTION_NONE, TC_REDUCTION_SUM, TC_REDUCTION_MEAN}) {
    std::vector<float> logits = wave(28);
    logits[5] = kNaN;  // a row that does not count is not looked at
    Loss l(logits, {-100, -100, -100, -100}, reduction);
    l.args.label_smoothing = .1;
    l.args.z_loss = .1;
    l.expect(std::vector<double>(l.loss.size(), 0), std::vector<double>(28, 0), 0);
    EXPECT_EQ(l.valid_count[0], 0);
  }
}

TEST(CrossEntropy, NormalizerReplacesTheCount) {
  Loss by_count(wave(20), {1, -100, 2, 3}, TC_REDUCTION_MEAN), by_tensor(wave(20), {1, -100, 2, 3}, TC_REDUCTION_MEAN);
  by_count.forward();
  std::vector<float> normalizer = {110};
  by_tensor.args.normalizer = view(normalizer, {});
  by_tensor.forward();
  EXPECT_FLOAT_EQ(by_tensor.loss[0], by_count.loss[0] * 3 / 110);
  EXPECT_EQ(by_tensor.valid_count[0], 3);
}

// Ten tokens of loss 1 and a hundred of loss 3, in two calls that share one normalizer: 310 / 110, not 2.
TEST(CrossEntropy, MicroBatchesShareOneNormalizer) {
  std::vector<float> normalizer = {110};
  float total = 0;
  for (const auto& [tokens, loss] : {std::pair{10, 1.0}, {100, 3.0}}) {
    std::vector<float> logits;  // of two classes, class 0 with probability e^-loss
    for (int i = 0; i < tokens; ++i) logits.insert(logits.end(), {0, static_cast<float>(std::log(std::expm1(loss)))});
    Loss l(logits, std::vector<int64_t>(static_cast<size_t>(tokens)), TC_REDUCTION_MEAN);
    l.args.normalizer = view(normalizer, {});
    l.forward();
    l.backward();
    total += l.loss[0];
    EXPECT_NEAR(l.dlogits[0], (std::exp(-loss) - 1) / 110, 1e-8);
  }
  EXPECT_NEAR(total, 310.0 / 110, 1e-6);
}

TEST(CrossEntropy, TargetsOfAnyStride) {
  std::vector<int64_t> pairs;
  for (int64_t i = 0; i < 8; ++i) pairs.insert(pairs.end(), {99999, i * 3 % 7});
  for (const int64_t stride : {0, 2}) {
    std::vector<int64_t> dense;
    for (int64_t i = 0; i < 8; ++i) dense.push_back(pairs[static_cast<size_t>(1 + i * stride)]);
    Loss plain(wave(56), dense, TC_REDUCTION_NONE), strided(wave(56), dense, TC_REDUCTION_NONE);
    strided.args.target = view(pairs, {8});
    strided.args.target.data = pairs.data() + 1;
    strided.args.target.stride[0] = stride;
    for (Loss* l : {&plain, &strided}) {
      l->forward();
      l->backward();
    }
    EXPECT_EQ(plain.loss, strided.loss);
    EXPECT_EQ(plain.dlogits, strided.dlogits);
  }
}

TEST(CrossEntropy, HugeLogitsKeepTheirDifferences) {
  Loss two({1e8f, 1e8f}, {0}, TC_REDUCTION_SUM);
  two.expect({.69314718}, {-.5, .5});
  const std::vector<double> want = {2.40760596, 1.40760596, .40760596};
  for (int64_t t = 0; t < 3; ++t) {
    Loss l({-1e7f, -1e7f + 1, -1e7f + 2}, {t}, TC_REDUCTION_SUM);
    l.forward();
    EXPECT_NEAR(l.loss[0], want[static_cast<size_t>(t)], 3e-7);
  }
}

TEST(CrossEntropy, NoRowsAndNoClasses) {
  Loss none({}, {}, TC_REDUCTION_NONE);
  none.expect({}, {});
  Loss mean({}, {}, TC_REDUCTION_MEAN);
  mean.expect({0}, {});
  EXPECT_EQ(mean.valid_count[0], 0);
  Loss no_classes({}, {0, 0, 0, 0}, TC_REDUCTION_MEAN);
  EXPECT_THROW(no_classes.forward(), Error);
  EXPECT_STREQ(tc_last_error(), "cross_entropy_forward: logits has 0 classes, but a row needs at least one");
}

TEST(CrossEntropy, ZLoss) {
  Loss l({1, 2, 3}, {0}, TC_REDUCTION_MEAN);
  l.args.z_loss = .1;
  std::vector<float> z_loss_part = {kNaN};
  l.args.z_loss_part = view(z_loss_part, {});
  l.expect({3.568783805}, {-.8486116832, .4115161106, 1.118616766});
  EXPECT_NEAR(z_loss_part[0], 1.161177841, 2e-7);
}

TEST(CrossEntropy, LossDoesNotDependOnTheZLossPart) {
  for (const double z_loss : {0., 1e-4}) {
    Loss without(wave(20), {1, -100, 2, 3}, TC_REDUCTION_MEAN), with(wave(20), {1, -100, 2, 3}, TC_REDUCTION_MEAN);
    std::vector<float> z_loss_part = {kNaN};
    with.args.z_loss_part = view(z_loss_part, {});
    for (Loss* l : {&without, &with}) {
      l->args.z_loss = z_loss;
      l->forward();
    }
    EXPECT_EQ(without.loss, with.loss);
    EXPECT_EQ(z_loss_part[0] == 0, z_loss == 0);
  }
}

TEST(CrossEntropy, LogitScaleReachesTheGradient) {
  Loss l({1, 2, 3}, {2}, TC_REDUCTION_MEAN);
  l.args.logit_scale = .5;
  l.expect({.6802696706}, {.0931618616, .153597943, -.246759804});
}

TEST(CrossEntropy, IgnoreIndexMayBeAClass) {
  Loss l({1, 2, 3, 4, 5, 6}, {1, 2}, TC_REDUCTION_MEAN);
  l.args.ignore_index = 1;
  l.expect({.40760596}, {0, 0, 0, .09003057, .24472847, -.33475904});
}

TEST(CrossEntropy, TargetOutOfRangeIsRefusedBeforeAnythingIsWritten) {
  for (const int64_t bad : {int64_t{7}, int64_t{-1}, int64_t{-99}, int64_t{1} << 40}) {
    Loss l(wave(28), {0, 6, bad, 3}, TC_REDUCTION_MEAN);
    const std::vector<float> logits = l.logits;
    const std::string sentence = "target of row 2 is " + std::to_string(bad);
    EXPECT_EQ(tcx_cross_entropy_forward(&l.args, nullptr), TC_ERR_INVALID_ARG);
    EXPECT_NE(std::string(tc_last_error()).find("cross_entropy_forward: " + sentence), std::string::npos);
    EXPECT_THROW(l.fused(), Error);
    EXPECT_THROW(l.backward(), Error);
    EXPECT_NE(std::string(tc_last_error()).find("cross_entropy_backward: " + sentence), std::string::npos);
    EXPECT_EQ(l.logits, logits);
    EXPECT_TRUE(std::isnan(l.loss[0]));
    EXPECT_EQ(l.valid_count[0], -1);
    for (const auto* untouched : {&l.dlogits, &l.row_max, &l.row_log_sum})
      for (const float v : *untouched) EXPECT_TRUE(std::isnan(v));
  }
}

TEST(CrossEntropy, OptionsThatDoNotCombineAreRefused) {
  const auto sentence = [](auto change) {
    Loss l(wave(28), {0, 6, 1, 3}, TC_REDUCTION_SUM);
    std::vector<float> extra(7, 1);
    change(l, extra);
    EXPECT_EQ(tcx_cross_entropy_forward(&l.args, nullptr), TC_ERR_INVALID_ARG);
    EXPECT_TRUE(std::isnan(l.loss[0]));
    return std::string(tc_last_error());
  };
  EXPECT_EQ(sentence([](Loss& l, auto&) { l.args.fuse_backward = 1; }),
            "cross_entropy_forward: fuse_backward is 1 and dlogits is missing, but they go together");
  EXPECT_EQ(sentence([](Loss& l, auto&) { l.args.dlogits = l.of_gradient(); }),
            "cross_entropy_forward: fuse_backward is 0 and dlogits is given, but they go together");
  EXPECT_EQ(sentence([](Loss& l, auto& extra) { l.args.normalizer = view(extra, {}); }),
            "cross_entropy_forward: normalizer is given, but only reduction mean divides by it");
  EXPECT_EQ(sentence([](Loss& l, auto& extra) {
              l.args.class_weight = view(extra, {7});
              l.args.label_smoothing = .1;
            }),
            "cross_entropy_forward: class_weight is given and label_smoothing is 0.1, but they do not combine; leave "
            "one out");
  EXPECT_EQ(sentence([](Loss& l, auto&) { l.args.label_smoothing = 1.5; }),
            "cross_entropy_forward: label_smoothing is 1.5, but must be in [0, 1]");
  EXPECT_EQ(sentence([](Loss& l, auto&) { l.args.logit_scale = 0; }),
            "cross_entropy_forward: logit_scale is 0, but must be > 0 and a normal f32");
  EXPECT_EQ(sentence([](Loss& l, auto&) { l.args.softcap = -1; }),
            "cross_entropy_forward: softcap is -1, but must be 0 (none) or > 0, a normal f32");
  EXPECT_EQ(sentence([](Loss& l, auto&) { l.args.z_loss = -1; }),
            "cross_entropy_forward: z_loss is -1, but must be >= 0");
  EXPECT_EQ(sentence([](Loss& l, auto&) { l.args.ignore_index = int64_t{1} << 32; }),
            "cross_entropy_forward: ignore_index is 4294967296, but must fit an int32");
}

std::vector<float> softmax(std::vector<float> x, bool logarithm) {
  const auto cols = static_cast<int64_t>(x.size());
  if (logarithm)
    log_softmax_forward({sizeof(tcx_log_softmax_forward_args), view(x, {cols}), view(x, {cols})});
  else
    softmax_forward({sizeof(tcx_softmax_forward_args), view(x, {cols}), view(x, {cols})});
  return x;
}

TEST(Softmax, LogSoftmaxIsNoLogarithmOfSoftmax) {
  expect_near(softmax({1000, -1000, 0}, true), {0, -2000, -1000}, 0);
  expect_near(softmax({-1e7f, -1e7f + 1, -1e7f + 2}, true), {-2.40760596, -1.40760596, -.40760596}, 3e-7);
}

TEST(Softmax, MaskedRows) {
  constexpr double kMinus = -std::numeric_limits<double>::infinity();
  expect_near(softmax({-kInfinity, -kInfinity}, false), {0, 0}, 0);
  expect_near(softmax({-kInfinity, -kInfinity}, true), {kMinus, kMinus}, 0);
  expect_near(softmax({-kInfinity, 5, -kInfinity}, false), {0, 1, 0}, 0);
  expect_near(softmax({-kInfinity, 5, -kInfinity}, true), {kMinus, 0, kMinus}, 0);
  for (const float bad : {kNaN, kInfinity})
    for (const bool logarithm : {false, true})
      for (const float y : softmax({1, bad, 2}, logarithm)) EXPECT_TRUE(std::isnan(y));
}

TEST(Softmax, EveryWidthSumsToOne) {
  for (size_t cols = 1; cols <= 1100; cols += cols < 500 ? 37 : 1) {
    double sum = 0;
    for (const float y : softmax(wave(cols), false)) sum += static_cast<double>(y);
    EXPECT_NEAR(sum, 1, 1e-6) << cols << " columns";
  }
}

}  // namespace
}  // namespace tc
