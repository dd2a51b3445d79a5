// The front door of add: what its arguments are, where it goes.
#include "traincore/ops/add/add.h"

#include "traincore/core/op.h"
#include "traincore/cuda/elements.h"
#include "traincore/ops/add/plan.h"

namespace tc::ops::add {

using Args = tcx_add_args;

void add_cpu(const Args&, const tc_exec&);
void add_cuda(const Args&, const tc_exec&);

namespace {

constexpr Field fields[] = {
    in("a", offsetof(Args, a), "dims...", any_float),
    in("b", offsetof(Args, b), "dims...", any_float),
    out("y", offsetof(Args, y), "dims...", any_float).may_be("a|b"),
    number("alpha", offsetof(Args, alpha), 1),
    number("beta", offsetof(Args, beta), 1),
};

std::string explain(const Args& a, const Dims&) {
  return is_uniform(a) ? fmt::format("one loop on {}: a, b and y are dense and share it", tc_dtype_name(a.y.dtype))
                       : "f32 chunks through the first-level cache: dtypes differ, or a tensor is not dense";
}

std::string cuda_explain(const Args& a, const tc_exec&, const cuda::DeviceInfo&) {
  const bool is_one_dtype = a.a.dtype == a.y.dtype && a.b.dtype == a.y.dtype;
  const int widest = is_one_dtype ? 16 / static_cast<int>(tc_dtype_size(a.y.dtype)) : 4;
  return describe(cuda::items_of<3>({&a.a, &a.b, &a.y}, widest)) +
         (is_one_dtype ? "" : "; dtypes differ, so each is looked at while it runs");
}

constexpr Pass list[] = {
    {.name = "add",
     .formula = "y = alpha a + beta b",
     .fields = fields,
     .args_size = sizeof(Args),
     .cpu = Erase<Args>::run<add_cpu>,
     .cuda = TC_IF_CUDA(Erase<Args>::run<add_cuda>),
     .explain = Erase<Args>::explain<explain>,
     .cuda_explain = Erase<Args>::cuda_explain<cuda_explain>},
};

}  // namespace

extern const std::span<const Pass> passes;
const std::span<const Pass> passes = list;

}  // namespace tc::ops::add

TC_EXPORT_PASS(add, tc::ops::add::list[0])
