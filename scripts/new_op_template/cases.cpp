// What check and bench run for @op@.
#include "traincore/core/view.h"
#include "traincore/ops/@op@/@op@.h"
#include "traincore/testing/cases.h"

namespace tc::ops::@op@ {

using Forward = tcx_@op@_forward_args;
using Backward = tcx_@op@_backward_args;
template <class Real>
void forward_oracle(const Forward&);
template <class Real>
void backward_oracle(const Backward&);

namespace {

using testing::Case;
using testing::Effort;
using testing::Layout;

std::vector<Case> list(Effort effort) {
  std::vector<Case> all = testing::row_sweep(effort, Case(), {"x", "y", "dy", "dx"});
  const auto small = [] { return Case().dim("rows", {3, 5}).dim("cols", 129); };
  all.push_back(small().layout({"dy"}, Layout::expanded));
  all.push_back(small().alias("y", "x").alias("dx", "dy"));
  all.push_back(small().fill("x", testing::normal(1, 100)));
  return all;
}

std::vector<Case> bench() { return {Case().dim("rows", 16384).dim("cols", 4096)}; }

// Wrong kernels that the cases must catch.
void forgotten_square(const void* p) {
  const auto& a = *static_cast<const Forward*>(p);
  const auto x = rows_of<const float>(a.x);
  const auto y = rows_of<float>(a.y);
  for (int64_t r = 0; r < x.count; ++r)
    for (int64_t c = 0; c < x.cols; ++c) y[r][c] = x[r][c];
}
void forgotten_two(const void* p) {
  const auto& a = *static_cast<const Backward*>(p);
  backward_oracle<float>(a);
  const auto dx = rows_of<float>(a.dx);
  for (int64_t r = 0; r < dx.count; ++r)
    for (int64_t c = 0; c < dx.cols; ++c) dx[r][c] /= 2;
}

}  // namespace

extern const testing::OpCases cases;
const testing::OpCases cases = {
    .name = "@op@",
    .passes = {testing::pass_cases<Forward, forward_oracle<double>, forward_oracle<float>>("@op@_forward"),
               testing::pass_cases<Backward, backward_oracle<double>, backward_oracle<float>>("@op@_backward")},
    .list = list,
    .bench = bench,
    .mutants = {{"y = x", "@op@_forward", forgotten_square}, {"dx without its factor 2", "@op@_backward", forgotten_two}},
};

}  // namespace tc::ops::@op@
