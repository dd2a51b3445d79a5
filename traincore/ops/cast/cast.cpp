// The front door of cast: what its arguments are, where it goes.
#include "traincore/ops/cast/cast.h"

#include "traincore/core/op.h"
#include "traincore/cuda/elements.h"

namespace tc::ops::cast {

using Args = tcx_cast_args;

void cast_cpu(const Args&, const tc_exec&);
void cast_cuda(const Args&, const tc_exec&);

namespace {

constexpr Field fields[] = {
    in("x", offsetof(Args, x), "dims...", any_float),
    out("y", offsetof(Args, y), "dims...", any_float),
};

std::string cuda_explain(const Args& a, const tc_exec&, const cuda::DeviceInfo&) {
  const int widest = 16 / static_cast<int>(std::max(tc_dtype_size(a.x.dtype), tc_dtype_size(a.y.dtype)));
  return describe(cuda::items_of<2>({&a.x, &a.y}, widest));
}

constexpr Pass list[] = {
    {.name = "cast",
     .formula = "y = x, rounded to nearest even in y's dtype",
     .fields = fields,
     .args_size = sizeof(Args),
     .cpu = Erase<Args>::run<cast_cpu>,
     .cuda = TC_IF_CUDA(Erase<Args>::run<cast_cuda>),
     .cuda_explain = Erase<Args>::cuda_explain<cuda_explain>},
};

}  // namespace

extern const std::span<const Pass> passes;
const std::span<const Pass> passes = list;

}  // namespace tc::ops::cast

TC_EXPORT_PASS(cast, tc::ops::cast::list[0])
