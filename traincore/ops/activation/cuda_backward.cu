// Activations backward on the GPU: every gradient and, on request, y again from one stream over the items of elements.h.
#include "traincore/cuda/activation.cuh"
#include "traincore/cuda/elements.cuh"
#include "traincore/cuda/elements.h"
#include "traincore/cuda/launch.h"
#include "traincore/ops/activation/cuda_launch.h"

namespace tc::ops::activation {
namespace {

using namespace tc::cuda;  // NOLINT(google-build-using-namespace): the vocabulary of GPU kernels

template <class T>
struct BackwardArgs {
  const T *dy, *gate, *up;
  T *dgate, *dup, *y;
  int32_t kind;
  Items<6> items;
};

// All inputs are loaded before anything is stored: each output may be any of them.
template <class T, int kWidth, int kKind>
__global__ void __launch_bounds__(kItemThreads) backward_kernel(const __grid_constant__ BackwardArgs<T> a) {
  each_item<kWidth>(a.items, [&](auto width, const int64_t(&at)[6]) {
    constexpr int kCount = decltype(width)::value;
    using Vector = Pack<T, kCount>;
    const Vector dy = Vector::load(a.dy + at[0]), gate = Vector::load(a.gate + at[1]);
    const Vector up = a.up ? Vector::load(a.up + at[2]) : gate;
    with_activation<kKind, std::conditional_t<kKind == TC_ACTIVATION_NONE, float, T>>(a.kind, [&](auto act_type) {
      using Act = typename decltype(act_type)::type;
      const auto g = dy.f32(), x = gate.f32();
      const auto factor = a.up ? up.f32() : floats<kCount>([](int) { return 1.0f; });
      Floats<kCount> dgate, dup, y;
#pragma unroll
      for (int j = 0; j < kCount; ++j) {
        const Act act(x[j]);
        dgate[j] = act.times_slope(g[j] * factor[j]);
        dup[j] = g[j] * act.value();
        y[j] = act.value() * factor[j];
      }
      if (a.dgate) Vector::from(dgate).store(a.dgate + at[3]);
      if (a.dup) Vector::from(dup).store(a.dup + at[4]);
      if (a.y) Vector::from(y).store(a.y + at[5]);
    });
  });
}

}  // namespace

void backward_cuda(const tcx_activation_backward_args& a, const tc_exec& exec) {
  const DeviceGuard device(a.dy);
  with_type(FloatTypes{}, a.dy.dtype, [&]<class T>() {
    const BackwardArgs<T> args{static_cast<const T*>(a.dy.data),
                               static_cast<const T*>(a.gate.data),
                               static_cast<const T*>(a.up.data),
                               static_cast<T*>(a.dgate.data),
                               static_cast<T*>(a.dup.data),
                               static_cast<T*>(a.y.data),
                               a.kind,
                               items_of<6>({&a.dy, &a.gate, &a.up, &a.dgate, &a.dup, &a.y}, kWide<T>)};
    with_width_and_kind<kWide<T>>(args.items.width, a.kind, exec, [&]<int kWidth, int kKind>() {
      launch<backward_kernel<T, kWidth, kKind>>("activation_backward",
                                                {blocks_for(args.items.count, kItemThreads), kItemThreads}, exec, args);
    });
  });
}

}  // namespace tc::ops::activation
