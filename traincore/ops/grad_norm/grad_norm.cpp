// The front door of grad_norm and clip: what their arguments are, what is checked, where they go.
#include "traincore/ops/grad_norm/grad_norm.h"

#include "traincore/core/op.h"
#include "traincore/ops/grad_norm/plan.h"

namespace tc::ops::grad_norm {

using Norm = tcx_grad_norm_args;
using Clip = tcx_clip_args;

void norm_cpu(const Norm&, const tc_exec&);
void clip_cpu(const Clip&, const tc_exec&);
void norm_cuda(const Norm&, const tc_exec&);
void clip_cuda(const Clip&, const tc_exec&);
size_t norm_cuda_workspace(const Norm&, const tc_exec&);

namespace {

constexpr Field norm_fields[] = {
    list(in("grads", offsetof(Norm, grads), "dims...", any_float), offsetof(Norm, grads_count)),
    out("norm", offsetof(Norm, norm), "scalar", f32),
    out("clip", offsetof(Norm, clip), "scalar", f32).optional(),
    out("nonfinite", offsetof(Norm, nonfinite), "scalar", dtypes({TC_DTYPE_F32, TC_DTYPE_I64})).optional(),
    number("max_norm", offsetof(Norm, max_norm)),
    number("scale", offsetof(Norm, scale), 1),
};
constexpr Field clip_fields[] = {
    list(state("grads", offsetof(Clip, grads), "dims...", any_float), offsetof(Clip, grads_count)),
    in("clip", offsetof(Clip, clip), "scalar", f32),
};

void check_norm(const Norm& a, const Dims&) {
  require(given(a.clip) ? a.max_norm > 0 : a.max_norm == 0, "grad_norm: max_norm is {}, but must be {}", a.max_norm,
          given(a.clip) ? "> 0, since clip is given" : "0, since clip is not given");
  require(a.scale > 0, "grad_norm: scale is {}, but must be > 0", a.scale);
}

std::string cuda_explain_norm(const Norm&, const tc_exec&, const cuda::DeviceInfo&) {
  return "a full grid over many tensors a launch, squares and sums in f64; then one block adds the parts in order";
}

std::string cuda_explain_clip(const Clip&, const tc_exec&, const cuda::DeviceInfo&) {
  return "a full grid over many tensors a launch; where the factor is 1, nothing is read";
}

constexpr Pass list_of_passes[] = {
    {.name = "grad_norm",
     .formula = "norm = scale sqrt(sum grads^2); clip = scale min(1, max_norm / (norm + 1e-6))",
     .fields = norm_fields,
     .args_size = sizeof(Norm),
     .check = Erase<Norm>::check<check_norm>,
     .workspace = Erase<Norm>::workspace<carve_norm>,
     .cuda_workspace = TC_IF_CUDA(Erase<Norm>::cuda_workspace<norm_cuda_workspace>),
     .cpu = Erase<Norm>::run<norm_cpu>,
     .cuda = TC_IF_CUDA(Erase<Norm>::run<norm_cuda>),
     .cuda_explain = Erase<Norm>::cuda_explain<cuda_explain_norm>},
    {.name = "clip",
     .formula = "grads = clip grads",
     .fields = clip_fields,
     .args_size = sizeof(Clip),
     .workspace = Erase<Clip>::workspace<carve_clip>,
     .cpu = Erase<Clip>::run<clip_cpu>,
     .cuda = TC_IF_CUDA(Erase<Clip>::run<clip_cuda>),
     .cuda_explain = Erase<Clip>::cuda_explain<cuda_explain_clip>},
};

}  // namespace

extern const std::span<const Pass> passes;
const std::span<const Pass> passes = list_of_passes;

}  // namespace tc::ops::grad_norm

TC_EXPORT_PASS(grad_norm, tc::ops::grad_norm::list_of_passes[0])
TC_EXPORT_PASS(clip, tc::ops::grad_norm::list_of_passes[1])
