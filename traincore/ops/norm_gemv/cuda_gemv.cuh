// Device code that both products share: the arguments of a launch, and v = Norm(x) on its way into shared memory. To be
// included after plan.h, whose constants it is made of.
#pragma once
#include "traincore/cuda/elements.cuh"
#include "traincore/cuda/reduce.cuh"

namespace tc::ops::norm_gemv {

struct GpuNorm {
  cuda::AnyTable x;
  cuda::Gain gain;
  cuda::AnyVector bias;
  int64_t first;  // row of x, of `rows` that this launch serves
  int32_t rows, k;
  float eps;
  bool is_centred, is_wide;  // wide: kNormWide elements of x, gain and bias at a time
};
inline constexpr int kNormWide = 8;

struct GpuMatrix {
  const void* w;
  int64_t stride, outputs;  // from row to row of w; columns of y
  cuda::AnyTable y;
};

struct GemvArgs {
  GpuNorm norm;
  GpuMatrix matrices[kMatrices];
  float* sums;  // of DotsPlan, [rows, outputs of all matrices]; NULL where there is one part
};

void run_dots(const GemvArgs& args, const DotsPlan& plan, int32_t dtype, int32_t width, const tc_exec& exec);
void run_strips(const GemvArgs& args, const StripsPlan& plan, int32_t dtype, int32_t width, const tc_exec& exec);

using namespace tc::cuda;  // NOLINT(google-build-using-namespace): the vocabulary of GPU kernels

// v = (x - near - rest) rstd gain + bias; near + rest is the mean, near so close that x - near loses nothing.
struct RowMoments {
  float near, rest, rstd;
};

// v of a launch's rows in shared memory, row after row. A row is served by every kRows-th warp; rows beyond the last are
// the last again. kPaired: of 8 neighbouring columns the lanes of a warp read 4 next to each other, then the other 4.
template <int kRows, bool kPaired>
class Normalised {
 public:
  __device__ __forceinline__ Normalised(const GpuNorm& a, float* v, int stride) : a_(a), v_(v), stride_(stride) {}

  // Sends for x, gain and bias: stage(), which has few registers to wait with, finds them in the first-level cache.
  __device__ __forceinline__ void fetch() const {
    const int64_t k = a_.k;
    touch(row(), k * a_.x.element_bytes, thread(), kThreads);
    touch(a_.gain.vector.data, k * size_of(a_.gain.vector), int(threadIdx.x), kGpuThreads);
    touch(a_.bias.data, k * size_of(a_.bias), int(threadIdx.x), kGpuThreads);
  }

  // Columns [begin, end), and zeros up to `padded` columns. The first call finds the moments. All threads take part;
  // what they stored is there for all after the next barrier.
  __device__ __forceinline__ void stage(int begin, int end, int padded) {
    const auto by = [&](auto width, const auto& load) {
      constexpr int kWidth = decltype(width)::value;
      if (!is_known_) find_moments<kWidth>(load);
      is_known_ = true;
      stage_columns<kWidth>(load, begin, end, padded);
    };
    const std::byte* const x = row();
    const auto typed = [&]<class X>(X) {
      by(Width<kNormWide>{}, TypedVector<X, kNormWide>{reinterpret_cast<const X*>(x), 0});
    };
    if (!a_.is_wide) return by(Width<1>{}, [&](int c) { return AnyVector{x, a_.x.dtype}.template load<1>(c); });
    if (a_.x.dtype == TC_DTYPE_F32) return typed(float{});
    a_.x.dtype == TC_DTYPE_BF16 ? typed(bf16{}) : typed(f16{});
  }

 private:
  static constexpr int kThreads = kGpuThreads / kRows;  // that serve a row
  static __device__ __forceinline__ int warp() { return int(threadIdx.x) / kGpuWarp; }
  static __device__ __forceinline__ int thread() { return warp() / kRows * kGpuWarp + int(threadIdx.x) % kGpuWarp; }
  __device__ __forceinline__ const std::byte* row() const {
    return a_.x.at(a_.first + min(warp() % kRows, a_.rows - 1), 0);
  }
  static __device__ __forceinline__ int size_of(const AnyVector& v) {
    return !v.data ? 0 : v.dtype == TC_DTYPE_F32 ? 4 : 2;
  }
  // A load of every cache line, by `threads` threads; nobody waits for what it gives.
  static __device__ __forceinline__ void touch(const void* memory, int64_t bytes, int thread, int threads) {
    constexpr int kLine = 128;
#pragma unroll 1
    for (int64_t at = int64_t(thread) * kLine; at < bytes; at += int64_t(threads) * kLine) {
      [[maybe_unused]] uint32_t nothing;
      asm volatile("ld.global.ca.u8 %0, [%1];" : "=r"(nothing) : "l"(static_cast<const std::byte*>(memory) + at));
    }
  }

