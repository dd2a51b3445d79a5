// The front door of cross entropy: what its arguments are, what is checked, where it goes.
#include "traincore/ops/cross_entropy/cross_entropy.h"

#include "traincore/core/op.h"
#include "traincore/ops/cross_entropy/cuda_plan.h"
#include "traincore/ops/cross_entropy/plan.h"

namespace tc::ops::cross_entropy {

using Forward = tcx_cross_entropy_forward_args;
using Backward = tcx_cross_entropy_backward_args;

void forward_cpu(const Forward&, const tc_exec&);
void backward_cpu(const Backward&, const tc_exec&);
void forward_cuda(const Forward&, const tc_exec&);
void backward_cuda(const Backward&, const tc_exec&);
size_t forward_cuda_workspace(const Forward&, const tc_exec&);
size_t backward_cuda_workspace(const Backward&, const tc_exec&);

namespace {

constexpr const char* kReductions = "?|none|sum|mean";
constexpr const char* kLossShape = "when(reduction=1) rows... | scalar";

constexpr Field forward_fields[] = {
    in("logits", offsetof(Forward, logits), "rows... classes"),
    in("target", offsetof(Forward, target), "rows...", indices).strided(),
    in("class_weight", offsetof(Forward, class_weight), "classes", any_float).optional(),
    in("normalizer", offsetof(Forward, normalizer), "scalar", f32).optional(),
    in("dloss", offsetof(Forward, dloss), kLossShape, f32).optional().strided(),
    out("loss", offsetof(Forward, loss), kLossShape, f32).strided(),
    out("z_loss_part", offsetof(Forward, z_loss_part), kLossShape, f32).optional().strided(),
    out("valid_count", offsetof(Forward, valid_count), "scalar", i64).optional(),
    saved("row_max", offsetof(Forward, row_max), "rows..."),
    saved("row_log_sum", offsetof(Forward, row_log_sum), "rows..."),
    out("dlogits", offsetof(Forward, dlogits), "rows... classes").optional().may_be("logits"),
    choice("reduction", offsetof(Forward, reduction), kReductions),
    flag("fuse_backward", offsetof(Forward, fuse_backward)),
    integer("ignore_index", offsetof(Forward, ignore_index), -100),
    number("label_smoothing", offsetof(Forward, label_smoothing)),
    number("z_loss", offsetof(Forward, z_loss)),
    number("logit_scale", offsetof(Forward, logit_scale), 1),
    number("softcap", offsetof(Forward, softcap)),
};
constexpr Field backward_fields[] = {
    in("logits", offsetof(Backward, logits), "rows... classes"),
    in("target", offsetof(Backward, target), "rows...", indices).strided(),
    in("class_weight", offsetof(Backward, class_weight), "classes", any_float).optional(),
    in("normalizer", offsetof(Backward, normalizer), "scalar", f32).optional(),
    in("row_max", offsetof(Backward, row_max), "rows...", f32).strided(),
    in("row_log_sum", offsetof(Backward, row_log_sum), "rows...", f32).strided(),
    in("dloss", offsetof(Backward, dloss), kLossShape, f32).strided(),
    out("dlogits", offsetof(Backward, dlogits), "rows... classes").may_be("logits"),
    choice("reduction", offsetof(Backward, reduction), kReductions),
    integer("ignore_index", offsetof(Backward, ignore_index), -100),
    number("label_smoothing", offsetof(Backward, label_smoothing)),
    number("z_loss", offsetof(Backward, z_loss)),
    number("logit_scale", offsetof(Backward, logit_scale), 1),
    number("softcap", offsetof(Backward, softcap)),
};

template <class A>
void check_common(const char* pass, const A& a, const Dims& dims) {
  require(dims["classes"] > 0, "{}: logits has 0 classes, but a row needs at least one", pass);
  check_loss_options(pass, a);
}
void check_forward(const Forward& a, const Dims& dims) {
  check_common("cross_entropy_forward", a, dims);
  require(given(a.dlogits) == (a.fuse_backward == 1),
          "cross_entropy_forward: fuse_backward is {} and dlogits is {}, but they go together", a.fuse_backward,
          given(a.dlogits) ? "given" : "missing");
  require(a.fuse_backward || !given(a.dloss),
          "cross_entropy_forward: dloss is given, but fuse_backward is 0, so nothing would use it");
}
void check_backward(const Backward& a, const Dims& dims) { check_common("cross_entropy_backward", a, dims); }

// An exponential counts as one operation, the soft cap as none.
double forward_flops(const Forward& a, const Dims& dims) {
  return (a.fuse_backward ? 10 : 6) * static_cast<double>(dims["rows"]) * static_cast<double>(dims["classes"]);
}
double backward_flops(const Backward&, const Dims& dims) {
  return 5 * static_cast<double>(dims["rows"]) * static_cast<double>(dims["classes"]);
}

template <class A>
Evaluations evaluations(const A& a, const Dims& dims) {
  const double elements = static_cast<double>(dims["rows"]) * static_cast<double>(dims["classes"]);
  return {.exp = elements, .tanh = a.softcap > 0 ? elements : 0};
}

std::string explain_forward(const Forward& a, const Dims& dims) {
  return fmt::format("{} rows of {} classes, each in blocks of 4096 that are read once from memory{}{}", dims["rows"],
                     dims["classes"], a.softcap > 0 ? ", through the soft cap" : "",
                     a.fuse_backward ? "; then once more for dlogits" : "");
}
std::string explain_backward(const Backward& a, const Dims& dims) {
  return fmt::format("one traversal of {} rows of {} classes{}", dims["rows"], dims["classes"],
                     a.softcap > 0 ? ", through the soft cap" : "");
}

std::string cuda_explain_forward(const Forward& a, const tc_exec& exec, const cuda::DeviceInfo& device) {
  cuda::require_exact_exponentials("cross_entropy_forward", a.logits.dtype, exec);
  return describe(plan_forward(a, device));
}
std::string cuda_explain_backward(const Backward& a, const tc_exec& exec, const cuda::DeviceInfo&) {
  cuda::require_exact_exponentials("cross_entropy_backward", a.logits.dtype, exec);
  const cuda::RowShape shape = backward_shape(a);
  return fmt::format("a full grid over pieces of rows, {}",
                     shape.aligned ? "16 bytes at a time"
                     : takes_vectors(a, shape)
                         ? "16 bytes at a time, but where a row begins or ends between them"
                         : "element by element: rows of logits and of dlogits lie differently far "
                           "from multiples of 16 bytes");
}

constexpr Pass list[] = {
    {.name = "cross_entropy_forward",
     .formula = "row loss = w (1 - s) (lse - u_t) + s (lse - mean(u)) + z_loss lse^2, u = softcap tanh(logit_scale x / "
                "softcap), lse = log sum exp(u)",
     .fields = forward_fields,
     .args_size = sizeof(Forward),
     .check = Erase<Forward>::check<check_forward>,
     .workspace = Erase<Forward>::workspace<carve_forward>,
     .cuda_workspace = TC_IF_CUDA(Erase<Forward>::cuda_workspace<forward_cuda_workspace>),
     .cpu = Erase<Forward>::run<forward_cpu>,
     .cuda = TC_IF_CUDA(Erase<Forward>::run<forward_cuda>),
     .flops = Erase<Forward>::flops<forward_flops>,
     .evaluations = Erase<Forward>::evaluations<evaluations<Forward>>,
     .explain = Erase<Forward>::explain<explain_forward>,
     .cuda_explain = Erase<Forward>::cuda_explain<cuda_explain_forward>},
    {.name = "cross_entropy_backward",
     .formula = "dlogits = dloss / normalizer [(w (1 - s) + s + 2 z_loss lse) p - s / C - w (1 - s) 1{j = t}] du/dx",
     .fields = backward_fields,
     .args_size = sizeof(Backward),
     .check = Erase<Backward>::check<check_backward>,
     .workspace = Erase<Backward>::workspace<carve_backward>,
     .cuda_workspace = TC_IF_CUDA(Erase<Backward>::cuda_workspace<backward_cuda_workspace>),
     .cpu = Erase<Backward>::run<backward_cpu>,
     .cuda = TC_IF_CUDA(Erase<Backward>::run<backward_cuda>),
     .flops = Erase<Backward>::flops<backward_flops>,
     .evaluations = Erase<Backward>::evaluations<evaluations<Backward>>,
     .explain = Erase<Backward>::explain<explain_backward>,
     .cuda_explain = Erase<Backward>::cuda_explain<cuda_explain_backward>},
};

}  // namespace

extern const std::span<const Pass> passes;
const std::span<const Pass> passes = list;

}  // namespace tc::ops::cross_entropy

TC_EXPORT_PASS(cross_entropy_forward, tc::ops::cross_entropy::list[0])
TC_EXPORT_PASS(cross_entropy_backward, tc::ops::cross_entropy::list[1])
