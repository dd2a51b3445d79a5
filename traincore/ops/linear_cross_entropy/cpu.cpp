// CPU kernels of linear cross entropy: the products are cpu/gemm's, the rows of logits between them cpu/loss-inl.h's,
// which is compiled once per SIMD target; the best one is chosen at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "traincore/ops/linear_cross_entropy/cpu.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "traincore/core/dispatch.h"
#include "traincore/cpu/gemm.h"
#include "traincore/cpu/loss-inl.h"
#include "traincore/cpu/parallel.h"
#include "traincore/cpu/vector.h"
#include "traincore/ops/linear_cross_entropy/plan.h"

HWY_BEFORE_NAMESPACE();
namespace tc::ops::linear_cross_entropy::HWY_NAMESPACE {
namespace {

using namespace tc::HWY_NAMESPACE;  // NOLINT(google-build-using-namespace): the SIMD vocabulary of this target

// f(row, logits, LossRows) for each row of a chunk: where it is in the tensors, and its logits, in parallel.
template <class F>
void for_each_row(const LossOptions& o, const Chunk& chunk, bool gradients, int threads, F&& f) {
  with_value<false, true>("softcap", o.softcap > 0, [&]<bool kCapped>() {
    const int64_t block = rows_per_block(chunk.count, chunk.classes);
    parallel_blocks(chunk.count, block, threads, [&](int64_t begin, int64_t end) HWY_ATTR {
      const LossRows<float, kCapped> rows(o, chunk.classes, gradients, false);
      for (int64_t i = begin; i < end; ++i) f(chunk.rows[i], chunk.logits + i * line(chunk.classes), rows);
    });
  });
}

void forward(const tcx_linear_cross_entropy_forward_args& a, const LossOptions& o, const Chunk& chunk,
             const tc_tensor& row_loss, const tc_tensor& row_z_loss_part, const tc_exec& exec) {
  const Indices targets(a.target);
  const auto dloss = values_of<const float>(a.dloss);
  const LossOutputs outputs(row_loss, row_z_loss_part, a);
  const bool gradients = wants_gradients(a);
  for_each_row(o, chunk, gradients, exec.threads, [&](int64_t r, float* x, const auto& rows) HWY_ATTR {
    outputs.write(r, rows.forward(x, targets[r], dloss.data ? *dloss[r] : 1.0, gradients ? x : nullptr));
  });
}

void backward(const tcx_linear_cross_entropy_backward_args& a, const LossOptions& o, const Chunk& chunk,
              const tc_exec& exec) {
  const Indices targets(a.target);
  const auto dloss = values_of<const float>(a.dloss);
  const SavedLogSumExp saved(a);
  for_each_row(o, chunk, false, exec.threads, [&](int64_t r, float* x, const auto& rows) HWY_ATTR {
    rows.backward(x, targets[r], saved[r], *dloss[r], x);
  });
}

}  // namespace
}  // namespace tc::ops::linear_cross_entropy::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tc::ops::linear_cross_entropy {
namespace {

int64_t list_valid(const tc_tensor& target, int64_t ignore_index, int64_t* valid) {
  const Indices targets(target);
  int64_t count = 0;
  for (int64_t r = 0; r < targets.count(); ++r)
    if (targets[r] != ignore_index) valid[count++] = r;
  return count;
}

GemmInput matrix(const float* data, int64_t stride) { return {data, TC_DTYPE_F32, stride, 1}; }
GemmInput matrix(const tc_tensor& t) { return {t.data, t.dtype, t.stride[0], 1}; }

// The chunk's hidden rows in f32, and their logits.
template <class A>
void make_logits(const A& a, const float* bias, const Chunk& c, int threads) {
  const AnyRows hidden(a.hidden);
  parallel_blocks(c.count, rows_per_block(c.count, c.width), threads, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      widen(a.hidden.dtype, hidden.at(c.rows[i]), c.width, c.hidden + i * line(c.width));
  });
  const auto add_bias = [&](const GemmTile& t) {
    for (int64_t i = 0; i < t.rows; ++i)
      for (int64_t j = 0; j < t.cols; ++j) t.values[i * t.stride + j] += bias[t.col + j];
  };
  const GemmEpilogue epilogue = add_bias;
  run_gemm({.m = c.count,
            .n = c.classes,
            .k = c.width,
            .a = matrix(c.hidden, line(c.width)),
            .b = matrix(a.weight).transposed(),
            .c = {c.logits, TC_DTYPE_F32, line(c.classes)},
            .epilogue = bias ? &epilogue : nullptr},
           threads);
}

// dbias += the sum over the chunk's rows, in order.
void add_dbias(const Chunk& c, float* dbias, int threads) {
  constexpr int64_t kColumns = 1024;
  parallel_blocks(c.classes, kColumns, threads, [&](int64_t begin, int64_t end) {
    float sum[kColumns] = {};
    for (int64_t i = 0; i < c.count; ++i) {
      const float* const dlogits = c.logits + i * line(c.classes) + begin;
      for (int64_t j = 0; j < end - begin; ++j) sum[j] += dlogits[j];
    }
    for (int64_t j = 0; j < end - begin; ++j) dbias[begin + j] += sum[j];
  });
}

// dweight = dlogits^T hidden + beta dweight.
void add_dweight(const Chunk& c, const GemmOutput& dweight, float beta, int threads) {
  run_gemm({.m = c.classes,
            .n = c.width,
            .k = c.count,
            .a = matrix(c.logits, line(c.classes)).transposed(),
            .b = matrix(c.hidden, line(c.width)),
            .c = dweight,
            .beta = beta},
           threads);
}

