// The front door of linear cross entropy: what its arguments are, what is checked, where it goes.
#include "traincore/ops/linear_cross_entropy/linear_cross_entropy.h"

#include "traincore/core/op.h"
#include "traincore/ops/linear_cross_entropy/cuda_plan.h"
#include "traincore/ops/linear_cross_entropy/plan.h"

namespace tc::ops::linear_cross_entropy {

using Forward = tcx_linear_cross_entropy_forward_args;
using Backward = tcx_linear_cross_entropy_backward_args;

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
    in("hidden", offsetof(Forward, hidden), "rows... width"),
    in("weight", offsetof(Forward, weight), "classes width", any_float),
    in("bias", offsetof(Forward, bias), "classes", any_float).optional(),
    in("target", offsetof(Forward, target), "rows...", indices).strided(),
    in("class_weight", offsetof(Forward, class_weight), "classes", any_float).optional(),
    in("normalizer", offsetof(Forward, normalizer), "scalar", f32).optional(),
    in("dloss", offsetof(Forward, dloss), kLossShape, f32).optional().strided(),
    out("loss", offsetof(Forward, loss), kLossShape, f32).strided(),
    out("z_loss_part", offsetof(Forward, z_loss_part), kLossShape, f32).optional().strided(),
    out("valid_count", offsetof(Forward, valid_count), "scalar", i64).optional(),
    saved("row_max", offsetof(Forward, row_max), "rows..."),
    saved("row_log_sum", offsetof(Forward, row_log_sum), "rows..."),
    out("dhidden", offsetof(Forward, dhidden), "rows... width").optional().may_be("hidden"),
    out("dweight", offsetof(Forward, dweight), "classes width", any_float).optional().accumulated(),
    out("dbias", offsetof(Forward, dbias), "classes", any_float).optional().accumulated(),
    choice("reduction", offsetof(Forward, reduction), kReductions),
    flag("accumulate", offsetof(Forward, accumulate)),
    integer("ignore_index", offsetof(Forward, ignore_index), -100),
    number("label_smoothing", offsetof(Forward, label_smoothing)),
    number("z_loss", offsetof(Forward, z_loss)),
    number("logit_scale", offsetof(Forward, logit_scale), 1),
    number("softcap", offsetof(Forward, softcap)),
};
constexpr Field backward_fields[] = {
    in("hidden", offsetof(Backward, hidden), "rows... width"),
    in("weight", offsetof(Backward, weight), "classes width", any_float),
    in("bias", offsetof(Backward, bias), "classes", any_float).optional(),
    in("target", offsetof(Backward, target), "rows...", indices).strided(),
    in("class_weight", offsetof(Backward, class_weight), "classes", any_float).optional(),
    in("normalizer", offsetof(Backward, normalizer), "scalar", f32).optional(),
    in("row_max", offsetof(Backward, row_max), "rows...", f32).strided(),
    in("row_log_sum", offsetof(Backward, row_log_sum), "rows...", f32).strided(),
    in("dloss", offsetof(Backward, dloss), kLossShape, f32).strided(),
    out("dhidden", offsetof(Backward, dhidden), "rows... width").may_be("hidden"),
    out("dweight", offsetof(Backward, dweight), "classes width", any_float).optional().accumulated(),
    out("dbias", offsetof(Backward, dbias), "classes", any_float).optional().accumulated(),
    choice("reduction", offsetof(Backward, reduction), kReductions),
    flag("accumulate", offsetof(Backward, accumulate)),
    integer("ignore_index", offsetof(Backward, ignore_index), -100),
    number("label_smoothing", offsetof(Backward, label_smoothing)),
    number("z_loss", offsetof(Backward, z_loss)),
    number("logit_scale", offsetof(Backward, logit_scale), 1),
    number("softcap", offsetof(Backward, softcap)),
};

template <class A>
void check_common(const char* pass, const A& a, const Dims& dims) {
  require(dims["classes"] > 0, "{}: weight has 0 classes, but a row needs at least one", pass);
  require(dims["width"] > 0, "{}: hidden and weight have width 0, but it must be at least 1", pass);
  require(!given(a.dbias) || given(a.bias), "{}: dbias is given, but bias is not", pass);
  check_loss_options(pass, a);
}
void check_forward(const Forward& a, const Dims& dims) {
  check_common("linear_cross_entropy_forward", a, dims);
  require(
      wants_gradients(a) || !given(a.dloss),
      "linear_cross_entropy_forward: dloss is given, but none of dhidden, dweight and dbias, so nothing would use it");
}
void check_backward(const Backward& a, const Dims& dims) { check_common("linear_cross_entropy_backward", a, dims); }

