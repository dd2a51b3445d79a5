// Weighted sums on the GPU: a plain full-grid stream over the items of elements.h.
#include "traincore/core/dispatch.h"
#include "traincore/cuda/elements.cuh"
#include "traincore/cuda/elements.h"
#include "traincore/cuda/launch.h"
#include "traincore/ops/add/add.h"

namespace tc::ops::add {
namespace {

using namespace tc::cuda;  // NOLINT(google-build-using-namespace): the vocabulary of GPU kernels

struct Weights {
  float alpha, beta;
  template <int N>
  __device__ __forceinline__ Floats<N> operator()(const Floats<N>& a, const Floats<N>& b) const {
    return floats<N>([&](int j) { return alpha * a[j] + beta * b[j]; });
  }
};

template <class T, int kWidth>
__global__ void __launch_bounds__(kItemThreads)
    add_kernel(const T* a, const T* b, T* y, Weights weights, const __grid_constant__ Items<3> items) {
  each_item<kWidth>(items, [&](auto width, const int64_t(&at)[3]) {
    using Vector = Pack<T, decltype(width)::value>;
    const Vector left = Vector::load(a + at[0]), right = Vector::load(b + at[1]);
    Vector::from(weights(left.f32(), right.f32())).store(y + at[2]);
  });
}

template <int kWidth>
__global__ void __launch_bounds__(kItemThreads)
    add_mixed_kernel(AnyElements a, AnyElements b, AnyElements y, Weights weights,
                     const __grid_constant__ Items<3> items) {
  each_item<kWidth>(items, [&](auto width, const int64_t(&at)[3]) {
    constexpr int kCount = decltype(width)::value;
    y.store<kCount>(at[2], weights(a.load<kCount>(at[0]), b.load<kCount>(at[1])));
  });
}

template <class T>
void add(const tcx_add_args& args, const tc_exec& exec, Weights weights) {
  const Items<3> items = items_of<3>({&args.a, &args.b, &args.y}, kWide<T>);
  with_value<1, kWide<T>>("width", items.width, [&]<int kWidth>() {
    launch<add_kernel<T, kWidth>>("add", {blocks_for(items.count, kItemThreads), kItemThreads}, exec,
                                  static_cast<const T*>(args.a.data), static_cast<const T*>(args.b.data),
                                  static_cast<T*>(args.y.data), weights, items);
  });
}

void add_mixed(const tcx_add_args& args, const tc_exec& exec, Weights weights) {
  const Items<3> items = items_of<3>({&args.a, &args.b, &args.y}, kWide<float>);
  with_value<1, kWide<float>>("width", items.width, [&]<int kWidth>() {
    launch<add_mixed_kernel<kWidth>>("add_mixed", {blocks_for(items.count, kItemThreads), kItemThreads}, exec,
                                     any_elements(args.a), any_elements(args.b), any_elements(args.y), weights, items);
  });
}

}  // namespace

void add_cuda(const tcx_add_args& a, const tc_exec& exec) {
  const DeviceGuard device(a.a);
  const Weights weights{static_cast<float>(a.alpha), static_cast<float>(a.beta)};
  if (a.a.dtype == a.y.dtype && a.b.dtype == a.y.dtype)
    with_type(FloatTypes{}, a.y.dtype, [&]<class T>() { add<T>(a, exec, weights); });
  else
    add_mixed(a, exec, weights);
}

}  // namespace tc::ops::add