  // Over the threads of a row, which all get the same bits.
  static __device__ __forceinline__ void sum_row(float (&x)[2]) {
    __shared__ float warps[2][kGpuWarps];
    reduce_lanes<Add, kGpuWarp>(x, 0xffffffffu);
    __syncthreads();  // everyone has read the sums before these
    if (threadIdx.x % kGpuWarp == 0) warps[0][warp()] = x[0], warps[1][warp()] = x[1];
    __syncthreads();
    x[0] = x[1] = 0;
#pragma unroll
    for (int w = 0; w < kGpuWarps; w += kRows)
      x[0] += warps[0][w + warp() % kRows], x[1] += warps[1][w + warp() % kRows];
  }

  template <int N, class Load>
  __device__ __forceinline__ void find_moments(const Load& load) {
    const float count = float(a_.k);
    moments_ = {0, 0, 0};
#pragma unroll 1
    for (int pass = a_.is_centred ? 0 : 1; pass < 2; ++pass) {  // about 0 for the mean, then about the mean
      float sums[2] = {0, 0};
#pragma unroll 4
      for (int c = thread() * N; c < a_.k; c += kThreads * N) {
        const auto x = load(c);
#pragma unroll
        for (int j = 0; j < N; ++j) {
          const float from_near = x[j] - moments_.near;
          sums[0] += from_near, sums[1] = fmaf(from_near, from_near, sums[1]);
        }
      }
      sum_row(sums);
      if (pass == 0) {
        moments_.near = sums[0] / count;
        continue;
      }
      moments_.rest = a_.is_centred ? sums[0] / count : 0;
      moments_.rstd = 1.0f / sqrtf(fmaxf(sums[1] / count - moments_.rest * moments_.rest, 0.0f) + a_.eps);
    }
  }

  template <int N, class Load>
  __device__ __forceinline__ void stage_columns(const Load& load, int begin, int end, int padded) {
    float* const row = v_ + warp() % kRows * stride_;
    Gain gains = a_.gain;
    AnyVector biases = a_.bias;
    // Else the compiler keeps these in registers through the loop over parts, once for every kind of load.
    asm volatile("" : "+l"(gains.vector.data), "+l"(biases.data));
    for (int c = thread() * N; c < padded; c += kThreads * N) {
      auto v = floats<N>([](int) { return 0.0f; });
      if (begin + c < end) {
        const auto gain = gains.template load<N>(begin + c);
        auto bias = v;
        if (biases.data) bias = biases.template load<N>(begin + c);
        const auto x = load(begin + c);
        v = floats<N>(
            [&](int j) { return fmaf((x[j] - moments_.near - moments_.rest) * moments_.rstd, gain[j], bias[j]); });
      }
      constexpr int kPart = N < 4 ? N : 4;
#pragma unroll
      for (int i = 0; i < N; i += kPart)
        Pack<float, kPart>::from(floats<kPart>([&](int j) { return v[i + j]; })).store(row + place_of(c + i));
    }
  }

  static __device__ __forceinline__ int place_of(int c) {
    if constexpr (!kPaired) return c;
    const int four = c / 4, step = four / (2 * kGpuWarp), lane = four / 2 % kGpuWarp;
    return ((step * 2 + four % 2) * kGpuWarp + lane) * 4 + c % 4;
  }

  const GpuNorm& a_;
  float* v_;
  int stride_;
  RowMoments moments_;
  bool is_known_ = false;
};

// kGpuLoads times 16 bytes or one element of W.
template <class T, int kVec>
using Loads = Pack<T, kVec>[kGpuLoads];

}  // namespace tc::ops::norm_gemv
