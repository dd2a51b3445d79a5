// Linear cross entropy on the GPU: chunk by chunk, the products of cuda/gemm and what lies between them. How many rows are
// valid only the device knows, so every row has a place in some chunk, and places that no valid row fills are zeros.
#include "traincore/core/arena.h"
#include "traincore/cuda/column_sums.h"
#include "traincore/cuda/gemm.h"
#include "traincore/cuda/launch.h"
#include "traincore/ops/linear_cross_entropy/cuda_plan.h"
#include "traincore/ops/linear_cross_entropy/cuda_steps.cuh"

namespace tc::ops::linear_cross_entropy {
namespace {

using namespace tc::cuda;  // NOLINT(google-build-using-namespace): the vocabulary of GPU kernels

using Forward = tcx_linear_cross_entropy_forward_args;
using Backward = tcx_linear_cross_entropy_backward_args;

struct Scratch {
  TargetTotals* totals;
  int64_t *valid, *valid_count;  // [rows]; one
  RowFacts* facts;               // [chunk]
  DxScale* scale;                // one, if dx is scaled
  float *bias, *dbias;           // [line of classes]
  float* logits;                 // [chunk, line of classes], then dx in f32
  std::byte *weight, *hidden;    // [classes, line of width], if it is copied; [copies, chunk, line of width]
  std::byte* dx;                 // [parts, chunk, line of classes], where its parts have 16 bits
  float *dhidden, *dweight;      // [parts, chunk, line of width]; [classes, line of width], if it is summed apart
  void* products;
  float *loss, *z_loss_part;  // of rows, where they are then reduced
};

template <class A>
Scratch carve(const A& a, const GpuPlan& plan, Arena& arena) {
  const Extents e = extents_of(a);
  const int64_t classes = gpu_line(e.classes), width = gpu_line(e.width);
  const auto size = static_cast<int64_t>(tc_dtype_size(plan.dtype));
  const auto operand = [&](bool wanted, int64_t rows, int64_t cols) {
    return arena.take<std::byte>(wanted ? product(product(rows, cols), size) : 0);
  };
  const auto floats = [&](bool wanted, int64_t rows, int64_t cols) {
    return arena.take<float>(wanted ? product(rows, cols) : 0);
  };
  Scratch s{};
  s.totals = arena.take<TargetTotals>(kTargetParts);
  s.valid = arena.take<int64_t>(e.rows);
  s.valid_count = arena.take<int64_t>(1);
  s.facts = arena.take<RowFacts>(plan.chunk);
  s.scale = arena.take<DxScale>(wants_gradients(a) && plan.scales_dx ? 1 : 0);
  s.bias = floats(given(a.bias), 1, classes);
  s.dbias = floats(given(a.dbias), 1, classes);
  s.logits = floats(true, plan.chunk, classes);
  s.weight = operand(plan.copies_weight, e.classes, width);
  s.hidden = operand(true, plan.chunk * (given(a.dweight) ? plan.parts : 1), width);
  s.dx =
      operand((given(a.dhidden) || given(a.dweight)) && plan.dtype != TC_DTYPE_F32, plan.chunk * plan.parts, classes);
  s.dhidden = floats(given(a.dhidden), plan.chunk * plan.parts, width);
  s.dweight = floats(plan.adds_dweight_apart, e.classes, width);
  s.products = arena.take<std::byte>(kGemmWorkspaceBytes);
  if constexpr (std::is_same_v<A, Forward>) {
    const int64_t reduced = a.reduction == TC_REDUCTION_NONE ? 0 : e.rows;
    s.loss = arena.take<float>(reduced);
    s.z_loss_part = arena.take<float>(given(a.z_loss_part) ? reduced : 0);
  }
  return s;
}

// A dense f32 vector in scratch.
tc_tensor vector_of(float* data, int64_t count) { return tc_tensor_dense(data, TC_DTYPE_F32, 1, &count); }
// A matrix in scratch, as large as `like`.
tc_tensor matrix_of(void* data, int32_t dtype, const tc_tensor& like) {
  tc_tensor t = tc_tensor_dense(data, dtype, 2, like.shape);
  t.stride[0] = gpu_line(like.shape[1]);
  return t;
}

template <class A>
struct Call {
  const char* pass;
  const A& a;
  const tc_exec& exec;
  GpuPlan plan;
  Scratch scratch;
  LossOptions options;
  tc_tensor weight, dweight;  // as products take them

