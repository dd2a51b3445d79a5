// The front door of LayerNorm: what its arguments are, what is checked, where it goes.
#include "traincore/ops/layernorm/layernorm.h"

#include "traincore/core/op.h"
#include "traincore/ops/layernorm/cuda_plan.h"
#include "traincore/ops/layernorm/plan.h"

namespace tc::ops::layernorm {

using Forward = tcx_layernorm_forward_args;
using Backward = tcx_layernorm_backward_args;

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
    in("bias", offsetof(Forward, bias), "cols", any_float).optional(),
    out("y", offsetof(Forward, y), "rows... cols", mixed_storage).may_be("x|residual"),
    out("residual_out", offsetof(Forward, residual_out), "rows... cols", mixed_storage).optional().may_be("x|residual"),
    saved("mean", offsetof(Forward, mean), "rows..."),
    saved("rstd", offsetof(Forward, rstd), "rows..."),
    number("eps", offsetof(Forward, eps)),
};
constexpr Field backward_fields[] = {
    in("dy", offsetof(Backward, dy), "rows... cols", mixed_storage),
    in("x", offsetof(Backward, x), "rows... cols", mixed_storage),
    in("residual", offsetof(Backward, residual), "rows... cols", mixed_storage).optional(),
    in("weight", offsetof(Backward, weight), "cols", any_float).optional(),
    in("mean", offsetof(Backward, mean), "rows...", f32).strided(),
    in("rstd", offsetof(Backward, rstd), "rows...", f32).strided(),
    in("dresidual_out", offsetof(Backward, dresidual_out), "rows... cols", mixed_storage).optional(),
    out("dx", offsetof(Backward, dx), "rows... cols", mixed_storage).optional().may_be("dy|dresidual_out"),
    out("dweight", offsetof(Backward, dweight), "cols", any_float).optional().accumulated(),
    out("dbias", offsetof(Backward, dbias), "cols", any_float).optional().accumulated(),
    flag("accumulate", offsetof(Backward, accumulate)),
};

void check_forward(const Forward& a, const Dims& dims) {
  require(dims["cols"] > 0, "layernorm_forward: x has width 0, but a row needs at least one element");
  require(a.eps > 0, "layernorm_forward: eps is {}, but must be > 0", a.eps);
}
void check_backward(const Backward& a, const Dims& dims) {
  require(dims["cols"] > 0, "layernorm_backward: dy has width 0, but a row needs at least one element");
  require(given(a.dx) || gradients_wanted(a) > 0,
          "layernorm_backward: none of dx, dweight and dbias is given, so there is nothing to compute");
}

template <class A>
std::string explain(const A& a, const Dims&) {
  return kernel_text(kernel_dtype(a));
}

std::string cuda_explain_forward(const Forward& a, const tc_exec&, const cuda::DeviceInfo& device) {
  return describe(plan_forward(a, device));
}
std::string cuda_explain_backward(const Backward& a, const tc_exec&, const cuda::DeviceInfo& device) {
  return describe(plan_backward(a, device), gradients_wanted(a) > 0, given(a.dx));
}

constexpr Pass list[] = {
    {.name = "layernorm_forward",
     .formula = "y = (v - mean) rstd weight + bias, v = x (+ residual), rstd = 1/sqrt(mean((v - mean)^2) + eps)",
     .fields = forward_fields,
     .args_size = sizeof(Forward),
     .check = Erase<Forward>::check<check_forward>,
     .workspace = Erase<Forward>::workspace<carve_forward>,
     .cpu = Erase<Forward>::run<forward_cpu>,
     .cuda = TC_IF_CUDA(Erase<Forward>::run<forward_cuda>),
     .explain = Erase<Forward>::explain<explain<Forward>>,
     .cuda_explain = Erase<Forward>::cuda_explain<cuda_explain_forward>},
    {.name = "layernorm_backward",
     .formula =
         "dx = rstd (gw - mean(gw) - c rstd^2 mean(gw c)), gw = dy weight, c = v - mean; dweight = sum_rows dy c "
         "rstd; dbias = sum_rows dy",
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

}  // namespace tc::ops::layernorm

TC_EXPORT_PASS(layernorm_forward, tc::ops::layernorm::list[0])
TC_EXPORT_PASS(layernorm_backward, tc::ops::layernorm::list[1])
