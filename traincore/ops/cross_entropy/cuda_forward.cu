// Cross entropy forward on the GPU, with dlogits on request: one pass over the logits, whose row stays in registers or
// shared memory where it fits, over a cluster of blocks if need be.
#include "traincore/core/arena.h"
#include "traincore/core/dispatch.h"
#include "traincore/cuda/loss.cuh"
#include "traincore/cuda/row_launch.h"
#include "traincore/cuda/softmax.cuh"
#include "traincore/ops/cross_entropy/cuda_plan.h"

namespace tc::ops::cross_entropy {
namespace {

using namespace tc::cuda;  // NOLINT(google-build-using-namespace): the vocabulary of GPU kernels

template <class T>
struct ForwardArgs {
  LossOptions options;
  Rows<const T> logits;
  Rows<T> dlogits;
  Rows<const float> dloss;
  RowOutputs outputs;
};

// What a row's loss and gradient are made of. sum: of exp(); correction: what its logarithm is off by; shifted: the sum of
// u - max, for label smoothing alone.
template <class Exp>
struct Distribution {
  Exp exp;
  float max, sum, correction, shifted;
};

// By what a row's gradient is multiplied.
template <class T>
struct RowScale {
  double inverse_normalizer;
  float alone;  // where there is no dloss
  __device__ __forceinline__ explicit RowScale(const ForwardArgs<T>& a)
      : inverse_normalizer(a.dlogits.data ? cuda::inverse_normalizer(a.options) : 0),
        alone(float(inverse_normalizer)) {}
  __device__ __forceinline__ float operator()(const ForwardArgs<T>& a, int64_t r) const {
    return a.dloss.data ? float(*a.dloss[r] * inverse_normalizer) : alone;
  }
};

// A row whose target counts. write(gradient, patch) leaves dlogits. A target that is no class makes the row NaN, and so
// does a row of -inf alone.
template <class T, bool kIsCapped, class Exp, class Group, class F>
__device__ __forceinline__ void valid_row(const ForwardArgs<T>& a, const Group& group, int64_t r, int64_t target,
                                          float x_target, const RowScale<T>& scale, const Distribution<Exp>& row,
                                          F&& write) {
  const LossOptions& o = a.options;
  const bool is_class = o.is_class(target);
  if (!is_class && o.errors && group.lane() == 0) atomicOr(o.errors, uint32_t{TC_BAD_TARGET});
  const bool is_empty = !(row.sum > 0);
  const float nan = __builtin_nanf(""), weight = o.weight(target);
  float log_sum = 0;  // of most warps only the z-loss takes it
  if (group.lane() < 32 || o.z_loss != 0) log_sum = is_empty ? nan : logf(row.sum) + row.correction;
  if (a.dlogits.data) {
    const LossGradient gradient(o, Logit<T, kIsCapped>(o), row.exp, weight, row.max, log_sum,
                                is_empty ? nan : 1 / row.sum, scale(a, r));
    write(gradient, is_class ? Patch{int(target), gradient.of_target(x_target)} : Patch{});
  }
  if (group.lane() != 0) return;
  a.outputs.store(r, row_loss<kIsCapped>(o, weight, x_target, row.max, log_sum, row.shifted));
}

// Read before dlogits, which may take the logits' place.
template <class T>
__device__ __forceinline__ T logit_of_target(const LossOptions& o, const T* logits, int64_t target) {
  return logits[o.is_class(target) ? target : 0];
}

template <class Tile, class T, bool kIsCapped>
__global__ void __launch_bounds__(Tile::kMostThreads) row_kernel(const ForwardArgs<T> a) {
  constexpr int kVec = Tile::template kVec<T>;
  typename Tile::Group group;
  const Columns<Tile, T> columns(group, a.logits.cols);
  const RowScale<T> scale(a);
  const Logit<T, kIsCapped> logit(a.options);
  for (int64_t r = group.first_row(); r < a.logits.count; r += group.row_stride()) {
    const int64_t target = a.options.target[r];
    if (target == a.options.ignore_index) {
      if (a.dlogits.data)
        columns.each([&](int c, int) { store<Tile>(a.dlogits[r], c, floats<kVec>([](int) { return 0.0f; })); });
      if (group.lane() == 0) a.outputs.store(r, {0, 0, 0, 0});
      continue;
    }
    const Kept<Tile, T> x(columns, a.logits[r]);
    const float x_target = to_f32(logit_of_target(a.options, a.logits[r], target));
    const SoftmaxStats stats = softmax_stats(group, columns, a.options.label_smoothing > 0, logit, x);
    const Distribution<ExpOfLogit<T>> row{{logit.gain, stats.max}, stats.max, stats.sum, 0, stats.shifted};
    valid_row<T, kIsCapped>(a, group, r, target, x_target, scale, row, [&](const auto& gradient, const Patch& patch) {
      T* const dlogits = a.dlogits[r];
      map_row(columns, x, dlogits, gradient);
      if (patch.column >= 0 && columns.has(patch.column))  // after its vector, which the same thread wrote
        dlogits[patch.column] = from_f32<T>(patch.value);
    });
  }
}

// What every lane of the warp loads from one place, once it is there: after put() another warp may write to that place.
template <class T>
__device__ __forceinline__ T arrived(T x) {
  uint32_t bits = 0;
  memcpy(&bits, &x, sizeof(T));
  bits = __shfl_sync(0xffffffffu, bits, 0);
  memcpy(&x, &bits, sizeof(T));
  return x;
}

// For rows that are held while they are taken in turn. What is held of logits of 16 bits that are not capped are their
// exponentials, which dlogits takes as they are; else they are taken again, as exact as their type.
template <class Tile, class T, bool kIsCapped, bool kIsSmoothed>
__global__ void __launch_bounds__(Tile::kMostThreads, kHeldThreadsPerSm / Tile::kMostThreads)
    row_held_kernel(const ForwardArgs<T> a) {
  constexpr bool kHoldsExp = sizeof(T) < sizeof(float) && !kIsCapped;
  using Group = typename Tile::Group;
  using InTurn = HeldRows<Tile, T, kSoftmaxTwoAhead.stages, 1>;
  constexpr int kVec = InTurn::Columns::kVec;
  Group group;
  const typename InTurn::Columns columns(group, a.logits.cols);
  InTurn rows(columns, -kInfinity);
  const int in_warp = columns.count_in_warp();
  const RowScale<T> scale(a);
  const LossOptions& o = a.options;
  const Logit<T, kIsCapped> logit(o);
  AllReduce<Group, kSoftmaxFacts<kIsSmoothed>, MergeSoftmax<T, kIsSmoothed>> known(group, rows.end(), {logit.gain});
  const Turns turns(group, a.logits.count, a.logits, a.dlogits);
  const RowsInTurn<const T> logits(a.logits, turns);
  const RowsInTurn<T> dlogits(a.dlogits, turns);
  ValuesInTurn to_load(group, turns, [&](int64_t r) { return o.target[r]; }), to_look_at = to_load;
  int64_t target = 0;
  T at_target{};
  float own_top = 0;
  Floats<kVec> held[InTurn::Columns::kVectors];
  for_rows_held(
      turns, columns, rows, known,
      [&](int turn) { return RowSources<T, 1>{{to_load[turn] == o.ignore_index ? nullptr : logits[turn]}}; },
      [&](int turn, int stage) {
        target = to_look_at[turn];
        // A vote, so that the compiler too knows that the warp stays together.
        if (!__any_sync(0xffffffffu, target != o.ignore_index)) return SoftmaxFacts<kIsSmoothed>{};
        const T* const x = logits[turn];
        at_target = logit_of_target(o, x, target);
        const auto facts = softmax_facts<kHoldsExp, kIsSmoothed, T>(group, columns, in_warp, logit,
                                                                    rows.row(columns, stage, 0, x), held);
        at_target = arrived(at_target);
        own_top = facts.at[0];
        return facts;
      },
      [&](const auto& facts) { return SoftmaxRow<T>(facts(), logit.gain); },
      [&](int turn, int stage, const SoftmaxRow<T>& row) {
        const int64_t r = turns.row(turn);
        const auto write = [&](const Patch& patch, auto&& f) {
          rows.write(columns, stage, dlogits[turn], patch,
                     [&](int, int v) { return floats<kVec>([&](int j) { return f(held[v][j]); }); });
        };
        if (target == o.ignore_index) {
          if (a.dlogits.data) write(Patch{}, [](float) { return 0.0f; });
          if (group.lane() == 0) a.outputs.store(r, {0, 0, 0, 0});
          return;
        }
        const Distribution<ExpBelow<T>> distribution{row.exp(), row.max(), row.sum, row.correction(), row.shifted};
        valid_row<T, kIsCapped>(a, group, r, target, to_f32(at_target), scale, distribution,
                                [&](const auto& gradient, const Patch& patch) {
                                  if constexpr (kHoldsExp) {
                                    const auto own_gradient = gradient.of_exps_times(row.factor(own_top));
                                    write(patch, [&](float e) { return own_gradient.of_exp(e); });
                                  } else {
                                    write(patch, [&](float value) { return gradient.of_value(value); });
                                  }
                                });
      });
}

struct Parts {
  TargetTotals* totals;
  float *loss, *z_loss_part;  // of rows, where they are then reduced
};
Parts carve(const tcx_cross_entropy_forward_args& a, Arena& arena) {
  const int64_t reduced = a.reduction == TC_REDUCTION_NONE ? 0 : element_count(a.target);
  return {arena.take<TargetTotals>(counts_targets(a) || given(a.valid_count) ? kTargetParts : 0),
          arena.take<float>(reduced), arena.take<float>(given(a.z_loss_part) ? reduced : 0)};
}

// Where rows leave a value: in the output, or in scratch if it is then reduced.
Rows<float> row_values(const tc_tensor& output, float* scratch, int64_t rows) {
  return values_of<float>(scratch ? tc_tensor_dense(scratch, TC_DTYPE_F32, 1, &rows) : output);
}

template <class T, bool kIsCapped>
void forward_rows(const ForwardArgs<T>& args, const RowsPlan& plan, const tc_exec& exec) {
  if (plan.ahead)
    return with_held_tile<T, kSoftmaxTwoAhead.vectors>(*plan.ahead, [&]<class Tile>() {
      with_value<false, true>("label_smoothing", args.options.label_smoothing > 0, [&]<bool kIsSmoothed>() {
        launch<row_held_kernel<Tile, T, kIsCapped, kIsSmoothed>>("cross_entropy_forward_held", grid_of(*plan.ahead),
                                                                 exec, args);
      });
    });
  with_row_tile(plan.rows, [&]<class Tile>() {
    launch<row_kernel<Tile, T, kIsCapped>>("cross_entropy_forward", grid_of(plan.rows), exec, args);
  });
}

}  // namespace

size_t forward_cuda_workspace(const tcx_cross_entropy_forward_args& a, const tc_exec&) {
  Arena counting;
  carve(a, counting);
  return counting.used();
}

void forward_cuda(const tcx_cross_entropy_forward_args& a, const tc_exec& exec) {
  require_exact_exponentials("cross_entropy_forward", a.logits.dtype, exec);
  const DeviceGuard device(a.logits);
  const RowsPlan plan = plan_forward(a, device.info());
  Arena arena(exec.workspace);
  const Parts parts = carve(a, arena);
  const LossOptions options = loss_options(a, parts.totals, exec);
  if (parts.totals) total_targets(options, parts.totals, exec);
  const int64_t rows = options.target.count();
  with_type(FloatTypes{}, a.logits.dtype, [&]<class T>() {
    const ForwardArgs<T> args{options,
                              rows_of<const T>(a.logits),
                              rows_of<T>(a.dlogits),
                              values_of<const float>(a.dloss),
                              {row_values(a.loss, parts.loss, rows), row_values(a.z_loss_part, parts.z_loss_part, rows),
                               values_of<float>(a.row_max), values_of<float>(a.row_log_sum)}};
    with_value<false, true>("softcap", a.softcap > 0,
                            [&]<bool kIsCapped>() { forward_rows<T, kIsCapped>(args, plan, exec); });
  });
  const bool is_reduced = a.reduction != TC_REDUCTION_NONE;
  reduce_rows(options, {parts.loss, static_cast<float*>(is_reduced ? a.loss.data : nullptr)},
              {parts.z_loss_part, static_cast<float*>(is_reduced ? a.z_loss_part.data : nullptr)},
              static_cast<int64_t*>(a.valid_count.data), exec);
}

}  // namespace tc::ops::cross_entropy
