// Activations forward on the GPU: a plain full-grid stream over the items of elements.h.
#include "traincore/cuda/activation.cuh"
#include "traincore/cuda/elements.cuh"
#include "traincore/cuda/elements.h"
#include "traincore/cuda/launch.h"
#include "traincore/ops/activation/cuda_launch.h"

namespace tc::ops::activation {
namespace {

using namespace tc::cuda;  // NOLINT(google-build-using-namespace): the vocabulary of GPU kernels

template <class T>
struct ForwardArgs {
  const T *gate, *up;
  T* y;
  int32_t kind;
  Items<3> items;
};

template <class T, int kWidth, int kKind>
__global__ void __launch_bounds__(kItemThreads) forward_kernel(const __grid_constant__ ForwardArgs<T> a) {
  each_item<kWidth>(a.items, [&](auto width, const int64_t(&at)[3]) {
    constexpr int kCount = decltype(width)::value;
    using Vector = Pack<T, kCount>;
    const Vector gate = Vector::load(a.gate + at[0]);
    const Vector up = a.up ? Vector::load(a.up + at[1]) : gate;
    with_activation<kKind, std::conditional_t<kKind == TC_ACTIVATION_NONE, float, T>>(a.kind, [&](auto act) {
      using Act = typename decltype(act)::type;
      const auto x = gate.f32();
      auto y = floats<kCount>([&](int j) { return Act(x[j]).value(); });
      if (a.up) {
        const auto factor = up.f32();
        y = floats<kCount>([&](int j) { return y[j] * factor[j]; });
      }
      Vector::from(y).store(a.y + at[2]);
    });
  });
}

}  // namespace

void forward_cuda(const tcx_activation_forward_args& a, const tc_exec& exec) {
  const DeviceGuard device(a.gate);
  with_type(FloatTypes{}, a.gate.dtype, [&]<class T>() {
    const ForwardArgs<T> args{static_cast<const T*>(a.gate.data), static_cast<const T*>(a.up.data),
                              static_cast<T*>(a.y.data), a.kind, items_of<3>({&a.gate, &a.up, &a.y}, kWide<T>)};
    with_width_and_kind<kWide<T>>(args.items.width, a.kind, exec, [&]<int kWidth, int kKind>() {
      launch<forward_kernel<T, kWidth, kKind>>("activation_forward",
                                               {blocks_for(args.items.count, kItemThreads), kItemThreads}, exec, args);
    });
  });
}

}  // namespace tc::ops::activation
