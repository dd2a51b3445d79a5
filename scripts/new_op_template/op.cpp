// The front door of @op@: what its arguments are, what is checked, where it goes.
#include "traincore/ops/@op@/@op@.h"

#include "traincore/core/op.h"

namespace tc::ops::@op@ {

using Forward = tcx_@op@_forward_args;
using Backward = tcx_@op@_backward_args;

void forward_cpu(const Forward&, const tc_exec&);
void backward_cpu(const Backward&, const tc_exec&);

namespace {

constexpr Field forward_fields[] = {
    in("x", offsetof(Forward, x), "rows... cols"),
    out("y", offsetof(Forward, y), "rows... cols").may_be("x"),
};
constexpr Field backward_fields[] = {
    in("dy", offsetof(Backward, dy), "rows... cols"),
    in("x", offsetof(Backward, x), "rows... cols"),
    out("dx", offsetof(Backward, dx), "rows... cols").may_be("dy"),
};

constexpr Pass list[] = {
    {.name = "@op@_forward",
     .formula = "y = x^2",
     .fields = forward_fields,
     .args_size = sizeof(Forward),
     .cpu = Erase<Forward>::run<forward_cpu>},
    {.name = "@op@_backward",
     .formula = "dx = 2 x dy",
     .fields = backward_fields,
     .args_size = sizeof(Backward),
     .cpu = Erase<Backward>::run<backward_cpu>},
};

}  // namespace

extern const std::span<const Pass> passes;
const std::span<const Pass> passes = list;

}  // namespace tc::ops::@op@

TC_EXPORT_PASS(@op@_forward, tc::ops::@op@::list[0])
TC_EXPORT_PASS(@op@_backward, tc::ops::@op@::list[1])
