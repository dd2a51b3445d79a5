// The front door of gemm_i8: what its arguments are, where it goes.
#include "traincore/ops/gemm_i8/gemm_i8.h"

#include "traincore/core/op.h"
#include "traincore/ops/gemm_i8/plan.h"

namespace tc::ops::gemm_i8 {

using Args = tcx_gemm_i8_args;

void gemm_i8_cpu(const Args&, const tc_exec&);

namespace {

constexpr Field fields[] = {
    in("a", offsetof(Args, a), "when(transpose_a=1) batch... k m | batch... m k", dtypes({TC_DTYPE_I8})),
    in("b", offsetof(Args, b), "when(transpose_b=1) batch... n k | batch... k n", dtypes({TC_DTYPE_I8})),
    out("c", offsetof(Args, c), "batch... m n", dtypes({TC_DTYPE_I32})).reads_when("beta"),
    flag("transpose_a", offsetof(Args, transpose_a)),
    flag("transpose_b", offsetof(Args, transpose_b)),
    number("alpha", offsetof(Args, alpha), 1),
    number("beta", offsetof(Args, beta)),
};

double flops(const Args&, const Dims& dims) { return 2.0 * dims["batch"] * dims["m"] * dims["n"] * dims["k"]; }

std::string explain(const Args&, const Dims& dims) {
  return fmt::format("{} x {} x {}: f32 products over K in panels of {}, in which sums stay exact; panels added in f64",
                     dims["m"], dims["n"], dims["k"], kPanel);
}

constexpr Pass list[] = {
    {.name = "gemm_i8",
     .formula = "c = alpha op(a) op(b) + beta c, the product exact",
     .fields = fields,
     .args_size = sizeof(Args),
     .workspace = Erase<Args>::workspace<carve>,
     .cpu = Erase<Args>::run<gemm_i8_cpu>,
     .flops = Erase<Args>::flops<flops>,
     .explain = Erase<Args>::explain<explain>},
};

}  // namespace

extern const std::span<const Pass> passes;
const std::span<const Pass> passes = list;

}  // namespace tc::ops::gemm_i8

TC_EXPORT_PASS(gemm_i8, tc::ops::gemm_i8::list[0])
