// Fills on the GPU: a plain full-grid stream over the items of elements.h.
#include "traincore/core/dispatch.h"
#include "traincore/cuda/elements.cuh"
#include "traincore/cuda/elements.h"
#include "traincore/cuda/launch.h"
#include "traincore/ops/fill/fill.h"

namespace tc::ops::fill {
namespace {

using namespace tc::cuda;  // NOLINT(google-build-using-namespace): the vocabulary of GPU kernels

template <class T, int kWidth>
__global__ void __launch_bounds__(kItemThreads) fill_kernel(T* y, float value, const __grid_constant__ Items<1> items) {
  each_item<kWidth>(items, [&](auto width, const int64_t(&at)[1]) {
    constexpr int kCount = decltype(width)::value;
    Pack<T, kCount>::from(floats<kCount>([&](int) { return value; })).store(y + at[0]);
  });
}

}  // namespace

void fill_cuda(const tcx_fill_args& a, const tc_exec& exec) {
  const DeviceGuard device(a.y);
  with_type(FloatTypes{}, a.y.dtype, [&]<class T>() {
    const Items<1> items = items_of<1>({&a.y}, kWide<T>);
    with_value<1, kWide<T>>("width", items.width, [&]<int kWidth>() {
      launch<fill_kernel<T, kWidth>>("fill", {blocks_for(items.count, kItemThreads), kItemThreads}, exec,
                                     static_cast<T*>(a.y.data), static_cast<float>(a.value), items);
    });
  });
}

}  // namespace tc::ops::fill
