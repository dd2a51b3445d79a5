// W [k, n]: sums over k of strips of columns, a strip by a block or by a cluster of blocks.
#include "traincore/core/dispatch.h"
#include "traincore/cuda/launch.h"
#include "traincore/cuda/overlap.cuh"
#include "traincore/ops/norm_gemv/plan.h"
// After plan.h.
#include "traincore/ops/norm_gemv/cuda_gemv.cuh"

namespace tc::ops::norm_gemv {
namespace {

struct StripsArgs {
  GemvArgs gemv;
  int32_t cluster, lanes, slots, share, part;
};

// A thread's vector of columns, and its way down W: kGpuLoads rows at a time, past those of the other slots.
template <class T, int kVec>
class Column {
 public:
  int matrix = 0, lane, slot;
  int64_t first;  // column of the strip
  __device__ __forceinline__ explicit Column(const StripsArgs& a)
      : lane(int(threadIdx.x) % a.lanes), slot(int(threadIdx.x) / a.lanes) {
    const int64_t width = int64_t(a.lanes) * kVec;
    first = int64_t(blockIdx.x / unsigned(a.cluster)) * width;
    for (int64_t outputs; outputs = a.gemv.matrices[matrix].outputs, first >= outputs; ++matrix)
      first -= (outputs + width - 1) / width * width;
  }
  __device__ __forceinline__ bool sums(const StripsArgs& a) const {
    return slot < a.slots && first + lane * kVec < a.gemv.matrices[matrix].outputs;
  }
  // From row `begin` of W to row `end`.
  __device__ __forceinline__ void start(const StripsArgs& a, int begin, int end) {
    const GpuMatrix& m = a.gemv.matrices[matrix];
    stride_ = m.stride, step_ = a.slots * kGpuLoads;
    row_ = begin + slot * kGpuLoads, end_ = sums(a) ? end : 0;
    next_ = static_cast<const T*>(m.w) + row_ * stride_ + first + lane * kVec;
  }
  __device__ __forceinline__ void load(Loads<T, kVec>& to) {
#pragma unroll
    for (int r = 0; r < kGpuLoads; ++r)
      to[r] = row_ + r < end_ ? Pack<T, kVec>::load_once(next_ + r * stride_) : Pack<T, kVec>{};
    row_ += step_, next_ += step_ * stride_;
  }
  // What the first loads will be, as far as the second-level cache: a thread for every row.
  __device__ __forceinline__ void send_for(const StripsArgs& a, int stages) const {
    const int64_t columns = min(int64_t(a.lanes) * kVec, a.gemv.matrices[matrix].outputs - first);
    const int rows = kVec > 1 && lane == 0 ? stages * kGpuLoads : 0;
    for (int i = 0; i < rows; ++i)
      if (const int64_t row = i / kGpuLoads * step_ + i % kGpuLoads; row_ + row < end_)
        cuda::send_for_once(next_ + row * stride_, int(columns * sizeof(T)));
  }

