// CPU kernels of cross entropy: the rows are compiled once per SIMD target, the best one is chosen at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "traincore/ops/cross_entropy/cpu.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include <cmath>

#include "traincore/core/dispatch.h"
#include "traincore/cpu/loss-inl.h"
#include "traincore/cpu/parallel.h"
#include "traincore/cpu/vector.h"
#include "traincore/ops/cross_entropy/plan.h"

HWY_BEFORE_NAMESPACE();
namespace tc::ops::cross_entropy::HWY_NAMESPACE {
namespace {

using namespace tc::HWY_NAMESPACE;  // NOLINT(google-build-using-namespace): the SIMD vocabulary of this target

template <class T, bool kCapped>
void forward_rows(const tcx_cross_entropy_forward_args& a, const LossOptions& o, const tc_tensor& row_loss,
                  const tc_tensor& row_z_loss_part, const tc_exec& exec) {
  const Logit<kCapped> logit(o);
  const Indices targets(a.target);
  const auto x = rows_of<const T>(a.logits);
  const auto dloss = values_of<const float>(a.dloss);
  const auto loss = values_of<float>(row_loss), z_loss_part = values_of<float>(row_z_loss_part);
  const auto row_max = values_of<float>(a.row_max), row_log_sum = values_of<float>(a.row_log_sum);
  const auto dlogits = rows_of<T>(a.dlogits);
  parallel_blocks(x.count, rows_per_block(x.cols), exec.threads, [&](int64_t begin, int64_t end) HWY_ATTR {
    for (int64_t r = begin; r < end; ++r) {
      const LossRow row = loss_row(o, logit, x[r], x.cols, targets[r], dloss.data ? *dloss[r] : 1.0,
                                   dlogits.data ? dlogits[r] : nullptr);
      *loss[r] = static_cast<float>(row.loss);
      if (z_loss_part.data) *z_loss_part[r] = static_cast<float>(row.z_loss_part);
      if (row_max.data) *row_max[r] = row.max;
      if (row_log_sum.data) *row_log_sum[r] = row.log_sum;
    }
  });
}

template <class T, bool kCapped>
void backward_rows(const tcx_cross_entropy_backward_args& a, const LossOptions& o, const tc_exec& exec) {
  const Logit<kCapped> logit(o);
  const Indices targets(a.target);
  const auto x = rows_of<const T>(a.logits);
  const auto dloss = values_of<const float>(a.dloss);
  const auto row_max = values_of<const float>(a.row_max), row_log_sum = values_of<const float>(a.row_log_sum);
  const auto dlogits = rows_of<T>(a.dlogits);
  parallel_blocks(x.count, rows_per_block(x.cols), exec.threads, [&](int64_t begin, int64_t end) HWY_ATTR {
    for (int64_t r = begin; r < end; ++r) {
      if (targets[r] == o.ignore_index) {
        std::fill_n(dlogits[r], x.cols, T{});
        continue;
      }
      const double log_sum = *row_log_sum[r];
      loss_gradient_row(o, logit, x[r], x.cols, targets[r], {*row_max[r], log_sum, std::exp(-log_sum)}, *dloss[r],
                        dlogits[r]);
    }
  });
}

void forward(const tcx_cross_entropy_forward_args& a, const LossOptions& o, const tc_tensor& row_loss,
             const tc_tensor& row_z_loss_part, const tc_exec& exec) {
  with_type(FloatTypes{}, a.logits.dtype, [&]<class T>() {
    with_value<false, true>("softcap", o.softcap > 0,
                            [&]<bool kCapped>() { forward_rows<T, kCapped>(a, o, row_loss, row_z_loss_part, exec); });
  });
}
void backward(const tcx_cross_entropy_backward_args& a, const LossOptions& o, const tc_exec& exec) {
  with_type(FloatTypes{}, a.logits.dtype, [&]<class T>() {
    with_value<false, true>("softcap", o.softcap > 0, [&]<bool kCapped>() { backward_rows<T, kCapped>(a, o, exec); });
  });
}

}  // namespace
}  // namespace tc::ops::cross_entropy::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tc::ops::cross_entropy {

HWY_EXPORT(forward);
HWY_EXPORT(backward);
void forward_cpu(const tcx_cross_entropy_forward_args& a, const tc_exec& exec) {
  const Scratch scratch(carve_forward, a, exec);
  const LossOptions o =
      loss_options("cross_entropy_forward", a, classes_of(a), as_f32(a.class_weight, scratch->class_weight));
  const int64_t rows = element_count(a.target);
  HWY_DYNAMIC_DISPATCH(forward)
  (a, o, row_values(a.reduction, a.loss, scratch->loss, rows),
   row_values(a.reduction, a.z_loss_part, scratch->z_loss_part, rows), exec);
  reduce_rows(a.reduction, o, scratch->loss, rows, a.loss);
  reduce_rows(a.reduction, o, scratch->z_loss_part, rows, a.z_loss_part);
  if (given(a.valid_count)) *static_cast<int64_t*>(a.valid_count.data) = o.valid_count;
}
void backward_cpu(const tcx_cross_entropy_backward_args& a, const tc_exec& exec) {
  const Scratch scratch(carve_backward, a, exec);
  HWY_DYNAMIC_DISPATCH(backward)
  (a, loss_options("cross_entropy_backward", a, classes_of(a), as_f32(a.class_weight, scratch->class_weight)), exec);
}

}  // namespace tc::ops::cross_entropy
#endif
