// What attention gives where the answer is known in advance, and what check does not look at: layouts of projections,
// a row's bits among other rows, extreme offsets, packed sequences that are none.
#include "traincore/ops/attention/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "tests/scratch.h"
#include "traincore/core/random.h"

namespace tc::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity(), kNaN = std::numeric_limits<float>::quiet_NaN();

struct Array {
  std::vector<int64_t> shape;
  std::vector<float> data;
  Array(std::vector<int64_t> extents, float value)
      : shape(std::move(extents)),
        data(static_cast<size_t>(std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>())), value) {
  }
  Array(std::vector<int64_t> extents, std::vector<float> values) : shape(std::move(extents)), data(std::move(values)) {}
  tc_tensor view() {
    return tc_tensor_dense(data.data(), TC_DTYPE_F32, static_cast<int32_t>(shape.size()), shape.data());
  }
  // [batch, seq, heads, width] seen as [batch, heads, seq, width].
  tc_tensor as_heads() {
    tc_tensor t = view();
    std::swap(t.shape[1], t.shape[2]);
    std::swap(t.stride[1], t.stride[2]);
    return t;
  }
};

Array random(std::vector<int64_t> shape, uint64_t seed) {
  Array a(std::move(shape), 0.0f);
  for (size_t i = 0; i < a.data.size(); ++i) a.data[i] = 4 * uniform01(Philox{seed}(i).x) - 2;
  return a;
}

// One head of width 1 whose scores are those given for every query, and what forward makes of it.
struct Line {
  Array q, k, v, o, lse;
  tcx_attention_forward_args args = tcx_attention_forward_args_default();
  Line(int64_t seq_q, const std::vector<float>& scores, const std::vector<float>& values)
      : q({1, 1, seq_q, 1}, 1.0f),
        k({1, 1, static_cast<int64_t>(scores.size()), 1}, scores),
        v(k.shape, values),
        o(q.shape, kNaN),
        lse({1, 1, seq_q}, kNaN) {
    args.q = q.view(), args.k = k.view(), args.v = v.view(), args.o = o.view(), args.lse = lse.view();
  }
  const std::vector<float>& run() {
    attention_forward(args);
    return o.data;
  }
  // How many keys each query sees, if all scores are 0.
  std::vector<int> counts() {
    attention_forward(args);
    std::vector<int> n;
    for (const float x : lse.data) n.push_back(static_cast<int>(std::lround(std::exp(x))));
    return n;
  }
};

TEST(Attention, CausalityIsFromTheBottomRightCorner) {
  Line bottom_right(2, {0, 0, 0, 0}, {1, 2, 3, 4});
  bottom_right.args.causal = 1;
  EXPECT_EQ(bottom_right.run(), (std::vector<float>{2.0f, 2.5f}));
  Line top_left(2, {0, 0, 0, 0}, {1, 2, 3, 4});
  top_left.args.causal = 1, top_left.args.causal_offset = 0;
  EXPECT_EQ(top_left.run(), (std::vector<float>{1.0f, 1.5f}));
  Line longer(4, std::vector<float>(6), std::vector<float>(6));
  longer.args.causal = 1;
  EXPECT_EQ(longer.counts(), (std::vector<int>{3, 4, 5, 6}));
  Line shorter(5, std::vector<float>(2), {5, 7});
  shorter.args.causal = 1;
  EXPECT_EQ(shorter.counts(), (std::vector<int>{0, 0, 0, 1, 2}));
  EXPECT_EQ(shorter.o.data, (std::vector<float>{0, 0, 0, 5, 6}));
  EXPECT_EQ(shorter.lse.data[0], -kInf);
}

TEST(Attention, WindowsExcludeTheQueryItself) {
  const auto pairs = [](int64_t left, int causal) {
    Line line(6, std::vector<float>(6), std::vector<float>(6));
    line.args.causal = causal, line.args.window_left = left;
    const std::vector<int> n = line.counts();
    return std::accumulate(n.begin(), n.end(), 0);
  };
  EXPECT_EQ(pairs(2, 1), 15);
  EXPECT_EQ(pairs(3, 1), 18);
  EXPECT_EQ(pairs(0, 1), 6);
  EXPECT_EQ(pairs(-1, 1), 21);
  EXPECT_EQ(pairs(-1, 0), 36);
  Line self(6, std::vector<float>(6), {1, 2, 3, 4, 5, 6});
  self.args.causal = 1, self.args.window_left = 0;
  EXPECT_EQ(self.run(), self.v.data);
  self.args.window_left = -5;
  EXPECT_TRUE(mentions(error_of([&] { self.run(); }), "window_left is -5"));
}

