// Device code that both products share: the arguments of a launch, and v = Norm(x) on its way into shared memory. To be
// included after plan.h, whose constants it is made of.
#pragma once
#include <cuda_pipeline.h>

#include "traincore/cuda/elements.cuh"
#include "traincore/cuda/overlap.cuh"
#include "traincore/cuda/reduce.cuh"

namespace tc::ops::norm_gemv {

struct GpuNorm {
  cuda::AnyTable x;
  cuda::Gain gain;
  cuda::AnyVector bias;
  int64_t first;  // row of x, of `rows` that this launch serves
  int32_t rows, k;
  float eps;
  bool is_centred;
  bool is_wide;  // kGpuNormWide elements of x, gain and bias at a time, in kernels that read W likewise

  // All of it, as far as the second-level cache; where is_wide.
  __device__ __forceinline__ void send_for_all() const {
    for (int row = 0; row < rows; ++row) cuda::send_for(x.at(first + row, 0), k * x.element_bytes);
    for (const cuda::AnyVector& vector : {gain.vector, bias})
      if (vector.data) cuda::send_for(vector.data, k * (vector.dtype == TC_DTYPE_F32 ? 4 : 2));
  }
};

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
void run_tiles(const GemvArgs& args, const TilesPlan& plan, bool transposed, int32_t dtype, const tc_exec& exec);

using namespace tc::cuda;  // NOLINT(google-build-using-namespace): the vocabulary of GPU kernels

// 16 bytes on their way into shared memory, through the first-level cache; for __pipeline_commit().
__device__ __forceinline__ void copy_cached(void* to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
}

// v = (x - near - rest) rstd gain + bias; near + rest is the mean, near so close that x - near loses nothing.
struct RowMoments {
  float near, rest, rstd;
};

// Columns [begin, end) of v, and zeros up to `padded` columns.
struct Span {
  int begin, end, padded;
  __device__ __forceinline__ int count() const { return end - begin; }
};

// v of a launch's rows in shared memory, row after row. A row is served by every kRows-th warp; rows beyond the last are
// the last again. kPaired: of 8 neighbouring columns the lanes of a warp read 4 next to each other, then the other 4.
// T: W's dtype. kIsWide: several elements of x are read together where GpuNorm says so, which it does as reads_x_together()
// has it.
template <class T, int kRows, bool kIsWide, bool kPaired, int kBlockThreads>
class Normalised {
 public:
  __device__ __forceinline__ Normalised(const GpuNorm& a, float* v, int stride) : a_(a), v_(v), stride_(stride) {}

  // Asks for what a thread reads of the gain, and of x where both are of 16-bit elements: it comes to where the thread's v
  // will stand, and nobody else looks at it. Then stage() of the same span; all threads take part, and what they stored is
  // there for all after the next barrier. The first one finds the moments.
  __device__ __forceinline__ void ask(const Span& span) {
    if (!kIsWide || !a_.is_wide) return;
    const AnyVector& gain = a_.gain.vector;
    if (is_held()) ask_for(row_of_x(), 2, kHeldX, span);
    if (gain.data) ask_for(gain.data, gain.dtype == TC_DTYPE_F32 ? 4 : 2, 0, span);
    __pipeline_commit();
  }
  __device__ __forceinline__ void stage(const Span& span) {
    const std::byte* const x = row_of_x();
    if (!kIsWide || !a_.is_wide)
      return stage_span<1>(
          span,
          [&](int c) {
            return AnyVector{x, a_.x.dtype}.template load<1>(c);
          },
          FromMemory{});
    if constexpr (kIsWide) {
      const auto typed = [&]<class X>(X) {
        const PlainVector<X, kGpuNormWide> load{reinterpret_cast<const X*>(x)};
        if constexpr (sizeof(X) == 2)
          if (is_held()) return stage_span<kGpuNormWide>(span, load, Held<X>{});
        stage_span<kGpuNormWide>(span, load, FromMemory{});
      };
      if (a_.x.dtype == TC_DTYPE_F32) return typed(float{});
      if constexpr (sizeof(T) == 2)
        typed(T{});
      else
        a_.x.dtype == TC_DTYPE_BF16 ? typed(bf16{}) : typed(f16{});
    }
  }

