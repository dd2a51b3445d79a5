// The front door of gemm: what its arguments are, what is checked, where it goes.
#include "traincore/ops/gemm/gemm.h"

#include "traincore/core/op.h"
#include "traincore/ops/gemm/plan.h"

namespace tc::ops::gemm {

using Forward = tcx_gemm_forward_args;
using Backward = tcx_gemm_backward_args;

void forward_cpu(const Forward&, const tc_exec&);
void backward_cpu(const Backward&, const tc_exec&);

namespace {

constexpr const char* kShapeA = "when(transpose_a=1) batch... k m | batch... m k";
constexpr const char* kShapeB = "when(transpose_b=1) batch... n k | batch... k n";
constexpr const char* kShapeC = "batch... m n";
constexpr const char* kActivations = "none|silu|sigmoid|gelu_tanh|gelu_erf|quick_gelu|relu|relu2|tanh";

constexpr Field forward_fields[] = {
    in("a", offsetof(Forward, a), kShapeA, any_float),
    in("b", offsetof(Forward, b), kShapeB, any_float),
    in("bias", offsetof(Forward, bias), "n", any_float).optional(),
    out("c", offsetof(Forward, c), kShapeC, any_float).reads_when("beta"),
    tensor(Role::saved, "preactivation", offsetof(Forward, preactivation), kShapeC, any_float).optional(),
    choice("activation", offsetof(Forward, activation), kActivations),
    flag("transpose_a", offsetof(Forward, transpose_a)),
    flag("transpose_b", offsetof(Forward, transpose_b)),
    number("alpha", offsetof(Forward, alpha), 1),
    number("beta", offsetof(Forward, beta)),
};
constexpr Field backward_fields[] = {
    in("dc", offsetof(Backward, dc), kShapeC, any_float),
    in("a", offsetof(Backward, a), kShapeA, any_float).optional(),
    in("b", offsetof(Backward, b), kShapeB, any_float).optional(),
    in("preactivation", offsetof(Backward, preactivation), kShapeC, any_float).optional(),
    out("da", offsetof(Backward, da), kShapeA, any_float).optional(),
    out("db", offsetof(Backward, db), kShapeB, any_float).optional().accumulated(),
    out("dbias", offsetof(Backward, dbias), "n", any_float).optional().accumulated(),
    choice("activation", offsetof(Backward, activation), kActivations),
    flag("transpose_a", offsetof(Backward, transpose_a)),
    flag("transpose_b", offsetof(Backward, transpose_b)),
    flag("accumulate", offsetof(Backward, accumulate)),
    number("alpha", offsetof(Backward, alpha), 1),
};

void check_backward(const Backward& a, const Dims&) {
  require(given(a.da) || given(a.db) || given(a.dbias),
          "gemm_backward: none of da, db and dbias is given, so there is nothing to compute");
  require(!given(a.da) || given(a.b), "gemm_backward: b is missing, but da = alpha dz op(b)^T needs it");
  require(!given(a.db) || given(a.a), "gemm_backward: a is missing, but db = alpha op(a)^T dz needs it");
  require(a.activation == TC_ACTIVATION_NONE || given(a.preactivation),
          "gemm_backward: preactivation is missing, but the derivative of the activation needs it");
}

double product_flops(const Dims& dims) { return 2.0 * dims["batch"] * dims["m"] * dims["n"] * dims["k"]; }
double forward_flops(const Forward&, const Dims& dims) { return product_flops(dims); }
double backward_flops(const Backward& a, const Dims& dims) {
  return (int{given(a.da)} + int{given(a.db)}) * product_flops(dims);
}

std::string product_text(const char* what, int64_t m, int64_t n, int64_t k) {
  const GemmPlan p = plan_gemm(m, n, k);
  const std::string parts = p.parts > 1 ? fmt::format("; K in {} parts, since C has few tiles", p.parts) : "";
  return fmt::format("{}: {} tiles of {} x {}, each by oneDNN's sgemm on one thread, K in panels of {} in order{}",
                     what, p.tiles, p.tile_m, p.tile_n, p.panel_k, parts);
}
std::string explain_forward(const Forward&, const Dims& d) { return product_text("c", d["m"], d["n"], d["k"]); }
std::string explain_backward(const Backward& a, const Dims& d) {
  const int64_t m = d["m"], n = d["n"], k = d["k"];
  std::string text = a.activation ? "dz in f32" : "dz = dc";
  if (given(a.da)) text += "; " + (a.transpose_a ? product_text("da", k, m, n) : product_text("da", m, k, n));
  if (given(a.db)) text += "; " + (a.transpose_b ? product_text("db", n, k, m) : product_text("db", k, n, m));
  if (given(a.dbias)) text += fmt::format("; dbias: {} runs of rows", kSlabs);
  return text;
}

// A row's bits depend on the tile it falls in, hence on the number of rows.
constexpr uint32_t kOffers = kRunToRun | kUnordered | kStandard | kStrict | kFast;

constexpr Pass list[] = {
    {.name = "gemm_forward",
     .formula = "c = activation(alpha op(a) op(b) + beta c + bias)",
     .fields = forward_fields,
     .args_size = sizeof(Forward),
     .offers = kOffers,
     .workspace = Erase<Forward>::workspace<carve_forward>,
     .cpu = Erase<Forward>::run<forward_cpu>,
     .flops = Erase<Forward>::flops<forward_flops>,
     .explain = Erase<Forward>::explain<explain_forward>},
    {.name = "gemm_backward",
     .formula = "da = alpha dz op(b)^T; db = alpha op(a)^T dz; dbias = sum_rows dz; dz = dc activation'(preactivation)",
     .fields = backward_fields,
     .args_size = sizeof(Backward),
     .offers = kOffers,
     .check = Erase<Backward>::check<check_backward>,
     .workspace = Erase<Backward>::workspace<carve_backward>,
     .cpu = Erase<Backward>::run<backward_cpu>,
     .flops = Erase<Backward>::flops<backward_flops>,
     .explain = Erase<Backward>::explain<explain_backward>},
};

}  // namespace

extern const std::span<const Pass> passes;
const std::span<const Pass> passes = list;

}  // namespace tc::ops::gemm

TC_EXPORT_PASS(gemm_forward, tc::ops::gemm::list[0])
TC_EXPORT_PASS(gemm_backward, tc::ops::gemm::list[1])