// Over the hidden rows, and then into their places.
template <class A>
void make_dhidden(const A& a, const Chunk& c, int threads) {
  run_gemm({.m = c.count,
            .n = c.width,
            .k = c.classes,
            .a = matrix(c.logits, line(c.classes)),
            .b = matrix(a.weight),
            .c = {c.hidden, TC_DTYPE_F32, line(c.width)}},
           threads);
  const AnyRows dhidden(a.dhidden);
  parallel_blocks(c.count, rows_per_block(c.count, c.width), threads, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      narrow(a.dhidden.dtype, c.hidden + i * line(c.width), c.width, dhidden.at(c.rows[i]));
  });
}

template <class A>
void clear_ignored(const A& a) {
  const Indices targets(a.target);
  const AnyRows dhidden(a.dhidden);
  for (int64_t r = 0; r < targets.count(); ++r)
    if (targets[r] == a.ignore_index)
      std::memset(dhidden.at(r), 0, static_cast<size_t>(dhidden.cols()) * tc_dtype_size(a.dhidden.dtype));
}

// dweight, where it was summed apart.
void round_dweight(const tc_tensor& dweight, const float* sums, int threads) {
  const AnyRows rows(dweight);
  parallel_blocks(rows.count(), rows_per_block(rows.count(), rows.cols()), threads, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) narrow(dweight.dtype, sums + r * rows.cols(), rows.cols(), rows.at(r));
  });
}

// differentiate(chunk) has each chunk's logits, and leaves dlogits in their place where gradients are wanted.
template <class A, class F>
void for_each_chunk(const A& a, const Parts& parts, int threads, F&& differentiate) {
  const Extents e = extents_of(a);
  const int64_t valid = list_valid(a.target, a.ignore_index, parts.valid), size = chunk_rows(e);
  const float* const bias = as_f32(a.bias, parts.bias);
  const GemmOutput dweight = parts.dweight ? GemmOutput{parts.dweight, TC_DTYPE_F32, e.width}
                                           : GemmOutput{a.dweight.data, TC_DTYPE_F32, a.dweight.stride[0]};
  if (parts.dbias) std::fill_n(parts.dbias, e.classes, 0.0f);
  // Once even without a valid row: the gradients of the parameters are then 0.
  for (int64_t first = 0; first == 0 || first < valid; first += size) {
    const Chunk c{parts.valid + first, std::min(size, valid - first), e.width, e.classes, parts.hidden, parts.logits};
    make_logits(a, bias, c, threads);
    differentiate(c);
    if (given(a.dweight)) add_dweight(c, dweight, first > 0 || a.accumulate ? 1 : 0, threads);
    if (parts.dbias) add_dbias(c, parts.dbias, threads);
    if (given(a.dhidden)) make_dhidden(a, c, threads);
  }
  if (given(a.dhidden)) clear_ignored(a);
  if (parts.dweight) round_dweight(a.dweight, parts.dweight, threads);
  if (parts.dbias) store_as(a.dbias, parts.dbias, a.accumulate != 0);
}

// What forward leaves of an ignored row.
void clear_ignored_values(const tcx_linear_cross_entropy_forward_args& a,
                          std::initializer_list<const tc_tensor*> tensors) {
  const Indices targets(a.target);
  for (const tc_tensor* t : tensors) {
    const auto values = values_of<float>(*t);
    for (int64_t r = 0; given(*t) && r < targets.count(); ++r)
      if (targets[r] == a.ignore_index) *values[r] = 0;
  }
}

}  // namespace

HWY_EXPORT(forward);
HWY_EXPORT(backward);
void forward_cpu(const tcx_linear_cross_entropy_forward_args& a, const tc_exec& exec) {
  const Scratch scratch(carve_forward, a, exec);
  const int64_t rows = element_count(a.target);
  const LossOptions o = loss_options("linear_cross_entropy_forward", a, extents_of(a).classes,
                                     as_f32(a.class_weight, scratch->parts.class_weight));
  const tc_tensor loss = row_values(a.reduction, a.loss, scratch->loss, rows);
  const tc_tensor z_loss_part = row_values(a.reduction, a.z_loss_part, scratch->z_loss_part, rows);
  clear_ignored_values(a, {&loss, &z_loss_part, &a.row_max, &a.row_log_sum});
  for_each_chunk(a, scratch->parts, exec.threads, [&](const Chunk& chunk) {
    HWY_DYNAMIC_DISPATCH(forward)(a, o, chunk, loss, z_loss_part, exec);
  });
  reduce_rows(a.reduction, o, scratch->loss, rows, a.loss);
  reduce_rows(a.reduction, o, scratch->z_loss_part, rows, a.z_loss_part);
  if (given(a.valid_count)) *static_cast<int64_t*>(a.valid_count.data) = o.valid_count;
}
void backward_cpu(const tcx_linear_cross_entropy_backward_args& a, const tc_exec& exec) {
  const Scratch parts(carve_backward, a, exec);
  const LossOptions o = loss_options("linear_cross_entropy_backward", a, extents_of(a).classes,
                                     as_f32(a.class_weight, parts->class_weight));
  for_each_chunk(a, *parts, exec.threads, [&](const Chunk& chunk) {
    HWY_DYNAMIC_DISPATCH(backward)(a, o, chunk, exec);
  });
}

}  // namespace tc::ops::linear_cross_entropy
#endif
