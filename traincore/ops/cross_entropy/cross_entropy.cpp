// The front door of cross entropy: what its arguments are, what is checked, where it goes.
#include "traincore/ops/cross_entropy/cross_entropy.h"

#include <cfloat>

#include "traincore/core/op.h"
#include "traincore/ops/cross_entropy/plan.h"

namespace tc::ops::cross_entropy {

using Forward = tcx_cross_entropy_forward_args;
using Backward = tcx_cross_entropy_backward_args;

void forward_cpu(const Forward&, const tc_exec&);
void backward_cpu(const Backward&, const tc_exec&);

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

bool is_positive_f32(double v) { return v >= FLT_MIN && v <= FLT_MAX; }

// What both passes ask of their options.
template <class A>
void check_options(const char* pass, const A& a, const Dims& dims) {
  require(dims["classes"] > 0, "{}: logits has 0 classes, but a row needs at least one", pass);
  require(a.ignore_index >= INT32_MIN && a.ignore_index <= INT32_MAX, "{}: ignore_index is {}, but must fit an int32",
          pass, a.ignore_index);
  require(a.label_smoothing >= 0 && a.label_smoothing <= 1, "{}: label_smoothing is {}, but must be in [0, 1]", pass,
          a.label_smoothing);
  require(a.z_loss >= 0, "{}: z_loss is {}, but must be >= 0", pass, a.z_loss);
  require(is_positive_f32(a.logit_scale), "{}: logit_scale is {}, but must be > 0 and a normal f32", pass,
          a.logit_scale);
  require(a.softcap == 0 || is_positive_f32(a.softcap), "{}: softcap is {}, but must be 0 (none) or > 0, a normal f32",
          pass, a.softcap);
  require(!given(a.class_weight) || a.label_smoothing == 0,
          "{}: class_weight is given and label_smoothing is {}, but they do not combine; leave one out", pass,
          a.label_smoothing);
  require(!given(a.normalizer) || a.reduction == TC_REDUCTION_MEAN,
          "{}: normalizer is given, but only reduction mean divides by it", pass);
}
void check_forward(const Forward& a, const Dims& dims) {
  check_options("cross_entropy_forward", a, dims);
  require(given(a.dlogits) == (a.fuse_backward == 1),
          "cross_entropy_forward: fuse_backward is {} and dlogits is {}, but they go together", a.fuse_backward,
          given(a.dlogits) ? "given" : "missing");
  require(a.fuse_backward || !given(a.dloss),
          "cross_entropy_forward: dloss is given, but fuse_backward is 0, so nothing would use it");
}
void check_backward(const Backward& a, const Dims& dims) { check_options("cross_entropy_backward", a, dims); }

constexpr Pass list[] = {
    {.name = "cross_entropy_forward",
     .formula = "row loss = w (1 - s) (lse - u_t) + s (lse - mean(u)) + z_loss lse^2, u = softcap tanh(logit_scale x / "
                "softcap), lse = log sum exp(u)",
     .fields = forward_fields,
     .args_size = sizeof(Forward),
     .check = Erase<Forward>::check<check_forward>,
     .workspace = Erase<Forward>::workspace<carve_forward>,
     .cpu = Erase<Forward>::run<forward_cpu>},
    {.name = "cross_entropy_backward",
     .formula = "dlogits = dloss / normalizer [(w (1 - s) + s + 2 z_loss lse) p - s / C - w (1 - s) 1{j = t}] du/dx",
     .fields = backward_fields,
     .args_size = sizeof(Backward),
     .check = Erase<Backward>::check<check_backward>,
     .workspace = Erase<Backward>::workspace<carve_backward>,
     .cpu = Erase<Backward>::run<backward_cpu>},
};

}  // namespace

extern const std::span<const Pass> passes;
const std::span<const Pass> passes = list;

}  // namespace tc::ops::cross_entropy

TC_EXPORT_PASS(cross_entropy_forward, tc::ops::cross_entropy::list[0])
TC_EXPORT_PASS(cross_entropy_backward, tc::ops::cross_entropy::list[1])
