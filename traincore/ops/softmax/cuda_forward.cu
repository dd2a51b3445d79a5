// Softmax and log-softmax forward on the GPU: one pass over the row, which stays in registers where it fits.
#include "traincore/core/dispatch.h"
#include "traincore/cuda/overlap.cuh"
#include "traincore/cuda/row_launch.h"
#include "traincore/cuda/softmax.cuh"
#include "traincore/ops/softmax/cuda_plan.h"

namespace tc::ops::softmax {
namespace {

using namespace tc::cuda;  // NOLINT(google-build-using-namespace): the vocabulary of GPU kernels

template <class Tile, class T, bool kIsLog>
__global__ void __launch_bounds__(Tile::kMostThreads, 1024 / Tile::kMostThreads)
    forward_kernel(const Rows<const T> from, const Rows<T> to) {
  follow_stream();
  typename Tile::Group group;
  const Columns<Tile, T> columns(group, from.cols);
  for (int64_t r = group.first_row(); r < from.count; r += group.row_stride()) {
    const Kept<Tile, T> x(columns, from[r]);
    const SoftmaxStats stats = softmax_stats(group, columns, false, Plain{}, x);
    const float shift = stats.shift(), last = kIsLog ? stats.log_sum() : stats.inverse_sum();
    map_row(columns, x, to[r],
            [&](float value) { return kIsLog ? (value - shift) - last : exp_for<T>(value - shift) * last; });
    if constexpr (Tile::kVectors == 8) break;  // there is no tensor of more such rows than a grid has blocks
  }
}

// For rows that are held while they are taken in turn: what is held of 16 bits are exponentials, of f32 they are taken
// again. A row of -inf alone is 0, or -inf.
template <class Tile, class T, bool kIsLog>
__global__ void __launch_bounds__(Tile::kMostThreads, kHeldThreadsPerSm / Tile::kMostThreads)
    forward_held_kernel(const Rows<const T> from, const Rows<T> to) {
  constexpr bool kHoldsExp = sizeof(T) < sizeof(float) && !kIsLog;
  using Group = typename Tile::Group;
  using InTurn = HeldRows<Tile, T, kSoftmaxAhead.stages, 1>;
  constexpr int kVec = InTurn::Columns::kVec;
  follow_stream();
  Group group;
  const typename InTurn::Columns columns(group, from.cols);
  InTurn rows(columns, -kInfinity);
  AllReduce<Group, kSoftmaxFacts<false>, MergeSoftmax<T, false>> known(group, rows.end(), {1.0f});
  const int in_warp = columns.count_in_warp();
  const Turns turns(group, from.count, from, to);
  const RowsInTurn<const T> x(from, turns);
  const RowsInTurn<T> y(to, turns);
  float own_top = 0;
  Floats<kVec> held[InTurn::Columns::kVectors];
  for_rows_held(
      turns, columns, rows, known, [&](int turn) { return RowSources<T, 1>{{x[turn]}}; },
      [&](int turn, int stage) {
        const auto facts = softmax_facts<kHoldsExp, false, T>(group, columns, in_warp, Plain{},
                                                              rows.row(columns, stage, 0, x[turn]), held);
        own_top = facts.at[0];
        return facts;
      },
      [&](const auto& facts) { return SoftmaxRow<T>(facts(), 1.0f); },
      [&](int turn, int stage, const SoftmaxRow<T>& row) {
        const auto write = [&](auto&& f) {
          rows.write(columns, stage, y[turn], Patch{},
                     [&](int, int v) { return floats<kVec>([&](int j) { return f(held[v][j]); }); });
        };
        const bool is_empty = row.sum == 0;
        const float inverse = is_empty ? 0.0f : 1.0f / row.sum;
        if constexpr (kIsLog) {
          const float shift = is_empty ? 0.0f : row.top, last = is_empty ? 0.0f : row.log_sum();
          write([&](float value) { return (value - shift) - last; });
        } else if constexpr (kHoldsExp) {
          const float scale = row.factor(own_top) * inverse;
          write([&](float e) { return e * scale; });
        } else {
          write([&, exp = row.exp()](float value) { return exp(value) * inverse; });
        }
      });
}

template <bool kIsLog>
void forward(const char* name, const tc_tensor& x, const tc_tensor& y, const tc_exec& exec) {
  const DeviceGuard device(x);
  const RowsPlan plan = plan_forward(name, x, y, device.info());
  with_type(FloatTypes{}, x.dtype, [&]<class T>() {
    const auto from = rows_of<const T>(x);
    const auto to = rows_of<T>(y);
    if (plan.ahead)
      return with_held_tile<T, kSoftmaxAhead.vectors>(*plan.ahead, [&]<class Tile>() {
        launch<forward_held_kernel<Tile, T, kIsLog>>(name, following(grid_of(*plan.ahead)), exec, from, to);
      });
    with_row_tile<true>(plan.rows, [&]<class Tile>() {
      launch<forward_kernel<Tile, T, kIsLog>>(name, following(grid_of(plan.rows)), exec, from, to);
    });
  });
}

}  // namespace

void softmax_forward_cuda(const tcx_softmax_forward_args& a, const tc_exec& exec) {
  require_exact_exponentials("softmax_forward", a.x.dtype, exec);
  forward<false>("softmax_forward", a.x, a.y, exec);
}
void log_softmax_forward_cuda(const tcx_log_softmax_forward_args& a, const tc_exec& exec) {
  require_exact_exponentials("log_softmax_forward", a.x.dtype, exec);
  forward<true>("log_softmax_forward", a.x, a.y, exec);
}

}  // namespace tc::ops::softmax
