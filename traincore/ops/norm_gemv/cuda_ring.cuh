// Device code: the steps of W that are on their way to a warp of tiles, F::kStages of them, each F::kLoads times 8 elements
// a lane. load() asks for step d of a turn in the place of the one that take() gave last; F::each_load says where it is.
// To be included after plan.h.
#pragma once
#include <cuda_pipeline.h>

#include "traincore/cuda/overlap.cuh"
#include "traincore/cuda/vec.cuh"

namespace tc::ops::norm_gemv {

using tc::cuda::Pack;

template <class F>
struct Step {
  Pack<typename F::Element, 8> w[F::kLoads];
};

// Of [n, k] in shared memory, by asynchronous copies.
template <class F>
class SharedRing {
 public:
  __device__ __forceinline__ explicit SharedRing(void* memory)
      : mine_(static_cast<uint4*>(memory) + threadIdx.x), read_once_(tc::cuda::read_once_policy()) {}
  __device__ __forceinline__ void load(const F& feed, int d) {
    feed.each_load(d, [&](int i, const void* from, bool is_there) {
      asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(
                       uint32_t(__cvta_generic_to_shared(at(d, i)))),
                   "l"(from), "r"(is_there ? 16 : 0), "l"(read_once_)
                   : "memory");
    });
    __pipeline_commit();
  }
  // The step that was asked for first.
  __device__ __forceinline__ Step<F> take(int d) const {
    __pipeline_wait_prior(F::kStages - 1);
    Step<F> step;
#pragma unroll
    for (int i = 0; i < F::kLoads; ++i) step.w[i].raw = *at(d, i);
    return step;
  }

 private:
  __device__ __forceinline__ uint4* at(int d, int i) const { return mine_ + (d * F::kLoads + i) * kGpuTileThreads; }
  uint4* mine_;
  uint64_t read_once_;
};

// Of [k, n] in registers. A barrier of the warp holds a step's loads together; spread among the products they are later.
template <class F>
class RegisterRing {
 public:
  __device__ __forceinline__ explicit RegisterRing(void*) {}
  __device__ __forceinline__ void load(const F& feed, int d) {
    using Eight = Pack<typename F::Element, 8>;
    feed.each_load(d, [&](int i, const auto* from, bool is_there) {
      steps_[d].w[i] = is_there ? Eight::load_once(from) : Eight{};
    });
    __syncwarp();
  }
  __device__ __forceinline__ const Step<F>& take(int d) const { return steps_[d]; }

 private:
  Step<F> steps_[F::kStages];
};

}  // namespace tc::ops::norm_gemv
