// Device code of RMSNorm and LayerNorm backward: dx, and the sums over rows that the parameter gradients are.
#pragma once
#include "traincore/cuda/norm.cuh"
#include "traincore/cuda/norm_vector.cuh"
#include "traincore/cuda/overlap.cuh"
#include "traincore/cuda/row_sums.cuh"
#include "traincore/cuda/rows_ahead.cuh"

namespace tc::cuda {

template <class T>
struct NormBackwardArgs {
  Rows<const T> dy, x, residual, dresidual_out;
  Rows<const float> mean, rstd;
  Rows<T> dx;
  Gain gain;
  float *dweight, *dbias;   // [slabs, cols], or NULL
  bool sends_ahead, stays;  // of kernels that take rows ahead, as their plan has it
};

// What one row's numbers are about: (v - mean) rstd, and its gradient.
template <class Norm>
struct NormRow {
  float mean, rstd;
  template <class T>
  static __device__ __forceinline__ NormRow of(const NormBackwardArgs<T>& a, int64_t r) {
    return {Norm::kCentred ? *a.mean[r] : 0.0f, *a.rstd[r]};
  }
  __device__ __forceinline__ float centred(float v) const { return Norm::kCentred ? v - mean : v; }
  template <class T>
  __device__ __forceinline__ bool takes_one_step() const {
    return kMayTakeOneStep<Norm, T> && !is_far_from_0(mean, rstd);
  }
  // From sums over the row to what dx() takes off; `share` is 1 / cols.
  template <class T>
  __device__ __forceinline__ void to_means(float (&sums)[2], float share) const {
    sums[0] = rstd * rstd * (sums[0] * share);
    sums[1] *= share;
    if (takes_one_step<T>()) sums[1] = fmaf(-mean, sums[0], sums[1]);
  }
  template <bool kInOneStep>
  __device__ __forceinline__ float dx(float g, float w, float v, const float (&means)[2]) const {
    const float centred_gw = Norm::kCentred ? fmaf(g, w, -means[1]) : g * w;
    return rstd * fmaf(kInOneStep ? v : centred(v), -means[0], centred_gw);
  }
};

// dots: sums over the row of g w c, where c is v centred, and of g w.
template <class Norm, int N>
__device__ __forceinline__ void add_dots(const NormRow<Norm>& row, const Floats<N>& g, const Floats<N>& w,
                                         const Floats<N>& v, float (&dots)[2]) {
#pragma unroll
  for (int j = 0; j < N; ++j) {
    dots[0] = fmaf(g[j] * row.centred(v[j]), w[j], dots[0]);
    if constexpr (Norm::kCentred) dots[1] = fmaf(g[j], w[j], dots[1]);
  }
}
template <class Norm, class T, int N>
__device__ __forceinline__ Floats<N> normalised(const NormRow<Norm>& row, const Floats<N>& v) {
  const auto y = floats<N>([&](int j) { return row.centred(v[j]) * row.rstd; });
  if constexpr (Norm::kRounds)
    return rounded<T>(y);
  else
    return y;
}

// A row's dots, and its part of the parameter gradients, of one vector.
template <class Norm, class T, int N, class WeightSums, class BiasSums>
__device__ __forceinline__ void add_vector(const NormRow<Norm>& row, int i, const Floats<N>& g, const Floats<N>& w,
                                           const Floats<N>& v, float (&dots)[2], WeightSums& dweight, BiasSums& dbias) {
  add_dots(row, g, w, v, dots);
  if constexpr (Norm::kRounds)
    dweight.add(i, g, normalised<Norm, T>(row, v));
  else
    dweight.add(i, floats<N>([&](int j) { return g[j] * row.centred(v[j]); }), row.rstd);
  if constexpr (Norm::kCentred) dbias.add(i, g);
}

// What a slab kernel reads of its rows, the next of which are on their way into shared memory.
template <class Norm, class Tile, class T>
class SlabRows {
 public:
  static constexpr int kVec = Tile::template kVec<T>, kX = 1, kResidual = 2, kMore = 2 + Norm::kHasResidual;
  static constexpr bool kMayHaveMore = Tile::kTensors > kMore;
  using Sources = RowSources<T, kMore + kMayHaveMore>;
  RowsAhead<Tile, T, Tile::kStages, kMore + kMayHaveMore> ahead;
  bool has_more;
  __device__ __forceinline__ SlabRows(const NormBackwardArgs<T>& a, const Columns<Tile, T>& columns, const Turns& turns)
      : ahead(columns, 0, a.sends_ahead),
        has_more(kMayHaveMore && a.dresidual_out.data),
        dy_(a.dy, turns),
        x_(a.x, turns),
        residual_(a.residual, turns),
        more_(a.dresidual_out, turns) {}
  __device__ __forceinline__ Sources sources(int turn) const {
    Sources from{{sure(dy_[turn]), sure(x_[turn])}};
    if constexpr (Norm::kHasResidual) from.at[kResidual] = sure(residual_[turn]);
    if constexpr (kMayHaveMore) from.at[kMore] = has_more ? sure(more_[turn]) : nullptr;
    return from;
  }
  __device__ __forceinline__ Floats<kVec> dy(int stage, int i) const { return ahead(stage, 0, i); }
  __device__ __forceinline__ Floats<kVec> v(int stage, int i) const {
    auto value = ahead(stage, kX, i);
    if constexpr (Norm::kHasResidual) add_to(value, ahead(stage, kResidual, i));
    if constexpr (Norm::kHasResidual && Norm::kRounds) value = rounded<T>(value);
    return value;
  }
  __device__ __forceinline__ Floats<kVec> more(int stage, int i) const { return ahead(stage, kMore, i); }

