// CPU kernels of cross entropy: the rows are compiled once per SIMD target, the best one is chosen at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "traincore/ops/cross_entropy/cpu.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "traincore/core/dispatch.h"
#include "traincore/cpu/loss-inl.h"
#include "traincore/cpu/parallel.h"
#include "traincore/cpu/streaming.h"
#include "traincore/cpu/vector.h"
#include "traincore/ops/cross_entropy/plan.h"

HWY_BEFORE_NAMESPACE();
namespace tc::ops::cross_entropy::HWY_NAMESPACE {
namespace {

using namespace tc::HWY_NAMESPACE;  // NOLINT(google-build-using-namespace): the SIMD vocabulary of this target

template <class T, bool kCapped>
void forward_rows(const tcx_cross_entropy_forward_args& a, const LossOptions& o, const tc_tensor& row_loss,
                  const tc_tensor& row_z_loss_part, const tc_exec& exec) {
  const Indices targets(a.target);
  const auto x = rows_of<const T>(a.logits);
  const auto dloss = values_of<const float>(a.dloss);
  const auto dlogits = rows_of<T>(a.dlogits);
  const LossOutputs outputs(row_loss, row_z_loss_part, a);
  const bool gradients = dlogits.data != nullptr, streamed = gradients && streams(a.dlogits, {&a.logits});
  parallel_blocks(x.count, rows_per_block(x.count, x.cols), exec.threads, [&](int64_t begin, int64_t end) HWY_ATTR {
    const LossRows<T, kCapped> rows(o, x.cols, gradients, streamed);
    for (int64_t r = begin; r < end; ++r)
      outputs.write(r, rows.forward(x[r], targets[r], dloss.data ? *dloss[r] : 1.0, gradients ? dlogits[r] : nullptr));
  });
}

template <class T, bool kCapped>
void backward_rows(const tcx_cross_entropy_backward_args& a, const LossOptions& o, const tc_exec& exec) {
  const Indices targets(a.target);
  const auto x = rows_of<const T>(a.logits);
  const auto dloss = values_of<const float>(a.dloss);
  const auto dlogits = rows_of<T>(a.dlogits);
  const SavedLogSumExp saved(a);
  const bool streamed = streams(a.dlogits, {&a.logits});
  parallel_blocks(x.count, rows_per_block(x.count, x.cols), exec.threads, [&](int64_t begin, int64_t end) HWY_ATTR {
    const LossRows<T, kCapped> rows(o, x.cols, false, streamed);
    for (int64_t r = begin; r < end; ++r) rows.backward(x[r], targets[r], saved[r], *dloss[r], dlogits[r]);
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
