// What check and bench run for grad_norm and clip.
#include <cmath>

#include "traincore/core/view.h"
#include "traincore/ops/grad_norm/grad_norm.h"
#include "traincore/testing/cases.h"

namespace tc::ops::grad_norm {

using Norm = tcx_grad_norm_args;
using Clip = tcx_clip_args;
template <class Real>
void norm_oracle(const Norm&);
template <class Real>
void clip_oracle(const Clip&);

namespace {

using testing::Case;
using testing::Effort;
using Shapes = std::vector<std::vector<int64_t>>;

// Both passes have a tensor called clip: what grad_norm gives, and what clip is told here.
Case base(Shapes shapes) {
  return Case()
      .lists(std::move(shapes))
      .with({"clip", "nonfinite"})
      .set("max_norm", 1)
      .fill("clip", testing::constant(0.37))
      .may_be_zero({"nonfinite"});
}

Shapes crowd(int64_t count) {
  Shapes shapes;
  for (int64_t i = 0; i < count; ++i) shapes.push_back({1 + i * 7 % 17});
  return shapes;
}

std::vector<Case> list(Effort effort) {
  std::vector<Case> all;
  for (const int64_t n : {1, 2, 3, 17, 33, 129, 1001, 2049, 16384, 16385}) all.push_back(base({{n}}));
  if (effort != Effort::quick) {
    for (const int64_t n : {65537, 1 << 20}) all.push_back(base({{n}}));
    all.push_back(base(crowd(2000)));
    all.push_back(base({{1000000}}).fill("grads", testing::constant(5000)));  // squares beyond f16, and a long sum
  }
  if (effort == Effort::full) all.push_back(base({{1 << 26}}));
  const Case some = base({{3, 5, 7}, {0}, {}, {2050}, {1}, {257, 129}, {2, 0, 3}, {31}});
  all.push_back(some);
  all.push_back(base({}).may_be_zero({"norm"}));
  all.push_back(base(crowd(300)));
  all.push_back(Case().lists({{7, 9}, {5}}).fill("clip", testing::constant(1)));  // norm alone; clip has nothing to do
  all.push_back(Case(some).dtype("nonfinite", TC_DTYPE_I64));
  all.push_back(Case(some).dtype("grads[0]", TC_DTYPE_F16).dtype("grads[5]", TC_DTYPE_BF16));
  all.push_back(Case(some).layout({"grads"}, testing::Layout::offset_by_one));
  all.push_back(Case(some).set("max_norm", 1e6));
  all.push_back(Case(some).set("scale", 0x1p-16).fill("grads", testing::normal(8e3)));
  all.push_back(Case(some).fill("grads", testing::constant(0)).may_be_zero({"norm", "grads"}));
  all.push_back(Case(some).fill("grads", testing::values({1e-3, 1e3, -1e-3})));
  all.push_back(Case(some).fill("grads", testing::normal(1e-30)).may_be_zero({"norm", "grads"}));  // squares below f32
  const Case broken = Case(some).may_be_nonfinite({"norm", "clip", "grads"}).may_be_zero({"norm", "clip"});
  all.push_back(Case(broken).fill("grads", testing::values({1, INFINITY, 2, -INFINITY, 3})));
  all.push_back(Case(broken).fill("grads", testing::values({1, 2, 3, NAN, 4, 5, INFINITY})));
  return all;
}

std::vector<Case> bench() {
  std::vector<Case> all;  // a factor of -1 leaves magnitudes alone, however often it is applied
  for (const Shapes& shapes : {Shapes{{1 << 23}}, crowd(3000)})
    all.push_back(base(shapes).fill("clip", testing::constant(-1)));
  return all;
}

std::vector<Case> bench_cuda() {
  std::vector<Case> all;
  for (const Shapes& shapes : {Shapes(16, {4096, 4096}), Shapes{{1 << 28}}, crowd(3000)})
    all.push_back(base(shapes).fill("clip", testing::constant(-1)));
  return all;
}

// Wrong kernels that the cases must catch.
void first_tensor_only(const void* p) {
  Norm a = *static_cast<const Norm*>(p);
  a.grads_count = a.grads_count > 0 ? 1 : 0;
  norm_oracle<float>(a);
}
void sum_of_norms(const void* p) {
  const auto& a = *static_cast<const Norm*>(p);
  float sum = 0;
  for (int64_t t = 0; t < a.grads_count; ++t) {
    Norm one = a;
    one.grads += t;
    one.grads_count = 1;
    norm_oracle<float>(one);
    sum += *static_cast<const float*>(a.norm.data);
  }
  *static_cast<float*>(a.norm.data) = sum;
}
void squares_in_half(const void* p) {  // overflows at 65504
  const auto& a = *static_cast<const Norm*>(p);
  norm_oracle<float>(a);
  auto& norm = *static_cast<float*>(a.norm.data);
  if (norm * norm > 65504) norm = INFINITY;
}
void small_gradients_amplified(const void* p) {
  const auto& a = *static_cast<const Norm*>(p);
  norm_oracle<float>(a);
  const float norm = *static_cast<const float*>(a.norm.data);
  if (given(a.clip)) *static_cast<float*>(a.clip.data) = static_cast<float>(a.max_norm / (norm + 1e-6));
}
void scale_forgotten(const void* p) {
  Norm a = *static_cast<const Norm*>(p);
  a.scale = 1;
  norm_oracle<float>(a);
}
void clipped_twice(const void* p) {
  clip_oracle<float>(*static_cast<const Clip*>(p));
  clip_oracle<float>(*static_cast<const Clip*>(p));
}

// The last tensor grows.
Case large() { return base({{3, 5, 7}, {1 << 20}}); }

}  // namespace

extern const testing::OpCases cases;
const testing::OpCases cases = {
    .name = "grad_norm",
    .passes = {testing::pass_cases<Norm, norm_oracle<double>, norm_oracle<float>>("grad_norm"),
               testing::pass_cases<Clip, clip_oracle<double>, clip_oracle<float>>("clip")},
    .list = list,
    .bench = bench,
    .mutants = {{"norm of the first tensor only", "grad_norm", first_tensor_only},
                {"norms added, not their squares", "grad_norm", sum_of_norms},
                {"squares summed in half precision", "grad_norm", squares_in_half},
                {"small gradients amplified to max_norm", "grad_norm", small_gradients_amplified},
                {"scale forgotten", "grad_norm", scale_forgotten},
                {"factor applied twice", "clip", clipped_twice}},
    .bench_cuda = bench_cuda,
    .large = large,
    .summed = {"grads"},
};

}  // namespace tc::ops::grad_norm
