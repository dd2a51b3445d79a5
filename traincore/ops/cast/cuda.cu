// Casts on the GPU: a plain full-grid stream over the items of elements.h.
#include <algorithm>

#include "traincore/core/dispatch.h"
#include "traincore/cuda/elements.cuh"
#include "traincore/cuda/elements.h"
#include "traincore/cuda/launch.h"
#include "traincore/ops/cast/cast.h"

namespace tc::ops::cast {
namespace {

using namespace tc::cuda;  // NOLINT(google-build-using-namespace): the vocabulary of GPU kernels

// The conversions of core/numeric.h for what the hardware's do not promise: the payload of a NaN.
template <class T>
__device__ __forceinline__ float widened(T x) {
  const float y = to_f32(x);
  return y == y ? y : float(x);
}
template <class T>
__device__ __forceinline__ T rounded(float x) {
  return x == x ? from_f32<T>(x) : T(x);
}

template <class From, class To, int kWidth>
__global__ void __launch_bounds__(kItemThreads)
    cast_kernel(const From* x, To* y, const __grid_constant__ Items<2> items) {
  each_item<kWidth>(items, [&](auto width, const int64_t(&at)[2]) {
    constexpr int kCount = decltype(width)::value;
    const auto from = Pack<From, kCount>::load(x + at[0]);
    Pack<To, kCount> to;
#pragma unroll
    for (int j = 0; j < kCount; ++j)
      reinterpret_cast<To*>(&to.raw)[j] = rounded<To>(widened(reinterpret_cast<const From*>(&from.raw)[j]));
    to.store(y + at[1]);
  });
}

// One dtype: the bits as they are.
template <class T, int kWidth>
__global__ void __launch_bounds__(kItemThreads) copy_kernel(const T* x, T* y, const __grid_constant__ Items<2> items) {
  each_item<kWidth>(items, [&](auto width, const int64_t(&at)[2]) {
    Pack<T, decltype(width)::value>::load(x + at[0]).store(y + at[1]);
  });
}

template <class From, class To>
void cast(const tcx_cast_args& a, const tc_exec& exec) {
  constexpr int kVec = std::min(kWide<From>, kWide<To>);
  const Items<2> items = items_of<2>({&a.x, &a.y}, kVec);
  const Grid grid{blocks_for(items.count, kItemThreads), kItemThreads};
  const auto* x = static_cast<const From*>(a.x.data);
  auto* y = static_cast<To*>(a.y.data);
  with_value<1, kVec>("width", items.width, [&]<int kWidth>() {
    if constexpr (std::is_same_v<From, To>)
      launch<copy_kernel<From, kWidth>>("cast_copy", grid, exec, x, y, items);
    else
      launch<cast_kernel<From, To, kWidth>>("cast", grid, exec, x, y, items);
  });
}

}  // namespace

void cast_cuda(const tcx_cast_args& a, const tc_exec& exec) {
  const DeviceGuard device(a.x);
  with_type(FloatTypes{}, a.x.dtype,
            [&]<class From>() { with_type(FloatTypes{}, a.y.dtype, [&]<class To>() { cast<From, To>(a, exec); }); });
}

}  // namespace tc::ops::cast