TEST(Attention, AlibiCountsDistanceBothWays) {
  Array slope({1}, 0.5f);
  Line line(3, {0, 0, 0}, {1, 2, 4});
  line.args.alibi_slopes = slope.view();
  EXPECT_NEAR(line.run()[0], 1.866167055, 1e-6);
  EXPECT_NEAR(line.run()[2], 2.826637059, 1e-6);
  line.args.causal = 1;
  EXPECT_NEAR(line.run()[2], 2.826637059, 1e-6);
}

TEST(Attention, SoftcapIsCTanhOfZOverC) {
  Line line(1, {1, 3}, {0, 1});
  line.args.scale = 1, line.args.softcap = 2;
  EXPECT_NEAR(line.run()[0], 0.7080768794, 1e-6);
}

TEST(Attention, LseIsANaturalLogarithm) {
  Line line(1, {0, 0, 0}, {1, 2, 3});
  line.run();
  EXPECT_NEAR(line.lse.data[0], 1.098612289, 1e-7);
}

// Forward and backward of one random problem, on tensors laid out as `heads` says.
struct Problem {
  Array q, k, v, o, row_max, row_log_sum, dout, dq, dk, dv;
  tcx_attention_forward_args forward = tcx_attention_forward_args_default();
  tcx_attention_backward_args backward = tcx_attention_backward_args_default();

  Problem(int64_t batch, int64_t heads, int64_t kv_heads, int64_t seq_q, int64_t seq_k, int64_t d, int64_t dv_width)
      : q(random({batch, heads, seq_q, d}, 1)),
        k(random({batch, kv_heads, seq_k, d}, 2)),
        v(random({batch, kv_heads, seq_k, dv_width}, 3)),
        o({batch, heads, seq_q, dv_width}, kNaN),
        row_max({batch, heads, seq_q}, kNaN),
        row_log_sum({batch, heads, seq_q}, kNaN),
        dout(random({batch, heads, seq_q, dv_width}, 4)),
        dq({batch, heads, seq_q, d}, kNaN),
        dk({batch, kv_heads, seq_k, d}, kNaN),
        dv({batch, kv_heads, seq_k, dv_width}, kNaN) {
    bind(&Array::view);
  }
  void bind(tc_tensor (Array::*view)()) {
    forward.q = backward.q = (q.*view)(), forward.k = backward.k = (k.*view)(), forward.v = backward.v = (v.*view)();
    forward.o = backward.o = (o.*view)();
    forward.row_max = backward.row_max = row_max.view(),
    forward.row_log_sum = backward.row_log_sum = row_log_sum.view();
    backward.dout = (dout.*view)();
    backward.dq = (dq.*view)(), backward.dk = (dk.*view)(), backward.dv = (dv.*view)();
  }
  void run(const tc_exec& exec = tc_exec_default()) {
    attention_forward(forward, exec);
    attention_backward(backward, exec);
  }
};