  void multiply(const Gemm& gemm) const { run_gemm(pass, gemm, scratch.products, exec); }
};

// Counts the targets, and has every operand that all chunks share where products take it from.
template <class A>
Call<A> begin(const char* pass, const A& a, const tc_exec& exec) {
  const GpuPlan plan = plan_gpu(pass, a, exec);
  Arena arena(exec.workspace);
  const Scratch s = carve(a, plan, arena);
  const LossOptions options = loss_options(a, a.weight.shape[0], s.totals, exec);
  total_targets(options, s.totals, exec);
  list_valid(options, s.valid, s.valid_count, exec);
  if (s.bias) convert(a.bias, vector_of(s.bias, options.classes), false, exec);
  const tc_tensor weight = s.weight ? matrix_of(s.weight, plan.dtype, a.weight) : a.weight;
  if (s.weight) convert(a.weight, weight, false, exec);
  return {pass, a,       exec,   plan,
          s,    options, weight, s.dweight ? matrix_of(s.dweight, TC_DTYPE_F32, a.weight) : a.dweight};
}

template <class A>
void make_logits(const Call<A>& call, const ChunkRows& rows, const ChunkLogits& logits) {
  const int64_t width = call.weight.shape[1], line = gpu_line(width);
  gather_hidden(call.a.hidden, rows, call.plan.dtype, call.scratch.hidden, line,
                given(call.a.dweight) ? call.plan.parts : 1, call.exec);
  call.multiply({.m = rows.size,
                 .n = call.options.classes,
                 .k = width,
                 .dtype = call.plan.dtype,
                 .a = {call.scratch.hidden, line},
                 .b = {call.weight.data, row_stride(call.weight), true},
                 .d = {logits.data, TC_DTYPE_F32, logits.line}});
}

// The parts of dx lie below each other, as rows of one matrix.
template <class A>
void make_dhidden(const Call<A>& call, const ChunkRows& rows, const GemmInput& dx) {
  const int64_t width = call.weight.shape[1], line = gpu_line(width);
  call.multiply({.m = rows.size * call.plan.parts,
                 .n = width,
                 .k = call.options.classes,
                 .dtype = call.plan.dtype,
                 .a = dx,
                 .b = {call.weight.data, row_stride(call.weight)},
                 .d = {call.scratch.dhidden, TC_DTYPE_F32, line}});
  scatter_dhidden(call.scratch.dhidden, line, call.plan.parts, rows, call.scratch.scale, call.a.dhidden, call.exec);
}

// The chunk's hidden rows lie below each other as often as dx has parts, so that one product adds all of them up.
template <class A>
void add_dweight(const Call<A>& call, const ChunkRows& rows, const GemmInput& dx, float beta) {
  const int64_t width = call.weight.shape[1];
  call.multiply({.m = call.options.classes,
                 .n = width,
                 .k = rows.size * call.plan.parts,
                 .dtype = call.plan.dtype,
                 .a = {dx.data, dx.stride, true},
                 .b = {call.scratch.hidden, gpu_line(width)},
                 .d = {call.dweight.data, TC_DTYPE_F32, row_stride(call.dweight)},
                 .beta = beta,
                 .factors = call.scratch.scale ? &call.scratch.scale->inverse : nullptr});
}

template <class A>
void add_gradients(const Call<A>& call, const ChunkRows& rows, const ChunkLogits& logits) {
  const Scratch& s = call.scratch;
  const float beta = rows.first > 0 || (call.a.accumulate && !s.dweight) ? 1.0f : 0.0f;
  if (s.scale) find_scale(call.options, rows, s.facts, beta, s.scale, call.exec);
  const DxOutputs outputs{!s.dx || s.dbias, s.dx, call.plan.dtype, call.plan.parts};
  write_gradient(call.options, rows, logits, s.facts, s.scale, outputs, call.exec);
  if (s.dbias) {
    const tc_tensor dbias = vector_of(s.dbias, logits.line);
    sum_columns({{logits.data, &dbias}}, rows.size, logits.line, rows.first > 0, call.exec);
  }
  const GemmInput dx{s.dx ? static_cast<const void*>(s.dx) : logits.data, logits.line};
  if (given(call.a.dhidden)) make_dhidden(call, rows, dx);
  if (given(call.a.dweight)) add_dweight(call, rows, dx, beta);
}

// look(rows, logits) leaves the facts about a chunk's rows.
template <class A, class F>
void for_each_chunk(const Call<A>& call, F&& look) {
  const A& a = call.a;
  const Scratch& s = call.scratch;
  const ChunkLogits logits{s.logits, s.bias, gpu_line(call.options.classes)};
  // Once even without a row: the gradients of the parameters are then 0.
  for (int64_t first = 0; first == 0 || first < call.options.target.count(); first += call.plan.chunk) {
    const ChunkRows rows{s.valid, s.valid_count, first, call.plan.chunk};
    make_logits(call, rows, logits);
    look(rows, logits);
    if (wants_gradients(a)) add_gradients(call, rows, logits);
  }
  if (given(a.dhidden)) clear_ignored(call.options, a.dhidden, call.exec);
  if (s.dbias) convert(vector_of(s.dbias, call.options.classes), a.dbias, a.accumulate != 0, call.exec);
  if (s.dweight) convert(call.dweight, a.dweight, a.accumulate != 0, call.exec);
}

template <class A>
size_t workspace(const char* pass, const A& a, const tc_exec& exec) {
  Arena counting;
  carve(a, plan_gpu(pass, a, exec), counting);
  return counting.used();
}

constexpr const char* kForward = "linear_cross_entropy_forward";
constexpr const char* kBackward = "linear_cross_entropy_backward";

}  // namespace

size_t forward_cuda_workspace(const Forward& a, const tc_exec& exec) { return workspace(kForward, a, exec); }
size_t backward_cuda_workspace(const Backward& a, const tc_exec& exec) { return workspace(kBackward, a, exec); }

void forward_cuda(const Forward& a, const tc_exec& exec) {
  const DeviceGuard device(a.hidden);
  const Call<Forward> call = begin(kForward, a, exec);
  const Scratch& s = call.scratch;
  const auto row_values = [&](const tc_tensor& output, float* scratch) {
    return values_of<float>(scratch ? vector_of(scratch, element_count(a.target)) : output);
  };
  const RowOutputs outputs{row_values(a.loss, s.loss), row_values(a.z_loss_part, s.z_loss_part),
                           values_of<float>(a.row_max), values_of<float>(a.row_log_sum)};
  clear_ignored(call.options, outputs, exec);
  for_each_chunk(call, [&](const ChunkRows& rows, const ChunkLogits& logits) {
    look_at_logits(call.options, rows, logits, values_of<const float>(a.dloss), outputs, s.facts, exec);
  });
  const bool is_reduced = a.reduction != TC_REDUCTION_NONE;
  reduce_rows(call.options, {s.loss, static_cast<float*>(is_reduced ? a.loss.data : nullptr)},
              {s.z_loss_part, static_cast<float*>(is_reduced ? a.z_loss_part.data : nullptr)},
              static_cast<int64_t*>(a.valid_count.data), exec);
}

void backward_cuda(const Backward& a, const tc_exec& exec) {
  const DeviceGuard device(a.hidden);
  const Call<Backward> call = begin(kBackward, a, exec);
  for_each_chunk(call, [&](const ChunkRows& rows, const ChunkLogits&) {
    recall_rows(call.options, rows, values_of<const float>(a.row_max), values_of<const float>(a.row_log_sum),
                values_of<const float>(a.dloss), call.scratch.facts, exec);
  });
}

}  // namespace tc::ops::linear_cross_entropy
