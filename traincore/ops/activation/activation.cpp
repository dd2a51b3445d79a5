// The front door of the activations: what their arguments are, what is checked, where they go.
#include "traincore/ops/activation/activation.h"

#include "traincore/core/op.h"
#include "traincore/cuda/elements.h"

namespace tc::ops::activation {

using Forward = tcx_activation_forward_args;
using Backward = tcx_activation_backward_args;

void forward_cpu(const Forward&, const tc_exec&);
void backward_cpu(const Backward&, const tc_exec&);
void forward_cuda(const Forward&, const tc_exec&);
void backward_cuda(const Backward&, const tc_exec&);

namespace {

constexpr std::string_view kKinds = "?|silu|sigmoid|gelu_tanh|gelu_erf|quick_gelu|relu|relu2|tanh";

constexpr Field forward_fields[] = {
    choice("kind", offsetof(Forward, kind), kKinds),
    in("gate", offsetof(Forward, gate), "rows... cols"),
    in("up", offsetof(Forward, up), "rows... cols").optional(),
    out("y", offsetof(Forward, y), "rows... cols").may_be("gate|up"),
};
constexpr Field backward_fields[] = {
    choice("kind", offsetof(Backward, kind), kKinds),
    in("dy", offsetof(Backward, dy), "rows... cols"),
    in("gate", offsetof(Backward, gate), "rows... cols"),
    in("up", offsetof(Backward, up), "rows... cols").optional(),
    out("dgate", offsetof(Backward, dgate), "rows... cols").optional().may_be("dy|gate|up"),
    out("dup", offsetof(Backward, dup), "rows... cols").optional().may_be("dy|gate|up"),
    out("y", offsetof(Backward, y), "rows... cols").optional().may_be("dy|gate|up"),
};

void check_forward(const Forward&, const Dims& dims) {
  require(dims["cols"] > 0, "activation_forward: gate has width 0, but a row needs at least one element");
}
void check_backward(const Backward& a, const Dims& dims) {
  require(dims["cols"] > 0, "activation_backward: dy has width 0, but a row needs at least one element");
  require(given(a.dgate) || given(a.dup) || given(a.y),
          "activation_backward: none of dgate, dup and y is given, so there is nothing to compute");
  require(given(a.up) || !given(a.dup),
          "activation_backward: dup is given, but up is missing; the unary form has no gradient of up");
}

Evaluations evaluations(int32_t kind, const Dims& dims, bool with_slope) {
  const double elements = static_cast<double>(dims["rows"]) * static_cast<double>(dims["cols"]);
  switch (kind) {
    case TC_ACTIVATION_RELU:
    case TC_ACTIVATION_RELU2:
      return {};
    case TC_ACTIVATION_GELU_ERF:
      return {.exp = with_slope ? elements : 0, .tanh = elements};
    case TC_ACTIVATION_TANH:
      return with_slope ? Evaluations{.exp = elements} : Evaluations{.tanh = elements};
    default:
      return {.exp = elements};
  }
}
Evaluations forward_evaluations(const Forward& a, const Dims& dims) { return evaluations(a.kind, dims, false); }
Evaluations backward_evaluations(const Backward& a, const Dims& dims) { return evaluations(a.kind, dims, true); }

int vector_of(const tc_tensor& t) { return 16 / static_cast<int>(tc_dtype_size(t.dtype)); }
std::string cuda_explain_forward(const Forward& a, const tc_exec&, const cuda::DeviceInfo&) {
  return describe(cuda::items_of<3>({&a.gate, &a.up, &a.y}, vector_of(a.gate)));
}
std::string cuda_explain_backward(const Backward& a, const tc_exec&, const cuda::DeviceInfo&) {
  return describe(cuda::items_of<6>({&a.dy, &a.gate, &a.up, &a.dgate, &a.dup, &a.y}, vector_of(a.dy)));
}

constexpr Pass list[] = {
    {.name = "activation_forward",
     .formula = "y = act(gate) (up)",
     .fields = forward_fields,
     .args_size = sizeof(Forward),
     .check = Erase<Forward>::check<check_forward>,
     .cpu = Erase<Forward>::run<forward_cpu>,
     .cuda = TC_IF_CUDA(Erase<Forward>::run<forward_cuda>),
     .evaluations = Erase<Forward>::evaluations<forward_evaluations>,
     .cuda_explain = Erase<Forward>::cuda_explain<cuda_explain_forward>},
    {.name = "activation_backward",
     .formula = "dgate = dy (up) act'(gate); dup = dy act(gate); y = act(gate) (up)",
     .fields = backward_fields,
     .args_size = sizeof(Backward),
     .check = Erase<Backward>::check<check_backward>,
     .cpu = Erase<Backward>::run<backward_cpu>,
     .cuda = TC_IF_CUDA(Erase<Backward>::run<backward_cuda>),
     .evaluations = Erase<Backward>::evaluations<backward_evaluations>,
     .cuda_explain = Erase<Backward>::cuda_explain<cuda_explain_backward>},
};

}  // namespace

extern const std::span<const Pass> passes;
const std::span<const Pass> passes = list;

}  // namespace tc::ops::activation

TC_EXPORT_PASS(activation_forward, tc::ops::activation::list[0])
TC_EXPORT_PASS(activation_backward, tc::ops::activation::list[1])