TEST(Attention, HeadsOfAProjectionGiveTheSameBits) {
  constexpr int64_t kBatch = 2, kHeads = 6, kKvHeads = 3, kQueries = 70, kKeys = 101, kWidth = 16;
  Problem dense(kBatch, kHeads, kKvHeads, kQueries, kKeys, kWidth, kWidth);
  dense.run();
  Problem strided(kBatch, kHeads, kKvHeads, kQueries, kKeys, kWidth, kWidth);
  const auto transpose = [&](const Array& from, Array& to) {  // [b, h, s, d] to [b, s, h, d]
    const int64_t heads = from.shape[1], seq = from.shape[2];
    to.shape = {kBatch, seq, heads, kWidth};
    for (int64_t b = 0; b < kBatch; ++b)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t s = 0; s < seq; ++s)
          std::memcpy(&to.data[static_cast<size_t>(((b * seq + s) * heads + h) * kWidth)],
                      &from.data[static_cast<size_t>(((b * heads + h) * seq + s) * kWidth)], kWidth * sizeof(float));
  };
  for (Array Problem::*a :
       {&Problem::q, &Problem::k, &Problem::v, &Problem::dout, &Problem::o, &Problem::dq, &Problem::dk, &Problem::dv})
    transpose(dense.*a, strided.*a);
  const Problem wanted = strided;
  for (Array Problem::*a : {&Problem::o, &Problem::dq, &Problem::dk, &Problem::dv})
    std::fill((strided.*a).data.begin(), (strided.*a).data.end(), kNaN);
  strided.bind(&Array::as_heads);
  strided.run();
  for (Array Problem::*a : {&Problem::o, &Problem::dq, &Problem::dk, &Problem::dv})
    EXPECT_EQ((strided.*a).data, (wanted.*a).data);
}

TEST(Attention, QueriesKeysAndValuesMayBePartsOfOnePackedProjection) {
  constexpr int64_t kBatch = 2, kHeads = 4, kKvHeads = 2, kSeq = 50, kWidth = 8,
                    kAll = (kHeads + 2 * kKvHeads) * kWidth;
  Problem apart(kBatch, kHeads, kKvHeads, kSeq, kSeq, kWidth, kWidth);
  Array qkv({kBatch, kSeq, kAll}, kNaN), dqkv({kBatch, kSeq, kAll}, kNaN);
  const auto part = [&](Array& all, int64_t heads, int64_t first_head) {
    tc_tensor t = all.view();
    t.rank = 4;
    t.shape[1] = heads, t.shape[2] = kSeq, t.shape[3] = kWidth;
    t.stride[1] = kWidth, t.stride[2] = kAll, t.stride[3] = 1;
    t.data = all.data.data() + first_head * kWidth;
    return t;
  };
  // The elements of a part, in the order of the tensors that lie apart.
  const auto each = [](const tc_tensor& t, auto&& visit) {
    size_t i = 0;
    for (int64_t b = 0; b < t.shape[0]; ++b)
      for (int64_t h = 0; h < t.shape[1]; ++h)
        for (int64_t s = 0; s < t.shape[2]; ++s)
          for (int64_t d = 0; d < t.shape[3]; ++d)
            visit(static_cast<float*>(t.data)[b * t.stride[0] + h * t.stride[1] + s * t.stride[2] + d], i++);
  };
  Problem packed = apart;
  packed.bind(&Array::view);
  const struct {
    Array Problem::*from;
    int64_t heads, first;
    tc_tensor tcx_attention_backward_args::*field;
    Array& all;
  } parts[] = {{&Problem::q, kHeads, 0, &tcx_attention_backward_args::q, qkv},
               {&Problem::k, kKvHeads, kHeads, &tcx_attention_backward_args::k, qkv},
               {&Problem::v, kKvHeads, kHeads + kKvHeads, &tcx_attention_backward_args::v, qkv},
               {&Problem::dq, kHeads, 0, &tcx_attention_backward_args::dq, dqkv},
               {&Problem::dk, kKvHeads, kHeads, &tcx_attention_backward_args::dk, dqkv},
               {&Problem::dv, kKvHeads, kHeads + kKvHeads, &tcx_attention_backward_args::dv, dqkv}};
  for (const auto& p : parts) {
    packed.backward.*p.field = part(p.all, p.heads, p.first);
    if (&p.all == &qkv) each(packed.backward.*p.field, [&](float& x, size_t i) { x = (apart.*p.from).data[i]; });
  }
  packed.forward.q = packed.backward.q, packed.forward.k = packed.backward.k, packed.forward.v = packed.backward.v;
  apart.bind(&Array::view);
  apart.run();
  packed.run();
  EXPECT_EQ(packed.o.data, apart.o.data);
  for (const auto& p : parts)
    each(packed.backward.*p.field, [&](float& x, size_t i) { EXPECT_EQ(x, (apart.*p.from).data[i]); });
}

