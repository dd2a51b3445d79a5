// What check and bench run for embedding.
#include <algorithm>
#include <cmath>

#include "traincore/core/view.h"
#include "traincore/ops/embedding/embedding.h"
#include "traincore/testing/cases.h"

namespace tc::ops::embedding {

using Forward = tcx_embedding_forward_args;
using Backward = tcx_embedding_backward_args;
template <class Real>
void forward_oracle(const Forward&);
template <class Real>
void backward_oracle(const Backward&);

namespace {

using testing::Case;
using testing::Effort;
using testing::Layout;

Case sized(std::vector<int64_t> rows, int64_t vocab, int64_t dim) {
  return Case().dim("rows", std::move(rows)).dim("vocab", vocab).dim("dim", dim);
}

std::vector<Case> list(Effort effort) {
  const auto any = testing::integers_below("vocab");
  std::vector<Case> all = testing::row_sweep(effort, Case().dim("vocab", 13).fill("ids", any),
                                             {"y", "dy", "weight", "dweight"}, "rows", "dim");
  const auto small = [&] { return sized({3, 7}, 11, 129).fill("ids", any); };
  all.push_back(small());
  all.push_back(small().dtype("ids", TC_DTYPE_I32));
  all.push_back(small().layout({"ids"}, Layout::transposed));
  all.push_back(small().layout({"ids", "dy"}, Layout::expanded));
  all.push_back(small().layout({"weight", "dweight"}, Layout::padded_rows));
  all.push_back(small().set("accumulate", 1));
  all.push_back(small().dtype("dweight", TC_DTYPE_BF16));
  all.push_back(small().dtype("dweight", TC_DTYPE_F16));
  all.push_back(sized({5}, 1000, 67).fill("ids", any));  // most rows of dweight are named by no id
  all.push_back(sized({5}, 1000, 67).fill("ids", any).set("accumulate", 1));
  all.push_back(sized({}, 3, 5).fill("ids", testing::constant(2)));  // one id, as a scalar
  all.push_back(sized({0}, 9, 17).fill("ids", any));
  all.push_back(sized({0}, 9, 17).fill("ids", any).set("accumulate", 1));
  // One id named very often, by values whose sum loses digits when it is kept in 16 bits or in one long f32 chain.
  all.push_back(sized({20000}, 3, 33).fill("ids", testing::constant(1)).fill("dy", testing::normal(1, 8)));
  // More rows than one round of a sort's tiles, and ids of more digits than one pass.
  all.push_back(sized({70001}, 700, 2).fill("ids", any));
  all.push_back(sized({70}, 300000, 2).fill("ids", any));
  all.push_back(sized({4, 1, 301}, 29, 300).fill("ids", testing::values({28, 0, 28, 28, 5})));
  return all;
}

// More rows than ids, so that the gather reads the whole table, as the count of bytes has it.
std::vector<Case> bench() {
  const auto any = testing::integers_below("vocab");
  return {sized({64, 1024}, 4096, 768).fill("ids", any), sized({16, 1024}, 4096, 4096).fill("ids", any)};
}

std::vector<Case> bench_cuda() {
  const auto any = testing::integers_below("vocab");
  return {sized({64, 1024}, 32000, 2048).fill("ids", any), sized({16, 1024}, 128256, 4096).fill("ids", any)};
}

testing::Terms backward_terms(std::string_view, const void* exact_args) {
  const auto& a = *static_cast<const Backward*>(exact_args);
  const Indices ids(a.ids);
  const auto dy = rows_of<const double>(a.dy);
  const int64_t vocab = a.dweight.shape[0];
  std::vector<double> magnitude(static_cast<size_t>(vocab * dy.cols)), count(static_cast<size_t>(vocab));
  for (int64_t r = 0; r < dy.count; ++r) {
    ++count[static_cast<size_t>(ids[r])];
    for (int64_t c = 0; c < dy.cols; ++c) magnitude[static_cast<size_t>(ids[r] * dy.cols + c)] += std::abs(dy[r][c]);
  }
  return {*std::max_element(count.begin(), count.end()), *std::max_element(magnitude.begin(), magnitude.end())};
}

// Wrong kernels that the cases must catch: the right one, then its arguments or its result bent.
void last_occurrence_wins(const void* p) {
  const auto& a = *static_cast<const Backward*>(p);
  backward_oracle<float>(a);
  const Indices ids(a.ids);
  const auto dy = rows_of<const float>(a.dy);
  const auto dweight = rows_of<float>(a.dweight);
  for (int64_t r = 0; r < dy.count; ++r) std::copy_n(dy[r], dy.cols, dweight[ids[r]]);
}
void averaged_over_occurrences(const void* p) {
  const auto& a = *static_cast<const Backward*>(p);
  backward_oracle<float>(a);
  const Indices ids(a.ids);
  const auto dweight = rows_of<float>(a.dweight);
  for (int64_t v = 0; v < dweight.count; ++v) {
    float count = 0;
    for (int64_t r = 0; r < ids.count(); ++r) count += static_cast<float>(ids[r] == v);
    for (int64_t c = 0; c < dweight.cols && count > 1; ++c) dweight[v][c] /= count;
  }
}
void accumulate_ignored(const void* p) {
  Backward a = *static_cast<const Backward*>(p);
  a.accumulate = 0;
  backward_oracle<float>(a);
}
void unnamed_rows_left(const void* p) {
  Backward a = *static_cast<const Backward*>(p);
  const Indices ids(a.ids);
  const auto dweight = rows_of<float>(a.dweight);
  for (int64_t r = 0; r < ids.count() && !a.accumulate; ++r) std::fill_n(dweight[ids[r]], dweight.cols, 0.0f);
  a.accumulate = 1;
  backward_oracle<float>(a);
}
void row_strides_ignored(const void* p) {
  Forward a = *static_cast<const Forward*>(p);
  a.weight = tc_tensor_dense(a.weight.data, a.weight.dtype, a.weight.rank, a.weight.shape);
  forward_oracle<float>(a);
}

Case large() { return sized({1024}, 1000, 2048).fill("ids", testing::integers_below("vocab")); }

}  // namespace

extern const testing::OpCases cases;
const testing::OpCases cases = {
    .name = "embedding",
    .passes = {testing::pass_cases<Forward, forward_oracle<double>, forward_oracle<float>>("embedding_forward"),
               testing::pass_cases<Backward, backward_oracle<double>, backward_oracle<float>>("embedding_backward",
                                                                                              backward_terms)},
    .list = list,
    .bench = bench,
    .mutants = {{"row strides of weight ignored", "embedding_forward", row_strides_ignored},
                {"the last occurrence of an id overwrites", "embedding_backward", last_occurrence_wins},
                {"dweight averaged over occurrences", "embedding_backward", averaged_over_occurrences},
                {"accumulate ignored", "embedding_backward", accumulate_ignored},
                {"rows that no id names left as they were", "embedding_backward", unnamed_rows_left}},
    .bench_cuda = bench_cuda,
    .large = large,
    .summed = {"dy"},
};

}  // namespace tc::ops::embedding
