// The front door of fill: what its arguments are, where it goes.
#include "traincore/ops/fill/fill.h"

#include "traincore/core/op.h"
#include "traincore/cuda/elements.h"

namespace tc::ops::fill {

using Args = tcx_fill_args;

void fill_cpu(const Args&, const tc_exec&);
void fill_cuda(const Args&, const tc_exec&);

namespace {

constexpr Field fields[] = {
    out("y", offsetof(Args, y), "dims...", any_float),
    number("value", offsetof(Args, value)),
};

std::string cuda_explain(const Args& a, const tc_exec&, const cuda::DeviceInfo&) {
  return describe(cuda::items_of<1>({&a.y}, 16 / static_cast<int>(tc_dtype_size(a.y.dtype))));
}

constexpr Pass list[] = {
    {.name = "fill",
     .formula = "y = value",
     .fields = fields,
     .args_size = sizeof(Args),
     .cpu = Erase<Args>::run<fill_cpu>,
     .cuda = TC_IF_CUDA(Erase<Args>::run<fill_cuda>),
     .cuda_explain = Erase<Args>::cuda_explain<cuda_explain>},
};

}  // namespace

extern const std::span<const Pass> passes;
const std::span<const Pass> passes = list;

}  // namespace tc::ops::fill

TC_EXPORT_PASS(fill, tc::ops::fill::list[0])
