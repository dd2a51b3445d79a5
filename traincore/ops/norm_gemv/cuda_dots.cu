// W [n, k]: dot products, several rows of W at a time by a warp.
#include "traincore/core/dispatch.h"
#include "traincore/cuda/launch.h"
#include "traincore/cuda/overlap.cuh"
#include "traincore/ops/norm_gemv/plan.h"
// After plan.h.
#include "traincore/ops/norm_gemv/cuda_gemv.cuh"

namespace tc::ops::norm_gemv {
namespace {

// A warp's way through its rows of W, kGpuLoads at a time or as many as are left, of it or of a matrix.
struct Walk {
  int64_t row;  // of the matrix
  int left;     // rows from here on
  int matrix = 0, count = 0;
  __device__ __forceinline__ Walk(const GemvArgs& a, int64_t first, int64_t last)
      : row(first), left(int(last - first)) {
    settle(a);
  }
  __device__ __forceinline__ void next(const GemvArgs& a) {
    left -= count, row += count;
    settle(a);
  }

 private:
  __device__ __forceinline__ void settle(const GemvArgs& a) {
    while (left > 0 && row >= a.matrices[matrix].outputs) row -= a.matrices[matrix++].outputs;
    count = left > 0 ? int(min(min(int64_t(left), a.matrices[matrix].outputs - row), int64_t(kGpuLoads))) : 0;
  }
};

// The same way, a ring of steps ahead of the sums: what is loaded next.
template <class T, int kVec>
class Stream {
 public:
  __device__ __forceinline__ Stream(const GemvArgs& a, const Walk& walk, int begin, int end) : walk_(walk) {
    start(a, begin, end);
  }
  // Step d of the ring; beyond the columns and the rows: zeros.
  __device__ __forceinline__ void load(int d, Loads<T, kVec>& to) const {
    const int c = d * kGpuWarp * kVec;
#pragma unroll
    for (int r = 0; r < kGpuLoads; ++r)
      to[r] = r < walk_.count && c < left_ ? Pack<T, kVec>::load_once(next_ + c + r * stride_) : Pack<T, kVec>{};
  }
  // What the first steps will load, as far as the second-level cache: a thread for every row.
  __device__ __forceinline__ void send_for(int steps, int begin, int end) const {
    const int lane = int(threadIdx.x) % kGpuWarp, bytes = min(steps * kGpuWarp * kVec, end - begin) * int(sizeof(T));
    if (kVec > 1 && lane < walk_.count) cuda::send_for_once(next_ - lane * kVec + lane * stride_, bytes);
  }
  // To the next steps of these rows, or to the next rows once their columns have all been loaded.
  __device__ __forceinline__ void advance(const GemvArgs& a, int columns, int begin, int end) {
    next_ += columns, left_ -= columns;
    if (left_ + int(threadIdx.x) % kGpuWarp * kVec > 0) return;
    walk_.next(a);
    start(a, begin, end);
  }