 private:
  static constexpr int kThreads = kBlockThreads / kRows, kWarps = kBlockThreads / kGpuWarp;  // that serve a row
  static __device__ __forceinline__ int warp() { return int(threadIdx.x) / kGpuWarp; }
  static __device__ __forceinline__ int thread() { return warp() / kRows * kGpuWarp + int(threadIdx.x) % kGpuWarp; }
  __device__ __forceinline__ const std::byte* row_of_x() const {
    return a_.x.at(a_.first + min(warp() % kRows, a_.rows - 1), 0);
  }
  __device__ __forceinline__ bool is_held() const {
    return a_.x.dtype != TC_DTYPE_F32 && !(a_.gain.vector.data && a_.gain.vector.dtype == TC_DTYPE_F32);
  }
  // Over the threads of a row, which all get the same bits.
  static __device__ __forceinline__ void sum_row(float (&x)[2]) {
    __shared__ float warps[2][kWarps];
    reduce_lanes<Add, kGpuWarp>(x, 0xffffffffu);
    __syncthreads();  // everyone has read the sums before these
    if (threadIdx.x % kGpuWarp == 0) warps[0][warp()] = x[0], warps[1][warp()] = x[1];
    __syncthreads();
    x[0] = x[1] = 0;
#pragma unroll
    for (int w = 0; w < kWarps; w += kRows) x[0] += warps[0][w + warp() % kRows], x[1] += warps[1][w + warp() % kRows];
  }

  // Where x of a span comes from.
  struct FromMemory {};
  template <class X>
  struct Held {};

  // use(c, load(c)) for the thread's columns below `end`. Four wide loads are on their way together, and no branch is
  // between them: load() is also asked for columns beyond `end`.
  template <int N, class Load, class Use>
  static __device__ __forceinline__ void each(int end, const Load& load, const Use& use) {
    constexpr int kStep = kThreads * N, kAtOnce = N == 1 ? 1 : 4;
#pragma unroll 1
    for (int first = thread() * N; first < end; first += kAtOnce * kStep) {
      Floats<N> x[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) x[i] = load(first + i * kStep);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
        if (first + i * kStep < end) use(first + i * kStep, x[i]);
    }
  }
  // use(c, x) for the thread's columns of a span, counted from its begin.
  template <int N, class Load, class Use>
  __device__ __forceinline__ void each_of(const Span& span, const Load& load, FromMemory, const Use& use) const {
    each<N>(
        span.count(), [&](int c) { return load(min(span.begin + c, span.end - N)); }, use);
  }
  template <int N, class Load, class X, class Use>
  __device__ __forceinline__ void each_of(const Span& span, const Load&, Held<X>, const Use& use) const {
    for (int c = thread() * N; c < span.count(); c += kThreads * N)
      use(c, Pack<X, N>::load(reinterpret_cast<const X*>(four_at(c / 4 + kHeldX))).f32());
  }

  template <int N, class Load, class From>
  __device__ __forceinline__ void stage_span(const Span& span, const Load& load, From from) {
    if (!is_known_) find_moments<N>(span, load, from);
    is_known_ = true;
    __pipeline_wait_prior(0);
    each_of<N>(span, load, from, [&](int c, Floats<N> v) {
      if (a_.is_centred)
#pragma unroll
        for (int j = 0; j < N; ++j) v[j] = v[j] - moments_.near - moments_.rest;
      const auto gain = gain_at<N>(span.begin + c, c);
#pragma unroll
      for (int j = 0; j < N; ++j) v[j] = v[j] * moments_.rstd * gain[j];
      if (a_.bias.data) add_to(v, a_.bias.template load<N>(span.begin + c));
      put(c, v);
    });
    for (int c = span.count() + thread() * N; c < span.padded; c += kThreads * N)
      put(c, floats<N>([](int) { return 0.0f; }));
  }

