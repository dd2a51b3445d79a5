// Linear cross entropy on the GPU: from a chunk's logits to losses, and to the logits' gradient.
#include "traincore/core/dispatch.h"
#include "traincore/cuda/row_launch.h"
#include "traincore/cuda/softmax.cuh"
#include "traincore/ops/linear_cross_entropy/cuda_plan.h"
#include "traincore/ops/linear_cross_entropy/cuda_steps.cuh"

namespace tc::ops::linear_cross_entropy {
namespace {

using namespace tc::cuda;  // NOLINT(google-build-using-namespace): the vocabulary of GPU kernels

// A row of logits with the bias, read wherever it is used. Past the last class there are -inf, in scratch that nobody wrote.
template <int kVec>
struct BiasedRow {
  const float *x, *bias;
  int classes;
  __device__ __forceinline__ Floats<kVec> operator()(int c, int = 0) const {
    auto values = Pack<float, kVec>::load(x + c).f32();
    if (bias) add_to(values, Pack<float, kVec>::load(bias + c).f32());
    return floats<kVec>([&](int j) { return c + j < classes ? values[j] : -kInfinity; });
  }
  __device__ __forceinline__ Pack<float, kVec> pack(int c, int = 0) const {
    return Pack<float, kVec>::from((*this)(c));
  }
};
template <int kVec>
__device__ __forceinline__ BiasedRow<kVec> row_of(const LossOptions& o, const ChunkLogits& logits, int64_t i) {
  return {logits.data + i * logits.line, logits.bias, o.classes};
}

// Of a valid row.
__device__ __forceinline__ RowFacts facts_of(const LossOptions& o, int64_t target, float max, float log_sum,
                                             float inverse_sum, double dloss) {
  const bool is_class = o.is_class(target);
  if (!is_class && o.errors) atomicOr(o.errors, uint32_t{TC_BAD_TARGET});
  return {max, log_sum, inverse_sum, float(dloss), o.weight(target), is_class ? int32_t(target) : -1};
}

struct LookArgs {
  LossOptions options;
  ChunkRows rows;
  ChunkLogits logits;
  Rows<const float> dloss;
  RowOutputs outputs;
  RowFacts* facts;
};

// A block a row, whose last vector may be filled up with -inf.
template <class Tile, bool kIsCapped>
__global__ void __launch_bounds__(Tile::kMostThreads) look_kernel(const __grid_constant__ LookArgs a) {
  typename Tile::Group group;
  const LossOptions& o = a.options;
  constexpr int kVec = Tile::template kVec<float>;
  const Columns<Tile, float> columns(group, (o.classes + kVec - 1) / kVec * kVec);
  const double inverse = inverse_normalizer(o);
  const int64_t i = blockIdx.x, r = a.rows[i];
  if (r < 0) return;
  const auto row = row_of<kVec>(o, a.logits, i);
  const SoftmaxStats stats = softmax_stats(group, columns, o.label_smoothing > 0, Logit<float, kIsCapped>(o), row);
  if (group.lane() != 0) return;
  const int64_t target = o.target[r];
  const float none = __builtin_nanf("");  // a row of -inf alone is NaN
  const bool is_empty = !(stats.sum > 0);
  const double dloss = (a.dloss.data ? double(*a.dloss[r]) : 1.0) * inverse;
  const RowFacts facts =
      facts_of(o, target, stats.max, is_empty ? none : logf(stats.sum), is_empty ? none : 1 / stats.sum, dloss);
  const float x_target = row_of<1>(o, a.logits, i)(::max(facts.target, 0))[0];
  a.outputs.store(r, row_loss<kIsCapped>(o, facts.weight, x_target, facts.max, facts.log_sum, stats.shifted));
  a.facts[i] = facts;
}

constexpr int kRecallThreads = 128;

struct RecallArgs {
  LossOptions options;
  ChunkRows rows;
  Rows<const float> row_max, row_log_sum, dloss;
  RowFacts* facts;
};
// A thread a row.
__global__ void __launch_bounds__(kRecallThreads) recall_kernel(const __grid_constant__ RecallArgs a) {
  const double inverse = inverse_normalizer(a.options);
  const int64_t i = int64_t(blockIdx.x) * kRecallThreads + threadIdx.x;
  const int64_t r = i < a.rows.size ? a.rows[i] : -1;
  if (r < 0) return;
  const float log_sum = *a.row_log_sum[r];
  a.facts[i] = facts_of(a.options, a.options.target[r], *a.row_max[r], log_sum, expf(-log_sum),
                        *a.dloss[r] * inverse);  // a scalar dloss is every row's
}

template <bool kIsCapped>
__device__ __forceinline__ auto gradient_of(const LossOptions& o, const RowFacts& facts, float inverse_sum) {
  const Logit<float, kIsCapped> logit(o);
  return LossGradient(o, logit, ExpOfLogit<float>{logit.gain, facts.max}, facts.weight, facts.max, facts.log_sum,
                      inverse_sum, facts.dloss);
}

constexpr int kScaleThreads = 1024;

// One block.
__global__ void __launch_bounds__(kScaleThreads)
    scale_kernel(const LossOptions o, const ChunkRows rows, const RowFacts* facts, float beta, DxScale* scale) {
  constexpr int kLargest = 14;  // exponent: a quarter of what f16 holds
  float bound = 0;
  for (int64_t i = threadIdx.x; i < rows.size && rows[i] >= 0; i += kScaleThreads) {
    const float of_row = gradient_of<false>(o, facts[i], 1).bound();
    if (of_row < kInfinity) bound = fmaxf(bound, of_row);  // a row that is not finite stays what it is
  }
  Block block;
  bound = max(block, bound);
  if (threadIdx.x != 0) return;
  int exponent = 0;
  frexpf(bound, &exponent);
  const int shift = bound > 0 ? ::min(::max(kLargest - exponent, -126), 126) : 0;
  *scale = {ldexpf(1, -shift), beta, ldexpf(1, shift)};
}

constexpr int kGradientThreads = 256, kGradientVec = 4, kGradientVectors = 8;
constexpr int kPiece = kGradientThreads * kGradientVec * kGradientVectors;

struct GradientArgs {
  LossOptions options;
  ChunkRows rows;
  ChunkLogits logits;
  const RowFacts* facts;
  const DxScale* scale;
  DxOutputs outputs;
  int64_t pieces;  // of a row
};

// The parts of dx in turn: each is what those before it left, rounded.
template <class T>
__device__ __forceinline__ void store_parts(const GradientArgs& a, int64_t i, int c, Floats<kGradientVec> rest) {
  T* const parts = static_cast<T*>(a.outputs.parts);
#pragma unroll
  for (int part = 0; part < parts_of(dtype_of<T>); ++part) {
    if (part >= a.outputs.count) return;
    const auto pack = Pack<T, kGradientVec>::from(rest);
    pack.store(parts + (part * a.rows.size + i) * a.logits.line + c);
    const auto stored = pack.f32();
#pragma unroll
    for (int j = 0; j < kGradientVec; ++j) rest[j] = fabsf(stored[j]) == kInfinity ? 0.0f : rest[j] - stored[j];
  }
}

// A block a piece of a row. T: of the parts, or float if there are none.
template <class T, bool kIsCapped>
__global__ void __launch_bounds__(kGradientThreads) gradient_kernel(const __grid_constant__ GradientArgs a) {
  const LossOptions& o = a.options;
  const int64_t i = blockIdx.x / a.pieces;
  const int first = int(blockIdx.x % a.pieces) * kPiece + int(threadIdx.x) * kGradientVec;
  const bool is_there = a.rows[i] >= 0;
  const RowFacts facts = is_there ? a.facts[i] : RowFacts{};
  const float scale = a.scale ? a.scale->scale : 1.0f;
  const auto gradient = gradient_of<kIsCapped>(o, facts, facts.inverse_sum);
  const auto row = row_of<kGradientVec>(o, a.logits, i);
#pragma unroll 2
  for (int v = 0; v < kGradientVectors; ++v) {
    const int c = first + v * kGradientThreads * kGradientVec;
    if (c >= a.logits.line) return;
    auto dx = floats<kGradientVec>([](int) { return 0.0f; });
    if (is_there && c < o.classes) {
      const auto x = row(c);
      dx = floats<kGradientVec>([&](int j) { return c + j < o.classes ? gradient(x[j]) : 0.0f; });
      if (facts.target >= c && facts.target < c + kGradientVec)
        dx = floats<kGradientVec>([&](int j) { return c + j == facts.target ? gradient.of_target(x[j]) : dx[j]; });
    }
    if (a.outputs.in_place) Pack<float, kGradientVec>::from(dx).store(a.logits.data + i * a.logits.line + c);
    if constexpr (sizeof(T) == 2) store_parts<T>(a, i, c, floats<kGradientVec>([&](int j) { return dx[j] * scale; }));
  }
}

}  // namespace

void look_at_logits(const LossOptions& options, const ChunkRows& rows, const ChunkLogits& logits,
                    const Rows<const float>& dloss, const RowOutputs& outputs, RowFacts* facts, const tc_exec& exec) {
  constexpr int kWideRow = 4096;
  const LookArgs args{options, rows, logits, dloss, outputs, facts};
  const Grid grid{rows.size, options.classes >= kWideRow ? 512 : 128};
  // What fills up a vector must not change the sum of u, nor be brought back by the soft cap.
  const bool may_fill = options.softcap == 0 && options.label_smoothing == 0;
  with_value<false, true>("vectors", may_fill || options.classes % 4 == 0, [&]<bool kIsWide>() {
    with_value<false, true>("softcap", options.softcap > 0, [&]<bool kIsCapped>() {
      launch<look_kernel<RowTile<Block, kIsWide, 0>, kIsCapped>>("linear_cross_entropy_look", grid, exec, args);
    });
  });
}

void recall_rows(const LossOptions& options, const ChunkRows& rows, const Rows<const float>& row_max,
                 const Rows<const float>& row_log_sum, const Rows<const float>& dloss, RowFacts* facts,
                 const tc_exec& exec) {
  launch<recall_kernel>("linear_cross_entropy_recall", {blocks_for(rows.size, kRecallThreads), kRecallThreads}, exec,
                        RecallArgs{options, rows, row_max, row_log_sum, dloss, facts});
}

void find_scale(const LossOptions& options, const ChunkRows& rows, const RowFacts* facts, float beta, DxScale* scale,
                const tc_exec& exec) {
  launch<scale_kernel>("linear_cross_entropy_scale", {1, kScaleThreads}, exec, options, rows, facts, beta, scale);
}

void write_gradient(const LossOptions& options, const ChunkRows& rows, const ChunkLogits& logits, const RowFacts* facts,
                    const DxScale* scale, const DxOutputs& outputs, const tc_exec& exec) {
  const int64_t pieces = (logits.line + kPiece - 1) / kPiece;
  const GradientArgs args{options, rows, logits, facts, scale, outputs, pieces};
  with_type(FloatTypes{}, outputs.parts ? outputs.dtype : int32_t{TC_DTYPE_F32}, [&]<class T>() {
    with_value<false, true>("softcap", options.softcap > 0, [&]<bool kIsCapped>() {
      launch<gradient_kernel<T, kIsCapped>>("linear_cross_entropy_gradient",
                                            {blocks_for(rows.size * pieces, 1), kGradientThreads}, exec, args);
    });
  });
}

}  // namespace tc::ops::linear_cross_entropy