TEST(Attention, ARowHasTheSameBitsAlone) {
  Problem all(1, 2, 1, 130, 150, 24, 17);
  all.forward.causal = all.backward.causal = 1;
  all.forward.window_left = all.backward.window_left = 70;
  tc_exec exec = tc_exec_default();
  exec.determinism = TC_BATCH_INVARIANT;
  attention_forward(all.forward, exec);
  for (const int64_t row : {0, 1, 47, 48, 100, 129}) {
    tcx_attention_forward_args one = all.forward;
    Array o({1, 2, 1, 17}, kNaN);
    one.q.data = static_cast<float*>(one.q.data) + row * one.q.stride[2];
    one.q.shape[2] = 1;
    one.o = o.view();
    one.row_max = one.row_log_sum = tc_tensor{};
    one.causal_offset = row + 20;
    attention_forward(one, exec);
    for (size_t h = 0; h < 2; ++h)
      EXPECT_EQ(
          std::memcmp(&o.data[h * 17], &all.o.data[(h * 130 + static_cast<size_t>(row)) * 17], 17 * sizeof(float)), 0);
  }
}

TEST(Attention, ExtremeOffsetsAndWindowsAreLimits) {
  Problem p(1, 1, 1, 5, 7, 4, 4);
  p.run();
  const std::vector<float> all = p.o.data;
  p.forward.causal = p.backward.causal = 1;
  p.forward.causal_offset = p.backward.causal_offset = INT64_MAX;
  p.forward.window_left = p.backward.window_left = INT64_MAX;
  p.forward.window_right = p.backward.window_right = INT64_MAX;
  p.run();
  EXPECT_EQ(p.o.data, all);
  p.forward.causal_offset = p.backward.causal_offset = INT64_MIN + 1;
  p.run();
  for (Array Problem::*a : {&Problem::o, &Problem::row_max, &Problem::dq, &Problem::dk, &Problem::dv})
    for (const float x : (p.*a).data) EXPECT_EQ(x, 0);
}

// A bias of -inf hides its key; the smallest finite number is a number, and where all keys have it they share alike.
TEST(Attention, FiniteMinimumIsArithmeticAndMinusInfinityHides) {
  Line line(2, {1, 2, 3, 4}, {1, 2, 3, 6});
  constexpr float kLowest = std::numeric_limits<float>::lowest();
  Array bias({1, 1, 2, 4}, {kLowest, kLowest, kLowest, kLowest, -kInf, -kInf, -kInf, -kInf});
  line.args.bias = bias.view();
  EXPECT_EQ(line.run(), (std::vector<float>{3, 0}));
  EXPECT_EQ(line.lse.data[1], -kInf);
}

TEST(Attention, NonFiniteQueriesStayInTheirRow) {
  Problem clean(1, 1, 1, 60, 60, 8, 8), spoilt(1, 1, 1, 60, 60, 8, 8);
  spoilt.q.data[50 * 8 + 3] = kNaN;
  attention_forward(clean.forward);
  attention_forward(spoilt.forward);
  for (size_t row = 0; row < 60; ++row)
    for (size_t d = 0; d < 8; ++d)
      if (row == 50)
        EXPECT_TRUE(std::isnan(spoilt.o.data[row * 8 + d]));
      else
        EXPECT_EQ(spoilt.o.data[row * 8 + d], clean.o.data[row * 8 + d]);
}

TEST(Attention, GradientOfABroadcastBiasIsASumOfTheWholeOne) {
  const std::vector<int64_t> whole_shape = {2, 4, 50, 60};
  for (const std::vector<int64_t>& shape :
       std::vector<std::vector<int64_t>>{{1, 4, 50, 60}, {2, 1, 1, 60}, {2, 4, 50, 1}, {1, 1, 1, 1}}) {
    Array narrow = random(shape, 5), dnarrow(shape, kNaN), whole(whole_shape, 0.0f), dwhole(whole_shape, kNaN);
    const auto place = [&](size_t i) {  // of element i of the whole bias in the narrow one
      size_t at = 0, rest = i, step = 1;
      for (int axis = 3; axis >= 0; --axis) {
        const auto extent = static_cast<size_t>(shape[axis]), index = rest % static_cast<size_t>(whole_shape[axis]);
        rest /= static_cast<size_t>(whole_shape[axis]);
        if (extent > 1) at += index * step;
        step *= extent;
      }
      return at;
    };
    for (size_t i = 0; i < whole.data.size(); ++i) whole.data[i] = narrow.data[place(i)];
    Problem p(2, 4, 2, 50, 60, 8, 8);
    p.forward.causal = p.backward.causal = 1;
    p.forward.bias = p.backward.bias = whole.view(), p.backward.dbias = dwhole.view();
    p.run();
    p.forward.bias = p.backward.bias = narrow.view(), p.backward.dbias = dnarrow.view();
    p.run();
    std::vector<double> want(dnarrow.data.size()), terms(want.size());
    for (size_t i = 0; i < dwhole.data.size(); ++i)
      want[place(i)] += dwhole.data[i], terms[place(i)] += std::abs(dwhole.data[i]);
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(dnarrow.data[i], want[i], 1e-6 * terms[i]) << i;
  }
}