 private:
  const T* next_ = nullptr;
  int64_t stride_ = 0;
  int step_ = 0, row_ = 0, end_ = 0;
};

// sums[m] += v's row m at kGpuLoads places times as many rows of W.
template <class T, int kVec, int kRows>
__device__ __forceinline__ void add_products(const Loads<T, kVec>& w, const float* v, int stride,
                                             Floats<kVec> (&sums)[kRows]) {
  constexpr int kPart = kRows == 1 ? kGpuLoads : 8 / kRows;  // places at once, so that v's values find registers
#pragma unroll
  for (int from = 0; from < kGpuLoads; from += kPart) {
    Floats<kPart> right[kRows];
#pragma unroll
    for (int m = 0; m < kRows; ++m) right[m] = Pack<float, kPart>::load(v + m * stride + from).f32();
#pragma unroll
    for (int r = 0; r < kPart; ++r) {
      const auto left = w[from + r].f32();
#pragma unroll
      for (int m = 0; m < kRows; ++m)
#pragma unroll
        for (int j = 0; j < kVec; ++j) sums[m][j] = fmaf(left[j], right[m][r], sums[m][j]);
    }
  }
}

// Over the slots of the block, in order: totals[m, column].
template <class T, int kVec, int kRows>
__device__ __forceinline__ void sum_slots(const StripsArgs& a, const Column<T, kVec>& column,
                                          const Floats<kVec> (&sums)[kRows], float* parts, float* totals) {
  constexpr int kAtOnce = kRows < kGpuRowsAtOnce ? kRows : kGpuRowsAtOnce, kPart = kVec < 4 ? kVec : 4;
  const int width = a.lanes * kVec;
#pragma unroll
  for (int from = 0; from < kRows; from += kAtOnce) {
    __syncthreads();  // everyone is done with what stood here
    if (column.slot < a.slots)
#pragma unroll
      for (int m = 0; m < kAtOnce; ++m)
#pragma unroll
        for (int i = 0; i < kVec; i += kPart)
          Pack<float, kPart>::from(floats<kPart>([&](int j) {
            return sums[from + m][i + j];
          })).store(parts + (column.slot * kAtOnce + m) * width + column.lane * kVec + i);
    __syncthreads();
    for (int i = int(threadIdx.x); i < kAtOnce * width; i += kGpuThreads) {
      float total = 0;
      for (int s = 0; s < a.slots; ++s) total += parts[s * kAtOnce * width + i];
      totals[from * width + i] = total;
    }
  }
}

// Over the blocks of the cluster, in order, each block for some of the outputs.
template <class T, int kVec>
__device__ __forceinline__ void store_totals(const StripsArgs& a, const Column<T, kVec>& column, float* totals) {
  const int width = a.lanes * kVec, rank = int(blockIdx.x % unsigned(a.cluster));
  const GpuMatrix& matrix = a.gemv.matrices[column.matrix];
  const GpuNorm& norm = a.gemv.norm;
  const auto store = [&](auto&& total_of) {
    for (int i = rank * kGpuThreads + int(threadIdx.x); i < norm.rows * width; i += a.cluster * kGpuThreads)
      if (const int64_t c = column.first + i % width; c < matrix.outputs)
        matrix.y.store(norm.first + i / width, c, total_of(i));
  };
#if __CUDA_ARCH__ >= 900
  if (a.cluster > 1) {
    auto cluster = cooperative_groups::this_cluster();
    cluster.sync();
    store([&](int i) {
      float total = 0;
      for (int b = 0; b < a.cluster; ++b) total += cluster.map_shared_rank(totals, b)[i];
      return total;
    });
    return cluster.sync();  // nobody's memory goes before everyone has read it
  }
#endif
  __syncthreads();
  store([&](int i) { return totals[i]; });
}

template <class T, int kVec, int kRows>
__global__ void __launch_bounds__(kGpuThreads, 1) strips_kernel(const StripsArgs a) {
  constexpr int kStages = gpu_stages(kRows);
  extern __shared__ float4 memory[];
  float* const totals = reinterpret_cast<float*>(memory);
  float* const v = totals + kRows * a.lanes * kVec;
  Normalised<T, kRows, (kVec > 1), false, kGpuThreads> normalised(a.gemv.norm, v, a.part);
  Column<T, kVec> column(a);
  Floats<kVec> sums[kRows] = {};
  const int first = int(blockIdx.x % unsigned(a.cluster)) * a.share, last = min(first + a.share, a.gemv.norm.k);
  const int step = a.slots * kGpuLoads;
  for (int begin = first; begin < last; begin += a.part) {
    const int end = min(begin + a.part, last);
    const int steps = (end - begin + step * kStages - 1) / (step * kStages) * kStages;
    column.start(a, begin, end);
    column.send_for(a, kStages);
    if (begin == first) {
      wait_for_stream();
      let_next_begin();
    } else {
      __syncthreads();  // everyone is done with the part before
    }
    const Span span{begin, end, steps * step};
    normalised.ask(span);
    normalised.stage(span);
    __syncthreads();
    Loads<T, kVec> ring[kStages];
#pragma unroll
    for (int d = 0; d < kStages; ++d) column.load(ring[d]);
    if (column.slot >= a.slots) continue;
    const float* const mine = v + column.slot * kGpuLoads;
    for (int s = 0; s < steps; s += kStages)
#pragma unroll
      for (int d = 0; d < kStages; ++d) {
        add_products<T, kVec, kRows>(ring[d], mine + (s + d) * step, a.part, sums);
        column.load(ring[d]);
      }
  }
  sum_slots(a, column, sums, v, totals);
  store_totals(a, column, totals);
}

template <class T, int kVec>
void launch_strips(const StripsArgs& args, const StripsPlan& plan, const tc_exec& exec) {
  with_gpu_rows<kVec>(
      args.gemv.norm.rows, [&]<auto kRows>() {
        launch<strips_kernel<T, kVec, kRows>>(
            "norm_gemv_strips", {plan.blocks, kGpuThreads, plan.cluster, plan.shared, plan.overlaps, true}, exec, args);
      });
}

}  // namespace

void run_strips(const GemvArgs& gemv, const StripsPlan& plan, int32_t dtype, int32_t width, const tc_exec& exec) {
  const StripsArgs args{
      gemv, plan.cluster, plan.lanes, plan.slots(), static_cast<int32_t>(plan.share), static_cast<int32_t>(plan.part)};
  with_type(FloatTypes{}, dtype, [&]<class T>() {
    width == 1 ? launch_strips<T, 1>(args, plan, exec) : launch_strips<T, kWide<T>>(args, plan, exec);
  });
}

}  // namespace tc::ops::norm_gemv
