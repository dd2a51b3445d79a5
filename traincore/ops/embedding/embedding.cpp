// The front door of embedding: what its arguments are, what is checked, where it goes.
#include "traincore/ops/embedding/embedding.h"

#include <algorithm>

#include "traincore/core/op.h"
#include "traincore/ops/embedding/plan.h"

namespace tc::ops::embedding {

using Forward = tcx_embedding_forward_args;
using Backward = tcx_embedding_backward_args;

void forward_cpu(const Forward&, const tc_exec&);
void backward_cpu(const Backward&, const tc_exec&);
void forward_cuda(const Forward&, const tc_exec&);
void backward_cuda(const Backward&, const tc_exec&);
size_t backward_cuda_workspace(const Backward&, const tc_exec&);

namespace {

constexpr Field forward_fields[] = {
    in("ids", offsetof(Forward, ids), "rows...", indices).strided(),
    in("weight", offsetof(Forward, weight), "vocab dim"),
    out("y", offsetof(Forward, y), "rows... dim"),
};
constexpr Field backward_fields[] = {
    in("dy", offsetof(Backward, dy), "rows... dim"),
    in("ids", offsetof(Backward, ids), "rows...", indices).strided(),
    out("dweight", offsetof(Backward, dweight), "vocab dim", any_float).accumulated(),
    flag("accumulate", offsetof(Backward, accumulate)),
};

void check_forward(const Forward&, const Dims& dims) {
  require(dims["dim"] > 0, "embedding_forward: weight has width 0, but a row needs at least one element");
}
// Of the table only the rows that are asked for, each once.
double bytes_forward(const Forward& a, const Dims& dims) {
  const auto rows = static_cast<double>(dims["rows"]), vocab = static_cast<double>(dims["vocab"]);
  const double row_bytes = static_cast<double>(dims["dim"]) * static_cast<double>(tc_dtype_size(a.y.dtype));
  return rows * static_cast<double>(tc_dtype_size(a.ids.dtype)) + (rows + std::min(rows, vocab)) * row_bytes;
}
void check_backward(const Backward&, const Dims& dims) {
  require(dims["dim"] > 0, "embedding_backward: dy has width 0, but a row needs at least one element");
}

std::string cuda_explain_forward(const Forward&, const tc_exec&, const cuda::DeviceInfo&) {
  return "a warp copies a piece of a row, bit for bit";
}

std::string cuda_explain_backward(const Backward&, const tc_exec&, const cuda::DeviceInfo&) {
  return "rows are sorted by id, and the rows of dweight that none names are zeroed; then each other is the sum of the "
         "rows of dy that name it, in their order";
}

constexpr Pass list[] = {
    {.name = "embedding_forward",
     .formula = "y[r] = weight[ids[r]]",
     .fields = forward_fields,
     .args_size = sizeof(Forward),
     .check = Erase<Forward>::check<check_forward>,
     .cpu = Erase<Forward>::run<forward_cpu>,
     .cuda = TC_IF_CUDA(Erase<Forward>::run<forward_cuda>),
     .bytes = Erase<Forward>::bytes<bytes_forward>,
     .cuda_explain = Erase<Forward>::cuda_explain<cuda_explain_forward>},
    {.name = "embedding_backward",
     .formula = "dweight[v] = sum of dy[r] over rows r with ids[r] = v",
     .fields = backward_fields,
     .args_size = sizeof(Backward),
     .check = Erase<Backward>::check<check_backward>,
     .workspace = Erase<Backward>::workspace<carve_backward>,
     .cuda_workspace = TC_IF_CUDA(Erase<Backward>::cuda_workspace<backward_cuda_workspace>),
     .cpu = Erase<Backward>::run<backward_cpu>,
     .cuda = TC_IF_CUDA(Erase<Backward>::run<backward_cuda>),
     .cuda_explain = Erase<Backward>::cuda_explain<cuda_explain_backward>},
};

}  // namespace

extern const std::span<const Pass> passes;
const std::span<const Pass> passes = list;

}  // namespace tc::ops::embedding

TC_EXPORT_PASS(embedding_forward, tc::ops::embedding::list[0])
TC_EXPORT_PASS(embedding_backward, tc::ops::embedding::list[1])