// The logits and whichever gradients are products of theirs.
template <class A>
double flops(const A& a, const Dims& dims) {
  const int products = 1 + int{given(a.dhidden)} + int{given(a.dweight)};
  return 2.0 * products * static_cast<double>(dims["rows"]) * static_cast<double>(dims["classes"]) *
         static_cast<double>(dims["width"]);
}

template <class A>
std::string chunks_text(const A& a) {
  const Extents e = extents_of(a);
  const int64_t chunk = chunk_rows(e);
  std::string text = fmt::format("chunks of {} valid rows, {:.1f} MiB of logits in f32", chunk,
                                 static_cast<double>(chunk * line(e.classes)) * 4 / (1 << 20));
  if (given(a.dweight))
    text += fmt::format("; dweight summed over the chunks in {}",
                        a.dweight.dtype == TC_DTYPE_F32 ? "place" : "f32 workspace");
  return text;
}
std::string explain_forward(const Forward& a, const Dims&) {
  return chunks_text(a) + (wants_gradients(a) ? "; gradients from the same logits" : "");
}
std::string explain_backward(const Backward& a, const Dims&) { return chunks_text(a) + "; the logits are made again"; }

std::string cuda_explain_forward(const Forward& a, const tc_exec& exec, const cuda::DeviceInfo&) {
  return describe(plan_gpu("linear_cross_entropy_forward", a, exec), a);
}
std::string cuda_explain_backward(const Backward& a, const tc_exec& exec, const cuda::DeviceInfo&) {
  return describe(plan_gpu("linear_cross_entropy_backward", a, exec), a) + "; the logits are made again";
}

// A row's bits depend on the tile of the product that it falls in, hence on the number of rows.
constexpr uint32_t kOffers = kRunToRun | kUnordered | kStandard | kStrict | kFast;

constexpr Pass list[] = {
    {.name = "linear_cross_entropy_forward",
     .formula = "row loss = w (1 - s) (lse - u_t) + s (lse - mean(u)) + z_loss lse^2, u = softcap tanh(logit_scale x / "
                "softcap), x = hidden weight^T + bias",
     .fields = forward_fields,
     .args_size = sizeof(Forward),
     .offers = kOffers,
     .check = Erase<Forward>::check<check_forward>,
     .workspace = Erase<Forward>::workspace<carve_forward>,
     .cuda_workspace = TC_IF_CUDA(Erase<Forward>::cuda_workspace<forward_cuda_workspace>),
     .cpu = Erase<Forward>::run<forward_cpu>,
     .cuda = TC_IF_CUDA(Erase<Forward>::run<forward_cuda>),
     .flops = Erase<Forward>::flops<flops<Forward>>,
     .explain = Erase<Forward>::explain<explain_forward>,
     .cuda_explain = Erase<Forward>::cuda_explain<cuda_explain_forward>},
    {.name = "linear_cross_entropy_backward",
     .formula = "dhidden = dx weight; dweight = dx^T hidden; dbias = sum_rows dx; dx as dlogits of cross_entropy",
     .fields = backward_fields,
     .args_size = sizeof(Backward),
     .offers = kOffers,
     .check = Erase<Backward>::check<check_backward>,
     .workspace = Erase<Backward>::workspace<carve_backward>,
     .cuda_workspace = TC_IF_CUDA(Erase<Backward>::cuda_workspace<backward_cuda_workspace>),
     .cpu = Erase<Backward>::run<backward_cpu>,
     .cuda = TC_IF_CUDA(Erase<Backward>::run<backward_cuda>),
     .flops = Erase<Backward>::flops<flops<Backward>>,
     .explain = Erase<Backward>::explain<explain_backward>,
     .cuda_explain = Erase<Backward>::cuda_explain<cuda_explain_backward>},
};

}  // namespace

extern const std::span<const Pass> passes;
const std::span<const Pass> passes = list;

}  // namespace tc::ops::linear_cross_entropy

TC_EXPORT_PASS(linear_cross_entropy_forward, tc::ops::linear_cross_entropy::list[0])
TC_EXPORT_PASS(linear_cross_entropy_backward, tc::ops::linear_cross_entropy::list[1])
