// From a SlabPlan to a grid and to the kernel template that serves it.
#pragma once
#include "traincore/cuda/row_launch.h"
#include "traincore/cuda/slab_plan.h"

namespace tc::cuda {

template <class G, int kTensors_, int kVectorCount, int kStages_, int kThreadsPerSm_, int kMostThreads_,
          bool kSharesSums_, bool kMayStay_>
struct SlabTile : RowTile<G, true, kVectorCount> {
  static constexpr int kTensors = kTensors_, kStages = kStages_, kThreadsPerSm = kThreadsPerSm_,
                       kMostThreads = kMostThreads_;
  static constexpr bool kSharesSums = kSharesSums_, kMayStay = kMayStay_;
};

inline Grid grid_of(const SlabPlan& plan) {
  return {plan.groups * plan.cluster, plan.threads, plan.cluster, static_cast<size_t>(plan.shared)};
}

template <class Norm, size_t kIndex, class F>
bool with_slab_kernel(const SlabKernel& kernel, F&& body) {
  constexpr SlabKernel k = kSlabKernels[kIndex];
  if constexpr ((k.sums == 0 || k.sums == 1 + Norm::kCentred) && (k.tensors == 4 || !Norm::kHasResidual))
    if (kernel == k) {
      using Group = std::conditional_t<k.lanes == 0, Cluster, Lanes<k.lanes>>;
      body.template operator()<SlabTile<Group, k.tensors, k.vectors, k.stages, k.threads_per_sm, k.most_threads,
                                        k.shares_sums, (k.stays_from > 0)>>();
      return true;
    }
  return false;
}

// Calls body.operator()<Tile>() for the plan's kernel, which is one for the Norm.
template <class Norm, class F>
void with_slab_tile(const SlabPlan& plan, F&& body) {
  [&]<size_t... kIndex>(std::index_sequence<kIndex...>) {
    (void)(with_slab_kernel<Norm, kIndex>(plan.kernel, body) || ...);
  }
  (std::make_index_sequence<std::size(kSlabKernels)>{});
}

}  // namespace tc::cuda