TEST(Attention, RefusesWhatItDoesNotServe) {
  Problem p(1, 2, 1, 7, 9, 4, 4);
  attention_forward(p.forward);
  Array dbias({1, 1, 7, 9}, kNaN), bad_bias({1, 2, 7, 8}, 0.0f);
  p.backward.dbias = dbias.view();
  EXPECT_TRUE(mentions(error_of([&] { attention_backward(p.backward); }), "dbias is given, but bias is not"));
  p.forward.bias = bad_bias.view();
  EXPECT_TRUE(mentions(error_of([&] { attention_forward(p.forward); }), "bias has shape [1, 2, 7, 8]"));
  Problem three(1, 3, 2, 7, 9, 4, 4);
  EXPECT_TRUE(mentions(error_of([&] { attention_forward(three.forward); }), "3 heads"));
  Problem missing(1, 2, 1, 7, 9, 4, 4);
  missing.backward.row_max = missing.backward.row_log_sum = tc_tensor{};
  EXPECT_TRUE(mentions(error_of([&] { attention_backward(missing.backward); }), "row_max and row_log_sum are missing"));
}

TEST(Attention, WindowOfTokensCountsTheTokenItself) {
  EXPECT_EQ(tcx_attention_window_left(1), 0);
  EXPECT_EQ(tcx_attention_window_left(4096), 4095);
  EXPECT_EQ(tcx_attention_window_left(0), tcx_attention_forward_args_default().window_left);
  Problem p(1, 2, 1, 7, 9, 4, 4);
  p.forward.causal = 1;
  p.forward.window_left = tcx_attention_window_left(INT64_MIN);
  EXPECT_TRUE(mentions(error_of([&] { attention_forward(p.forward); }), "window_left is -2"));
}

TEST(Attention, RefusesPackedSequencesThatAreNone) {
  Problem p(1, 2, 1, 7, 9, 4, 4);
  const auto error = [&](std::vector<int32_t> q, std::vector<int32_t> k) {
    const auto n = static_cast<int64_t>(q.size()), m = static_cast<int64_t>(k.size());
    p.forward.cu_seqlens_q = tc_tensor_dense(q.data(), TC_DTYPE_I32, 1, &n);
    p.forward.cu_seqlens_k = tc_tensor_dense(k.data(), TC_DTYPE_I32, 1, &m);
    return error_of([&] { attention_forward(p.forward); });
  };
  EXPECT_EQ(error({0, 3, 7}, {0, 9, 9}), "");
  std::fill(p.o.data.begin(), p.o.data.end(), kNaN);
  EXPECT_TRUE(mentions(error({1, 3, 7}, {0, 9, 9}), "cu_seqlens_q[0] is 1"));
  EXPECT_TRUE(mentions(error({0, 3, 7}, {0, 10, 9}), "cu_seqlens_k[2] is 9"));
  EXPECT_TRUE(mentions(error({0, -3, 7}, {0, 9, 9}), "cu_seqlens_q[1] is -3"));
  EXPECT_TRUE(mentions(error({0, 3, 8}, {0, 9, 9}), "must be 7"));
  EXPECT_TRUE(mentions(error({0, 7}, {0, 9, 9}), "sequences"));
  for (const float x : p.o.data) EXPECT_TRUE(std::isnan(x));
}

}  // namespace
}  // namespace tc::testing
