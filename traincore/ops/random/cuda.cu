// Random numbers on the GPU: a thread makes the four words of one Philox counter, and from them four elements.
#include <cmath>
#include <numbers>

#include "traincore/core/dispatch.h"
#include "traincore/core/random.h"
#include "traincore/cuda/elements.cuh"
#include "traincore/cuda/elements.h"
#include "traincore/cuda/launch.h"
#include "traincore/ops/random/random.h"

namespace tc::ops::random {
namespace {

using namespace tc::cuda;  // NOLINT(google-build-using-namespace): the vocabulary of GPU kernels

constexpr int kWords = 4;  // of a counter

__device__ __forceinline__ float polynomial(float, float c0) { return c0; }
template <class... C>
__device__ __forceinline__ float polynomial(float x, float c0, C... c) {
  return fmaf(polynomial(x, c...), x, c0);
}

// Q(tail) >= 0 for a tail in (0, 1/2]: PPND7 of AS 241, relative error 1e-7 before rounding.
__device__ __forceinline__ float upper_quantile(float tail) {
  const float q = 0.5f - tail;
  if (q <= 0.425f) {
    const float r = fmaf(-q, q, 0.180625f);
    return q * polynomial(r, 3.3871327179f, 50.434271938f, 159.29113202f, 59.109374720f) /
           polynomial(r, 1.0f, 17.895169469f, 78.757757664f, 67.187563600f);
  }
  const float s = sqrtf(-logf(tail)) - 1.6f;
  return polynomial(s, 1.4234372777f, 2.7568153900f, 1.3067284816f, 0.17023821103f) /
         polynomial(s, 1.0f, 0.73700164250f, 0.12021132975f);
}

struct Uniform {
  float low, width;
  __device__ __forceinline__ float operator()(uint32_t word) const { return low + width * uniform01(word); }
};
struct Normal {
  float mean, deviation, beyond;  // the probability that truncation cuts off on each side
  __device__ __forceinline__ float operator()(uint32_t word) const {
    const float half_law = (float(word & 0x7fffffffu) + 0.5f) * 0x1p-32f;
    const float z = upper_quantile(fmaf(half_law, 1 - 2 * beyond, beyond));
    return mean + deviation * (word >> 31 ? -z : z);
  }
};
struct Bernoulli {
  float probability;
  __device__ __forceinline__ float operator()(uint32_t word) const {
    return uniform01(word) < probability ? 1.0f : 0.0f;
  }
};

struct Sequence {
  Philox philox;
  int64_t first_index, counters;  // those that the elements of y take words of
};

// kWidth is 4 where counters and vectors of y start together, else 1.
template <class T, int kWidth, class Law>
__global__ void __launch_bounds__(kItemThreads)
    random_kernel(T* y, const Law law, const Sequence sequence, const __grid_constant__ Items<1> items) {
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < sequence.counters;
       i += int64_t(gridDim.x) * blockDim.x) {
    const int64_t counter = sequence.first_index / kWords + i;
    const Words4 made = sequence.philox(uint64_t(counter));
    const uint32_t words[kWords] = {made.x, made.y, made.z, made.w};
    const auto values = floats<kWords>([&](int j) { return law(words[j]); });
    int64_t at[1];
    if (kWidth == kWords && (i + 1) * kWords <= items.elements) {
      locate(items, i, at);
      Pack<T, kWords>::from(values).store(y + at[0]);
    } else {
#pragma unroll
      for (int j = 0; j < kWords; ++j) {
        const int64_t element = counter * kWords + j - sequence.first_index;
        if (element < 0 || element >= items.elements) continue;
        if (kWidth == kWords)
          at[0] = element;  // of one run, whose last vector is cut short
        else
          locate(items, element, at);
        y[at[0]] = from_f32<T>(values[j]);
      }
    }
  }
}

template <class Law>
void generate(const tcx_random_args& a, const tc_exec& exec, const Law& law) {
  const int64_t before = a.first_index % kWords;
  const Items<1> items = items_of<1>({&a.y}, before ? 1 : kWords);
  const Sequence sequence{{static_cast<uint64_t>(a.seed), static_cast<uint64_t>(a.stream)},
                          a.first_index,
                          items.elements ? (before + items.elements + kWords - 1) / kWords : 0};
  with_type(FloatTypes{}, a.y.dtype, [&]<class T>() {
    with_value<1, kWords>("width", items.width, [&]<int kWidth>() {
      launch<random_kernel<T, kWidth, Law>>("random", {blocks_for(sequence.counters, kItemThreads), kItemThreads}, exec,
                                            static_cast<T*>(a.y.data), law, sequence, items);
    });
  });
}

}  // namespace

void random_cuda(const tcx_random_args& a, const tc_exec& exec) {
  const DeviceGuard device(a.y);
  const auto rounded = [](double x) { return static_cast<float>(x); };
  if (a.distribution == TC_RANDOM_UNIFORM) {
    generate(a, exec, Uniform{rounded(a.low), rounded(a.high - a.low)});
  } else if (a.distribution == TC_RANDOM_NORMAL) {
    const double beyond = a.truncate > 0 ? 0.5 * std::erfc(a.truncate / std::numbers::sqrt2) : 0;
    generate(a, exec, Normal{rounded(a.mean), rounded(a.std), rounded(beyond)});
  } else {
    generate(a, exec, Bernoulli{rounded(a.probability)});
  }
}

}  // namespace tc::ops::random
