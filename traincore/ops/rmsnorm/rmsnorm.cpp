// The front door of RMSNorm: what its arguments are, what is checked, where it goes.
#include "traincore/ops/rmsnorm/rmsnorm.h"

#include "traincore/core/op.h"
#include "traincore/ops/rmsnorm/cuda_plan.h"
#include "traincore/ops/rmsnorm/plan.h"

namespace tc::ops::rmsnorm {

using Forward = tcx_rmsnorm_forward_args;
using Backward = tcx_rmsnorm_backward_args;

void forward_cpu(const Forward&, const tc_exec&);
void backward_cpu(const Backward&, const tc_exec&);
void forward_cuda(const Forward&, const tc_exec&);
void backward_cuda(const Backward&, const tc_exec&);
size_t backward_cuda_workspace(const Backward&, const tc_exec&);

namespace {

constexpr Field forward_fields[] = {
    in("x", offsetof(Forward, x), "rows... cols", mixed_storage),
    in("residual", offsetof(Forward, residual), "rows... cols", mixed_storage).optional(),
    in("weight", offsetof(Forward, weight), "cols", any_float).optional(),
    out("y", offsetof(Forward, y), "rows... cols", mixed_storage).may_be("x|residual"),
    out("residual_out", offsetof(Forward, residual_out), "rows... cols", mixed_storage).optional().may_be("x|residual"),
    saved("rstd", offsetof(Forward, rstd), "rows..."),
    number("eps", offsetof(Forward, eps)),
    number("weight_offset", offsetof(Forward, weight_offset)),
    choice("rounding", offsetof(Forward, rounding), "once|before_weight"),
};
constexpr Field backward_fields[] = {
    in("dy", offsetof(Backward, dy), "rows... cols", mixed_storage),
    in("x", offsetof(Backward, x), "rows... cols", mixed_storage),
    in("residual", offsetof(Backward, residual), "rows... cols", mixed_storage).optional(),
    in("weight", offsetof(Backward, weight), "cols", any_float).optional(),
    in("rstd", offsetof(Backward, rstd), "rows...", f32).strided(),
    in("dresidual_out", offsetof(Backward, dresidual_out), "rows... cols", mixed_storage).optional(),
    out("dx", offsetof(Backward, dx), "rows... cols", mixed_storage).optional().may_be("dy|dresidual_out"),
    out("dweight", offsetof(Backward, dweight), "cols", any_float).optional().accumulated(),
    number("weight_offset", offsetof(Backward, weight_offset)),
    choice("rounding", offsetof(Backward, rounding), "once|before_weight"),
    flag("accumulate", offsetof(Backward, accumulate)),
};

void check_forward(const Forward& a, const Dims& dims) {
  require(dims["cols"] > 0, "rmsnorm_forward: x has width 0, but a row needs at least one element");
  require(a.eps > 0, "rmsnorm_forward: eps is {}, but must be > 0", a.eps);
  if (a.rounding != TC_ROUND_BEFORE_WEIGHT) return;
  const int32_t row = row_dtype(a), result = given(a.weight) ? promoted_dtype(row, a.weight.dtype) : row;
  if (a.y.dtype != result)
    fail(TC_ERR_UNSUPPORTED_DTYPE,
         "rmsnorm_forward: y has dtype {}, but before_weight rounds to {}, where a {} row and its weight meet",
         tc_dtype_name(a.y.dtype), tc_dtype_name(result), tc_dtype_name(row));
}
void check_backward(const Backward& a, const Dims& dims) {
  require(dims["cols"] > 0, "rmsnorm_backward: dy has width 0, but a row needs at least one element");
  require(given(a.dx) || given(a.dweight),
          "rmsnorm_backward: neither dx nor dweight is given, so there is nothing to compute");
}

template <class A>
std::string explain(const A& a, const Dims&) {
  const int32_t row = rounded_to(a);
  const std::string text = kernel_text(kernel_dtype(a));
  return row == TC_DTYPE_F32 ? text : fmt::format("{}; the normalised row is rounded to {}", text, tc_dtype_name(row));
}

std::string cuda_explain_forward(const Forward& a, const tc_exec&, const cuda::DeviceInfo& device) {
  return describe(plan_forward(a, device));
}
std::string cuda_explain_backward(const Backward& a, const tc_exec&, const cuda::DeviceInfo& device) {
  return describe(plan_backward(a, device), given(a.dweight), given(a.dx));
}

constexpr Pass list[] = {
    {.name = "rmsnorm_forward",
     .formula = "y = v rstd (weight_offset + weight), v = x (+ residual), rstd = 1/sqrt(mean(v^2) + eps)",
     .fields = forward_fields,
     .args_size = sizeof(Forward),
     .check = Erase<Forward>::check<check_forward>,
     .workspace = Erase<Forward>::workspace<carve_forward>,
     .cpu = Erase<Forward>::run<forward_cpu>,
     .cuda = TC_IF_CUDA(Erase<Forward>::run<forward_cuda>),
     .explain = Erase<Forward>::explain<explain<Forward>>,
     .cuda_explain = Erase<Forward>::cuda_explain<cuda_explain_forward>},
    {.name = "rmsnorm_backward",
     .formula = "dx = rstd (gw - v rstd^2 mean(gw v)), gw = dy (weight_offset + weight); dweight = sum_rows dy v rstd",
     .fields = backward_fields,
     .args_size = sizeof(Backward),
     .check = Erase<Backward>::check<check_backward>,
     .workspace = Erase<Backward>::workspace<carve_backward>,
     .cuda_workspace = TC_IF_CUDA(Erase<Backward>::cuda_workspace<backward_cuda_workspace>),
     .cpu = Erase<Backward>::run<backward_cpu>,
     .cuda = TC_IF_CUDA(Erase<Backward>::run<backward_cuda>),
     .explain = Erase<Backward>::explain<explain<Backward>>,
     .cuda_explain = Erase<Backward>::cuda_explain<cuda_explain_backward>},
};

}  // namespace

extern const std::span<const Pass> passes;
const std::span<const Pass> passes = list;

}  // namespace tc::ops::rmsnorm

TC_EXPORT_PASS(rmsnorm_forward, tc::ops::rmsnorm::list[0])
TC_EXPORT_PASS(rmsnorm_backward, tc::ops::rmsnorm::list[1])
