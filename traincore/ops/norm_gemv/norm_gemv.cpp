// The front door of norm_gemv: what its arguments are, what is checked, where it goes.
#include "traincore/ops/norm_gemv/norm_gemv.h"

#include "traincore/core/op.h"
#include "traincore/ops/norm_gemv/plan.h"

namespace tc::ops::norm_gemv {

using Args = tcx_norm_gemv_args;

void norm_gemv_cpu(const Args&, const tc_exec&);
void norm_gemv_cuda(const Args&, const tc_exec&);
size_t norm_gemv_cuda_workspace(const Args&, const tc_exec&);

namespace {

constexpr Field fields[] = {
    in("x", offsetof(Args, x), "rows... k", mixed_storage),
    in("weight", offsetof(Args, weight), "k", any_float).optional(),
    in("bias", offsetof(Args, bias), "k", any_float).optional(),
    in("w", offsetof(Args, w), "when(transpose_w=1) n k | k n", mixed_storage),
    in("w2", offsetof(Args, w2), "when(transpose_w=1) n2 k | k n2", mixed_storage).optional(),
    in("w3", offsetof(Args, w3), "when(transpose_w=1) n3 k | k n3", mixed_storage).optional(),
    out("y", offsetof(Args, y), "rows... n", mixed_storage),
    out("y2", offsetof(Args, y2), "rows... n2", mixed_storage).optional(),
    out("y3", offsetof(Args, y3), "rows... n3", mixed_storage).optional(),
    choice("norm", offsetof(Args, norm), "?|rms|layer"),
    flag("transpose_w", offsetof(Args, transpose_w)),
    number("eps", offsetof(Args, eps)),
    number("weight_offset", offsetof(Args, weight_offset)),
};

void check(const Args& a, const Dims& dims) {
  require(dims["k"] > 0, "norm_gemv: x has width 0, but a row needs at least one element");
  require(a.eps > 0, "norm_gemv: eps is {}, but must be > 0", a.eps);
  require(given(a.w2) == given(a.y2), "norm_gemv: w2 and y2 belong together, but only one of them is given");
  require(given(a.w3) == given(a.y3), "norm_gemv: w3 and y3 belong together, but only one of them is given");
  require(a.norm == TC_NORM_LAYER || !given(a.bias), "norm_gemv: bias is given, but only the norm layer has one");
  require(a.norm == TC_NORM_RMS || a.weight_offset == 0,
          "norm_gemv: weight_offset is {}, but only the norm rms has one", a.weight_offset);
}

double flops(const Args&, const Dims& dims) {
  double outputs = static_cast<double>(dims["n"]);
  for (const char* name : {"n2", "n3"}) outputs += dims.has(name) ? static_cast<double>(dims[name]) : 0;
  return 2.0 * static_cast<double>(dims["rows"]) * static_cast<double>(dims["k"]) * outputs;
}

std::string explain(const Args& a, const Dims& dims) {
  const int64_t rows = dims["rows"];
  if (rows > kFewRows)
    return fmt::format("{} rows, more than {}: the norm in f32, then a matrix product for each w", rows, kFewRows);
  const GemvPlan p = plan_gemv(rows, dims["k"], dims["n"], a.transpose_w != 0);
  return fmt::format("{} rows, at most {}: one kernel that reads each w once; w in {} tasks of {} outputs by {} of k",
                     rows, kFewRows, p.tasks(), p.columns, p.part_k);
}

std::string cuda_explain(const Args& a, const tc_exec&, const cuda::DeviceInfo& device) {
  const int64_t rows = rows_in(a.x);
  const GpuProducts products = gpu_products(a);
  if (rows == 0 || products.count == 0) return "nothing to compute";
  const GpuProduct& p = products.list[0];
  std::string text;
  if (const TilesPlan tiles = plan_tiles(p, a.transpose_w != 0, device); tiles.serves) {
    text = fmt::format("each of {} blocks makes v and multiplies it by w on tensor cores, in two parts of 11 bits",
                       tiles.blocks);
    if (tiles.cluster > 1) text += fmt::format(", {} blocks of a cluster sharing k", tiles.cluster);
  } else if (a.transpose_w) {
    const DotsPlan plan = plan_dots(p, device);
    text = fmt::format("each of {} blocks makes v, its warps dot products with {} rows of w at a time", plan.blocks,
                       kGpuLoads);
    if (plan.parts > 1) text += fmt::format(", in {} parts of k", plan.parts);
  } else {
    const StripsPlan plan = plan_strips(p, device);
    text = fmt::format("each block makes v and sums over k a strip of {} columns of w", plan.lanes * p.width);
    if (plan.cluster > 1) text += fmt::format(", shared by a cluster of {} blocks", plan.cluster);
  }
  if (p.width == 1) text += "; element by element: no 16-byte access fits w";
  if (!reads_x_together(a.x.dtype, p.dtype))
    text +=
        fmt::format("; x element by element: it is {} where w is {}", tc_dtype_name(a.x.dtype), tc_dtype_name(p.dtype));
  if (products.count > 1) text += fmt::format("; {} launches, since the matrices are read differently", products.count);
  if (rows > kFewRows) text += fmt::format("; every {} rows read each w again", kFewRows);
  return text;
}

constexpr Pass list[] = {
    {.name = "norm_gemv",
     .formula = "y = Norm(x) w; y2 = Norm(x) w2; y3 = Norm(x) w3",
     .fields = fields,
     .args_size = sizeof(Args),
     // How a row is summed depends on how many there are.
     .offers = kRunToRun | kUnordered | kStandard | kStrict | kFast,
     .check = Erase<Args>::check<check>,
     .workspace = Erase<Args>::workspace<carve>,
     .cuda_workspace = TC_IF_CUDA(Erase<Args>::cuda_workspace<norm_gemv_cuda_workspace>),
     .cpu = Erase<Args>::run<norm_gemv_cpu>,
     .cuda = TC_IF_CUDA(Erase<Args>::run<norm_gemv_cuda>),
     .flops = Erase<Args>::flops<flops>,
     .explain = Erase<Args>::explain<explain>,
     .cuda_explain = Erase<Args>::cuda_explain<cuda_explain>},
};

}  // namespace

extern const std::span<const Pass> passes;
const std::span<const Pass> passes = list;

}  // namespace tc::ops::norm_gemv

TC_EXPORT_PASS(norm_gemv, tc::ops::norm_gemv::list[0])