 private:
  RowsInTurn<const T> dy_, x_, residual_, more_;
};

// Rows of a slab in turn; this block's part of the parameter gradients stays in registers, or one's in shared memory.
template <class Norm, class Tile, class T>
__global__ void __launch_bounds__(Tile::kMostThreads, Tile::kThreadsPerSm / Tile::kMostThreads)
    norm_slab_kernel(const NormBackwardArgs<T> a) {
  constexpr int kVec = Tile::template kVec<T>, kDots = 1 + Norm::kCentred;
  follow_stream();
  typename Tile::Group group;
  const Columns<Tile, T> columns(group, a.dy.cols);
  const Turns turns(group, a.dy.count, a.dy, a.x, a.residual, a.dresidual_out, a.dx);
  SlabRows<Norm, Tile, T> rows(a, columns, turns);
  const NormVector<Tile, T, false> gain(columns, a.gain, nullptr);
  RowSums<Tile, T> dweight(nullptr);
  RowSums<Tile, T, Tile::kSharesSums> dbias(rows.ahead.end());
  AllReduce<typename Tile::Group, kDots, AddUp<kDots>> dots(group, dbias.end(), {});
  const RowsInTurn<T> to(a.dx, turns);
  // Measured: blocks without a mean are faster by a load in every turn, all others by one in many.
  constexpr bool kLoadsAhead = Tile::Group::kIsBlock && !Norm::kCentred;
  const auto load_row = [&](int64_t r) { return NormRow<Norm>::of(a, r); };
  std::conditional_t<kLoadsAhead, ValuesAhead<decltype(load_row)>,
                     ValuesInTurn<typename Tile::Group, decltype(load_row)>>
      row_of(group, turns, load_row);
  const bool has_dx = a.dx.data != nullptr;
  const float share = 1.0f / float(columns.cols);
  NormRow<Norm> looked_at;
  struct Known {
    NormRow<Norm> row;
    float means[2];
  };
  for_rows_ahead(
      turns, columns, rows.ahead, dots, [&](int turn) { return rows.sources(turn); },
      [&](int turn, int stage) {
        looked_at = row_of[turn];
        float sums[2] = {0, 0};
        columns.all([&](int, int i) {
          add_vector<Norm, T>(looked_at, i, rows.dy(stage, i), gain(i), rows.v(stage, i), sums, dweight, dbias);
        });
        RowValues<kDots> own;
        memcpy(own.at, sums, sizeof own.at);
        group.template reduce_in_warp<Add>(own.at);
        return own;
      },
      [&](const auto& dots) {
        Known known{looked_at, {0, 0}};
        memcpy(known.means, dots().at, sizeof dots().at);
        known.row.template to_means<T>(known.means, share);
        return known;
      },
      [&](int turn, int stage, const Known& known) {
        if (!has_dx) return;
        T* const dx = to[turn];
        in_steps(known.row.template takes_one_step<T>(), [&]<bool kInOneStep>() {
          columns.all([&](int c, int i) {
            const auto g = rows.dy(stage, i), w = gain(i), value = rows.v(stage, i);
            auto gradient = floats<kVec>(
                [&](int j) { return known.row.template dx<kInOneStep>(g[j], w[j], value[j], known.means); });
            if (rows.has_more) add_to(gradient, rows.more(stage, i));
            if (c < columns.cols) store<Tile>(dx, c, gradient, Tile::kMayStay && a.stays);
          });
        });
      });
  if (a.dweight) dweight.store(group, columns, a.dweight);
  if constexpr (Norm::kCentred)
    if (a.dbias) dbias.store(group, columns, a.dbias);
}

// dx alone, rows of any width.
template <class Norm, class Tile, class T>
__global__ void __launch_bounds__(Tile::kMostThreads) norm_dx_kernel(const NormBackwardArgs<T> a) {
  constexpr int kVec = Tile::template kVec<T>;
  typename Tile::Group group;
  const Columns<Tile, T> columns(group, a.dy.cols);
  for (int64_t r = group.first_row(); r < a.dy.count; r += group.row_stride()) {
    const Kept<Tile, T> dy(columns, a.dy[r]);
    const KeptSum<Tile, T, Norm::kHasResidual> kept(columns, a.x[r], Norm::kHasResidual ? a.residual[r] : nullptr);
    const auto v = [&](int c, int i) {
      if constexpr (Norm::kHasResidual && Norm::kRounds)
        return rounded<T>(kept(c, i));
      else
        return kept(c, i);
    };
    const T* const dresidual_out = a.dresidual_out.data ? a.dresidual_out[r] : nullptr;
    const auto row = NormRow<Norm>::of(a, r);
    float sums[2] = {0, 0};
    columns.each([&](int c, int i) { add_dots(row, dy(c, i), a.gain.template load<kVec>(c), v(c, i), sums); });
    if constexpr (Norm::kCentred)
      group.template reduce<Add>(sums);
    else
      sums[0] = sum(group, sums[0]);
    row.template to_means<T>(sums, 1.0f / float(columns.cols));
    T* const dx = a.dx[r];
    in_steps(row.template takes_one_step<T>(), [&]<bool kInOneStep>() {
      columns.each([&](int c, int i) {
        const auto g = dy(c, i), value = v(c, i), w = a.gain.template load<kVec>(c);
        auto gradient = floats<kVec>([&](int j) { return row.template dx<kInOneStep>(g[j], w[j], value[j], sums); });
        if (dresidual_out) add_to(gradient, Pack<T, kVec>::load(dresidual_out + c).f32());
        store<Tile>(dx, c, gradient);
      });
    });
  }
}

// A slab's parameter gradients, kVec columns a thread; for rows that are not kept in registers.
template <class Norm, class T, int kVec>
__global__ void __launch_bounds__(256) norm_columns_kernel(const NormBackwardArgs<T> a, const ColumnTiles tiles) {
  const int64_t c = tiles.column(kVec);
  if (c >= a.dy.cols) return;
  auto dweight = floats<kVec>([](int) { return 0.0f; }), dbias = dweight;
  for (int64_t r = tiles.first_row(a.dy.count); r < tiles.end_row(a.dy.count); ++r) {
    const auto g = Pack<T, kVec>::load(a.dy[r] + c).f32();
    auto value = Pack<T, kVec>::load(a.x[r] + c).f32();
    if constexpr (Norm::kHasResidual) add_to(value, Pack<T, kVec>::load(a.residual[r] + c).f32());
    if constexpr (Norm::kHasResidual && Norm::kRounds) value = rounded<T>(value);
    const auto normal = normalised<Norm, T>(NormRow<Norm>::of(a, r), value);
#pragma unroll
    for (int j = 0; j < kVec; ++j) dweight[j] = fmaf(g[j], normal[j], dweight[j]);
    add_to(dbias, g);
  }
  const int64_t at = tiles.slab() * a.dy.cols + c;
#pragma unroll
  for (int j = 0; j < kVec; ++j) {
    if (a.dweight) a.dweight[at + j] = dweight[j];
    if constexpr (Norm::kCentred)
      if (a.dbias) a.dbias[at + j] = dbias[j];
  }
}

}  // namespace tc::cuda