 private:
  __device__ __forceinline__ void start(const GemvArgs& a, int begin, int end) {
    if (walk_.count == 0) return;
    const int c = begin + int(threadIdx.x) % kGpuWarp * kVec;
    const GpuMatrix& m = a.matrices[walk_.matrix];
    left_ = end - c, stride_ = m.stride;
    next_ = static_cast<const T*>(m.w) + walk_.row * stride_ + c;
  }
  Walk walk_;
  const T* next_ = nullptr;
  int64_t stride_ = 0;
  int left_ = 0;  // columns from next_ on
};

// sums[r][m] += W's row r times v's row m, over the columns that this thread has of a step.
template <class T, int kVec, int kRows>
__device__ __forceinline__ void add_products(const Loads<T, kVec>& w, const float* v, int stride,
                                             float (&sums)[kGpuLoads * kRows]) {
  constexpr int kPart = kVec < 4 ? kVec : 4;
#pragma unroll
  for (int part = 0; part < kVec / kPart; ++part) {
    Floats<kPart> right[kRows];
#pragma unroll
    for (int m = 0; m < kRows; ++m) right[m] = Pack<float, kPart>::load(v + m * stride + part * kGpuWarp * kPart).f32();
#pragma unroll
    for (int r = 0; r < kGpuLoads; ++r) {
      const auto left = w[r].f32();
#pragma unroll
      for (int m = 0; m < kRows; ++m)
#pragma unroll
        for (int j = 0; j < kPart; ++j)
          sums[r * kRows + m] = fmaf(left[part * kPart + j], right[m][j], sums[r * kRows + m]);
    }
  }
}

// Sums over the lanes of a warp; lane l gets that of x[l / (kGpuWarp / K)]. While there are several values, lanes kOffset
// apart share them out; then they have the same one.
template <int K, int kOffset = kGpuWarp / 2, int kAll>
__device__ __forceinline__ float sum_over_lanes(float (&x)[kAll]) {
  if constexpr (kOffset == 0) {
    return x[0];
  } else if constexpr (K == 1) {
    x[0] += __shfl_xor_sync(0xffffffffu, x[0], kOffset);
    return sum_over_lanes<1, kOffset / 2>(x);
  } else {
    const bool is_upper = threadIdx.x & kOffset;
#pragma unroll
    for (int i = 0; i < K / 2; ++i) {
      const float kept = is_upper ? x[i + K / 2] : x[i], sent = is_upper ? x[i] : x[i + K / 2];
      x[i] = kept + __shfl_xor_sync(0xffffffffu, sent, kOffset);
    }
    return sum_over_lanes<K / 2, kOffset / 2>(x);
  }
}

struct DotsArgs {
  GemvArgs gemv;
  int64_t outputs;
  int32_t part;
};

// What a warp's sums over columns [begin, end) come to: y, or the workspace until the last part. `last` is the end of the
// warp's rows, among the outputs of all matrices.
template <int kRows>
__device__ __forceinline__ void finish(const DotsArgs& args, const Walk& walk, int64_t last,
                                       float (&sums)[kGpuLoads * kRows], bool is_first, bool is_last) {
  const GemvArgs& a = args.gemv;
  constexpr int kShare = kGpuWarp / (kGpuLoads * kRows);  // lanes that have the same sum
  float sum = sum_over_lanes<kGpuLoads * kRows>(sums);
  const int lane = int(threadIdx.x) % kGpuWarp, r = lane / kShare / kRows, m = lane / kShare % kRows;
  if (lane % kShare != 0 || r >= walk.count || m >= a.norm.rows) return;
  float* const kept = a.sums + m * args.outputs + last - walk.left + r;
  if (!is_first) sum += *kept;
  if (is_last)
    a.matrices[walk.matrix].y.store(a.norm.first + m, walk.row + r, sum);
  else
    *kept = sum;
}

template <class T, int kVec, int kRows>
__global__ void __launch_bounds__(kGpuThreads, 1) dots_kernel(const DotsArgs args) {
  constexpr int kStages = gpu_stages(kRows), kStep = kGpuWarp * kVec;
  extern __shared__ float4 memory[];
  float* const v = reinterpret_cast<float*>(memory);
  const GemvArgs& a = args.gemv;
  Normalised<T, kRows, (kVec > 1), (kVec > 4), kGpuThreads> normalised(a.norm, v, args.part);
  const int64_t warps = int64_t(gridDim.x) * kGpuWarps, warp = int64_t(blockIdx.x) * kGpuWarps + threadIdx.x / kGpuWarp;
  const int64_t last = args.outputs * (warp + 1) / warps;
  const Walk rows(a, args.outputs * warp / warps, last);
  const int k = a.norm.k;
  for (int begin = 0; begin < k; begin += args.part) {
    const int end = begin + min(k - begin, args.part);
    const int steps = (end - begin + kStep * kStages - 1) / (kStep * kStages) * kStages;
    Stream<T, kVec> stream(a, rows, begin, end);
    stream.send_for(kGpuDotsAhead, begin, end);
    if (begin == 0) {
      wait_for_stream();
      let_next_begin();
    } else {
      __syncthreads();  // everyone is done with the part before
    }
    const Span span{begin, end, steps * kStep};
    normalised.ask(span);
    normalised.stage(span);
    __syncthreads();
    Loads<T, kVec> ring[kStages];
#pragma unroll
    for (int d = 0; d < kStages; ++d) stream.load(d, ring[d]);
    const float* const mine = v + int(threadIdx.x) % kGpuWarp * (kVec < 4 ? kVec : 4);
    for (Walk walk = rows; walk.count > 0; walk.next(a)) {
      float sums[kGpuLoads * kRows] = {};
      for (int s = 0; s < steps; s += kStages) {
        stream.advance(a, kStages * kStep, begin, end);
#pragma unroll
        for (int d = 0; d < kStages; ++d) {
          add_products<T, kVec, kRows>(ring[d], mine + (s + d) * kStep, args.part, sums);
          stream.load(d, ring[d]);
        }
      }
      finish<kRows>(args, walk, last, sums, begin == 0, end == k);
    }
  }
}

template <class T, int kVec>
void launch_dots(const DotsArgs& args, const DotsPlan& plan, const tc_exec& exec) {
  with_gpu_rows<kVec>(
      args.gemv.norm.rows, [&]<auto kRows>() {
        launch<dots_kernel<T, kVec, kRows>>(
            "norm_gemv_dots", {plan.blocks, kGpuThreads, 1, plan.shared, plan.overlaps, true}, exec, args);
      });
}

}  // namespace

void run_dots(const GemvArgs& gemv, const DotsPlan& plan, int32_t dtype, int32_t width, const tc_exec& exec) {
  DotsArgs args{gemv, 0, static_cast<int32_t>(plan.part)};
  for (const GpuMatrix& m : gemv.matrices) args.outputs += m.outputs;
  with_type(FloatTypes{}, dtype, [&]<class T>() {
    width == 1 ? launch_dots<T, 1>(args, plan, exec) : launch_dots<T, kWide<T>>(args, plan, exec);
  });
}

}  // namespace tc::ops::norm_gemv