  template <int N, class Load, class From>
  __device__ __forceinline__ void find_moments(const Span& span, const Load& load, From from) {
    moments_ = {0, 0, 0};
    // use() of every column of x; first of those beyond the span, which were not asked for.
    const auto sum_over = [&](const auto& use) {
      each<N>(
          a_.k - span.count(), [&](int c) { return load(min(c < span.begin ? c : c + span.count(), a_.k - N)); }, use);
      __pipeline_wait_prior(0);
      each_of<N>(span, load, from, use);
    };
    if (a_.is_centred) {
#pragma unroll 1
      for (int pass = 0; pass < 2; ++pass) {  // about 0 for the mean, then about the mean
        float sums[2] = {0, 0};
        sum_over([&](int, const Floats<N>& x) {
#pragma unroll
          for (int j = 0; j < N; ++j) {
            const float from_near = x[j] - moments_.near;
            sums[0] += from_near, sums[1] = fmaf(from_near, from_near, sums[1]);
          }
        });
        sum_row(sums);
        set_moments(sums, pass == 0);
      }
    } else {
      float sums[2] = {0, 0};
      sum_over([&](int, const Floats<N>& x) {
#pragma unroll
        for (int j = 0; j < N; ++j) sums[1] = fmaf(x[j], x[j], sums[1]);
      });
      sum_row(sums);
      set_moments(sums, false);
    }
  }
  // From sums of x - near and of its squares.
  __device__ __forceinline__ void set_moments(const float (&sums)[2], bool is_first_look) {
    const float mean = sums[0] / float(a_.k);
    if (is_first_look) {
      moments_.near = mean;
    } else {
      moments_.rest = mean;
      moments_.rstd = 1.0f / sqrtf(fmaxf(sums[1] / float(a_.k) - mean * mean, 0.0f) + a_.eps);
    }
  }

  // Eight elements of 16 bits come to the first or, x, the second four places of v's eight.
  static constexpr int kHeldX = 1;
  __device__ __forceinline__ void ask_for(const void* vector, int bytes, int four, const Span& span) {
    const std::byte* const from = static_cast<const std::byte*>(vector) + int64_t(span.begin) * bytes;
    for (int c = thread() * kGpuNormWide; c < span.count(); c += kThreads * kGpuNormWide)
      for (int i = 0; i < bytes * kGpuNormWide / 16; ++i)
        copy_cached(four_at(c / 4 + four + i), from + c * bytes + i * 16);
  }
  // Of column `column`, which is c of this span.
  template <int N>
  __device__ __forceinline__ Floats<N> gain_at(int column, int c) const {
    const AnyVector& gain = a_.gain.vector;
    if (N == 1 || !gain.data) return a_.gain.template load<N>(column);
    auto y = gain.dtype == TC_DTYPE_F32 ? get<N>(c) : AnyVector{four_at(c / 4), gain.dtype}.template load<N>(0);
    if (a_.gain.offset != 0)
#pragma unroll
      for (int i = 0; i < N; ++i) y[i] += a_.gain.offset;
    return y;
  }

  template <int N>
  __device__ __forceinline__ void put(int c, const Floats<N>& v) const {
    if constexpr (N == 1) {
      row_of_v()[place_of(c / 4) * 4 + c % 4] = v[0];
    } else {
#pragma unroll
      for (int i = 0; i < N / 4; ++i)
        reinterpret_cast<float4*>(row_of_v())[place_of(c / 4 + i)] =
            make_float4(v[4 * i], v[4 * i + 1], v[4 * i + 2], v[4 * i + 3]);
    }
  }
  template <int N>
  __device__ __forceinline__ Floats<N> get(int c) const {
    Floats<N> v;
    if constexpr (N == 1) {
      v[0] = row_of_v()[place_of(c / 4) * 4 + c % 4];
    } else {
#pragma unroll
      for (int i = 0; i < N / 4; ++i) {
        const float4 four = reinterpret_cast<const float4*>(row_of_v())[place_of(c / 4 + i)];
        v[4 * i] = four.x, v[4 * i + 1] = four.y, v[4 * i + 2] = four.z, v[4 * i + 3] = four.w;
      }
    }
    return v;
  }
  __device__ __forceinline__ float* row_of_v() const { return v_ + warp() % kRows * stride_; }
  __device__ __forceinline__ float* four_at(int four) const { return row_of_v() + place_of(four) * 4; }
  // Where four columns stand, counted in fours.
  static __device__ __forceinline__ int place_of(int four) {
    if constexpr (!kPaired) return four;
    const unsigned pair = unsigned(four) / 2, step = pair / kGpuWarp, lane = pair % kGpuWarp;
    return int((step * 2 + unsigned(four) % 2) * kGpuWarp + lane);
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

// body.operator()<kRows>() for so many rows of v as the kernels of that width have.
template <int kVec, class F>
void with_gpu_rows(int64_t rows, F&& body) {
  if constexpr (kVec == 1)
    with_value<1, 8>("rows", gpu_rows(rows, kVec), body);
  else
    with_value<1, 4, 8>("rows", gpu_rows(rows, kVec), body);
}

}  // namespace tc::ops::norm_gemv
