// The front door of cast: what its arguments are, where it goes.
#include "traincore/ops/cast/cast.h"

#include "traincore/core/op.h"

namespace tc::ops::cast {

using Args = tcx_cast_args;

void cast_cpu(const Args&, const tc_exec&);
void cast_cuda(const Args&, const tc_exec&);

namespace {

constexpr Field fields[] = {
    in("x", offsetof(Args, x), "dims...", any_float),
    out("y", offsetof(Args, y), "dims...", any_float),
};

constexpr Pass list[] = {
    {.name = "cast",
     .formula = "y = x, rounded to nearest even in y's dtype",
     .fields = fields,
     .args_size = sizeof(Args),
     .cpu = Erase<Args>::run<cast_cpu>,
     .cuda = TC_IF_CUDA(Erase<Args>::run<cast_cuda>)},
};

}  // namespace

extern const std::span<const Pass> passes;
const std::span<const Pass> passes = list;

}  // namespace tc::ops::cast

TC_EXPORT_PASS(cast, tc::ops::cast::list[0])
