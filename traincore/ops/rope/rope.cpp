// The front door of rope: what its arguments are, what is checked, where it goes.
#include "traincore/ops/rope/rope.h"

#include "traincore/core/op.h"
#include "traincore/ops/rope/plan.h"

namespace tc::ops::rope {

using Forward = tcx_rope_forward_args;
using Backward = tcx_rope_backward_args;

void forward_cpu(const Forward&, const tc_exec&);
void backward_cpu(const Backward&, const tc_exec&);
void forward_cuda(const Forward&, const tc_exec&);
void backward_cuda(const Backward&, const tc_exec&);

namespace {

constexpr const char* kQ = "batch... heads seq dim | seq dim";
constexpr const char* kK = "batch... kv_heads seq dim | seq dim";
constexpr const char* kTable = "rows half | batch... seq half";
constexpr const char* kPositions = "seq | batch... seq";

constexpr Field forward_fields[] = {
    choice("pairing", offsetof(Forward, pairing), "?|half|interleaved"),
    in("q", offsetof(Forward, q), kQ),
    in("k", offsetof(Forward, k), kK).optional(),
    in("cos", offsetof(Forward, cos), kTable, any_float),
    in("sin", offsetof(Forward, sin), kTable, any_float),
    in("positions", offsetof(Forward, positions), kPositions, indices).optional().strided(),
    out("q_out", offsetof(Forward, q_out), kQ).may_be("q"),
    out("k_out", offsetof(Forward, k_out), kK).optional().may_be("k"),
};
constexpr Field backward_fields[] = {
    choice("pairing", offsetof(Backward, pairing), "?|half|interleaved"),
    in("dq_out", offsetof(Backward, dq_out), kQ),
    in("dk_out", offsetof(Backward, dk_out), kK).optional(),
    in("q", offsetof(Backward, q), kQ).optional(),
    in("k", offsetof(Backward, k), kK).optional(),
    in("cos", offsetof(Backward, cos), kTable, any_float),
    in("sin", offsetof(Backward, sin), kTable, any_float),
    in("positions", offsetof(Backward, positions), kPositions, indices).optional().strided(),
    out("dq", offsetof(Backward, dq), kQ).optional().may_be("dq_out"),
    out("dk", offsetof(Backward, dk), kK).optional().may_be("dk_out"),
    out("dcos", offsetof(Backward, dcos), kTable, any_float).optional().accumulated(),
    out("dsin", offsetof(Backward, dsin), kTable, any_float).optional().accumulated(),
    flag("accumulate", offsetof(Backward, accumulate)),
};
// What a shape with alternatives leaves open: tensors that are alike have one rank, and only batched q has batched
// tables.
struct Alike {
  const char* name;
  const tc_tensor& tensor;
  const char* model_name;
  const tc_tensor& model;
};
void check_ranks(const char* pass, std::initializer_list<Alike> pairs) {
  for (const Alike& p : pairs)
    if (given(p.tensor) && given(p.model) && p.tensor.rank != p.model.rank)
      fail(TC_ERR_INVALID_SHAPE, "{}: {} has rank {}, but {} has rank {}", pass, p.name, p.tensor.rank, p.model_name,
           p.model.rank);
}

void check_tables_of(const char* pass, const tc_tensor& q, const tc_tensor& cos, const tc_tensor& positions,
                     const Dims& dims) {
  const int64_t half = dims["half"], dim = dims["dim"], rows = dims["rows"], seq = dims["seq"];
  require(half > 0, "{}: cos has width 0, but at least one pair must turn", pass);
  if (half > dim / 2)
    fail(TC_ERR_INVALID_SHAPE, "{}: cos has half = {}, so the first {} elements would turn, but q has dim = {}", pass,
         half, 2 * half, dim);
  if (q.rank == 2 && (cos.rank > 2 || positions.rank > 1))
    fail(TC_ERR_INVALID_SHAPE, "{}: {} has batch dimensions, but q is [seq dim]", pass,
         cos.rank > 2 ? "cos" : "positions");
  if (given(positions) && cos.rank != 2)
    fail(TC_ERR_INVALID_SHAPE, "{}: cos has rank {}, but positions choose rows of one table [rows half]", pass,
         cos.rank);
  if (!given(positions) && cos.rank == 2 && rows != seq)
    fail(TC_ERR_INVALID_SHAPE, "{}: cos has rows = {}, but q has seq = {}; without positions they must agree", pass,
         rows, seq);
}

void check_forward(const Forward& a, const Dims& dims) {
  check_ranks(
      "rope_forward",
      {{"k", a.k, "q", a.q}, {"q_out", a.q_out, "q", a.q}, {"k_out", a.k_out, "q", a.q}, {"sin", a.sin, "cos", a.cos}});
  check_tables_of("rope_forward", a.q, a.cos, a.positions, dims);
  require(given(a.k) == given(a.k_out), "rope_forward: {} is given without {}", given(a.k) ? "k" : "k_out",
          given(a.k) ? "k_out" : "k");
}

void check_backward(const Backward& a, const Dims& dims) {
  const tc_tensor& model = a.dq_out;
  check_ranks("rope_backward", {{"dk_out", a.dk_out, "dq_out", model},
                                {"q", a.q, "dq_out", model},
                                {"k", a.k, "dq_out", model},
                                {"dq", a.dq, "dq_out", model},
                                {"dk", a.dk, "dq_out", model},
                                {"sin", a.sin, "cos", a.cos},
                                {"dcos", a.dcos, "cos", a.cos},
                                {"dsin", a.dsin, "cos", a.cos}});
  check_tables_of("rope_backward", a.dq_out, a.cos, a.positions, dims);
  const bool tables = given(a.dcos) || given(a.dsin);
  require(given(a.dq) || given(a.dk) || tables,
          "rope_backward: none of dq, dk, dcos and dsin is given, so there is nothing to compute");
  require(!given(a.dk) || given(a.dk_out), "rope_backward: dk is given, but dk_out is missing");
  require(!tables || given(a.q), "rope_backward: dcos or dsin is given, but q, which they need, is missing");
  require(!tables || given(a.k) == given(a.dk_out),
          "rope_backward: {} is given, but {}, which dcos and dsin need, is not", given(a.k) ? "k" : "dk_out",
          given(a.k) ? "dk_out" : "k");
}

// q and k count where they are read, for the gradients of the tables.
double bytes_backward(const Backward& a, const Dims&) {
  const auto bytes = [](std::initializer_list<const tc_tensor*> tensors) {
    double sum = 0;
    for (const tc_tensor* t : tensors)
      if (given(*t)) sum += static_cast<double>(element_count(*t)) * static_cast<double>(tc_dtype_size(t->dtype));
    return sum;
  };
  const bool has_tables = given(a.dcos) || given(a.dsin);
  return bytes({&a.dq_out, &a.dk_out, &a.cos, &a.sin, &a.positions, &a.dq, &a.dk, &a.dcos, &a.dsin}) +
         (has_tables ? bytes({&a.q, &a.k}) : 0) + (a.accumulate ? bytes({&a.dcos, &a.dsin}) : 0);
}

constexpr const char* kTurn = "a full grid, a thread for several heads of one position, whose angles it reads once";
std::string cuda_explain_forward(const Forward&, const tc_exec&, const cuda::DeviceInfo&) { return kTurn; }
std::string cuda_explain_backward(const Backward& a, const tc_exec&, const cuda::DeviceInfo&) {
  if (turns_with_tables(a))
    return "a few threads a row of the tables turn what it turned, and add up dcos and dsin, in order";
  const bool has_tables = given(a.dcos) || given(a.dsin);
  return has_tables ? fmt::format("dcos and dsin: a few threads a row of the tables, in order; then {}", kTurn) : kTurn;
}

constexpr Pass list[] = {
    {.name = "rope_forward",
     .formula = "out1 = x1 cos - x2 sin; out2 = x2 cos + x1 sin",
     .fields = forward_fields,
     .args_size = sizeof(Forward),
     .check = Erase<Forward>::check<check_forward>,
     .cpu = Erase<Forward>::run<forward_cpu>,
     .cuda = TC_IF_CUDA(Erase<Forward>::run<forward_cuda>),
     .cuda_explain = Erase<Forward>::cuda_explain<cuda_explain_forward>},
    {.name = "rope_backward",
     .formula = "dx1 = g1 cos + g2 sin; dx2 = g2 cos - g1 sin; dcos = sum g1 x1 + g2 x2; dsin = sum g2 x1 - g1 x2",
     .fields = backward_fields,
     .args_size = sizeof(Backward),
     .check = Erase<Backward>::check<check_backward>,
     .workspace = Erase<Backward>::workspace<carve_backward>,
     .cpu = Erase<Backward>::run<backward_cpu>,
     .cuda = TC_IF_CUDA(Erase<Backward>::run<backward_cuda>),
     .bytes = Erase<Backward>::bytes<bytes_backward>,
     .cuda_explain = Erase<Backward>::cuda_explain<cuda_explain_backward>},
};

}  // namespace

extern const std::span<const Pass> passes;
const std::span<const Pass> passes = list;

}  // namespace tc::ops::rope

TC_EXPORT_PASS(rope_forward, tc::ops::rope::list[0])
TC_EXPORT_PASS(rope_backward, tc::ops::rope::list[1])
