// Device code: what the warps that share a row know about it, merged, while something else is done meanwhile.
#pragma once
#include "traincore/cuda/reduce.cuh"
#include "traincore/cuda/vec.cuh"

namespace tc::cuda {

// What one warp, or one block, knows about a row.
template <int kValues>
struct RowValues {
  float at[kValues];
};

// The RowValues of the warps of a block or the blocks of a cluster, one in a lane of each half of a warp.
template <int kValues>
struct Shares {
  static constexpr int kMost = 16;
  RowValues<kValues> mine;
  bool is_there;  // whether this lane has one
  // Over all of a half's lanes, which have 0 where they have no share; every lane gets the same bits.
  template <int K>
  __device__ __forceinline__ void sum(float (&x)[K]) const {
    reduce_lanes<Add, kMost>(x, 0xffffffffu);
  }
  // Of the share that there always is.
  __device__ __forceinline__ float first(float x) const { return __shfl_sync(0xffffffffu, x, 0); }
  // Of shares alone or of any that lanes without one repeat.
  __device__ __forceinline__ float max(float x) const { return over_lanes<Max, 32>(x, 0xffffffffu); }
};

// Values that simply add up.
template <int kValues>
struct AddUp {
  __device__ __forceinline__ RowValues<kValues> operator()(const Shares<kValues>& shares) const {
    RowValues<kValues> total;
#pragma unroll
    for (int k = 0; k < kValues; ++k) total.at[k] = shares.is_there ? shares.mine.at[k] : 0.0f;
    shares.sum(total.at);
    return total;
  }
};

// merge(the shares of all warps of the group), for every thread of it, in two steps, so that nobody waits: put() leaves
// what this warp knows, after take() the object's call gives what all know. A group inside one warp has nothing to exchange.
template <class Group, int kValues, class Merge>
class AllReduce {
 public:
  __device__ __forceinline__ AllReduce(const Group&, void*, Merge) {}
  __device__ __forceinline__ void put(const RowValues<kValues>& x) { merged_ = x; }
  __device__ __forceinline__ void take() {}
  __device__ __forceinline__ const RowValues<kValues>& operator()() const { return merged_; }

 private:
  RowValues<kValues> merged_;
};

// Warps tell their block's leader, which tells the blocks of the cluster; a block alone has no leader, its warps tell each
// other. Two sets of slots are used in turn: who writes one again has passed a barrier after everyone had read it. A value
// carries the number of its turn: who waits for that needs no fence, behind which a warp would wait for the rows that it
// wrote before.
template <int kValues, class Merge>
class AllReduce<Cluster, kValues, Merge> {
 public:
  // `slots`: told_bytes() of shared memory.
  __device__ __forceinline__ AllReduce(const Cluster& group, void* slots, Merge merge)
      : merge_(merge),
        warps_(int(blockDim.x) / 32),
        blocks_(group.blocks()),
        rank_(group.rank()),
        of_warps_(static_cast<uint64_t*>(slots)),
        of_blocks_(of_warps_ + 2 * kValues * warps_),
        told_(shared_address(of_blocks_ + 2 * kValues * blocks_)) {
    const int count = 2 * kValues * (warps_ + (blocks_ > 1 ? blocks_ : 0));
    for (int i = int(threadIdx.x); i < count; i += int(blockDim.x)) of_warps_[i] = 0;
#if __CUDA_ARCH__ >= 900
    if (blocks_ > 1 && threadIdx.x == 0) asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(told_), "r"(warps_));
    cooperative_groups::this_cluster().sync();  // the others' memory is there, and theirs is empty
#else
    __syncthreads();
#endif
  }
  __device__ __forceinline__ void put(const RowValues<kValues>& x) {
    ++turn_;
    const int warp = int(threadIdx.x) / 32, in_warp = int(threadIdx.x) % 32;
    if (in_warp == 0)
      write(of_warps_, warps_, warp, x, [](uint32_t slot, uint64_t value) {
        asm volatile("st.volatile.shared.u64 [%0], %1;" ::"r"(slot), "l"(value) : "memory");
      });
#if __CUDA_ARCH__ >= 900
    if (blocks_ > 1) {
      if (in_warp == 0) asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(told_) : "memory");
      if (warp == leader_) tell_blocks(in_warp);
      leader_ = leader_ + 1 < warps_ ? leader_ + 1 : 0;
    }
    __syncwarp();
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
  }
  __device__ __forceinline__ void take() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
#else
    __syncthreads();
#endif
    merged_ = merge_(blocks_ > 1 ? read(of_blocks_, blocks_) : read(of_warps_, warps_));
  }
  __device__ __forceinline__ const RowValues<kValues>& operator()() const { return merged_; }

 private:
  __device__ __forceinline__ int at(int k, int i, int count) const {
    return (int(turn_ % 2) * kValues + k) * count + i;
  }
  // store(the i-th slot of `count`, in shared memory; the value and its turn)
  template <class Store>
  __device__ __forceinline__ void write(uint64_t* slots, int count, int i, const RowValues<kValues>& x,
                                        Store&& store) const {
#pragma unroll
    for (int k = 0; k < kValues; ++k)
      store(shared_address(slots + at(k, i, count)), uint64_t{turn_} << 32 | __float_as_uint(x.at[k]));
  }
#if __CUDA_ARCH__ >= 900
  // The leader, another warp every turn, waits for the warps of the block, and alone does.
  __device__ __forceinline__ void tell_blocks(int in_warp) {
    uint32_t all_told;
    do {
      asm volatile(
          "{\n\t.reg .pred told;\n\t"
          "mbarrier.try_wait.parity.shared.b64 told, [%1], %2;\n\t"
          "selp.u32 %0, 1, 0, told;\n\t}"
          : "=r"(all_told)
          : "r"(told_), "r"(~turn_ & 1)
          : "memory");
    } while (!__all_sync(0xffffffffu, all_told));
    const RowValues<kValues> block = merge_(read(of_warps_, warps_));
    if (in_warp < blocks_)
      write(of_blocks_, blocks_, rank_, block, [in_warp](uint32_t slot, uint64_t value) {
        asm("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(slot) : "r"(in_warp));
        asm volatile("st.relaxed.cluster.shared::cluster.u64 [%0], %1;" ::"r"(slot), "l"(value) : "memory");
      });
  }
#endif
  // The lanes of a warp wait together, so that they need not be brought together afterwards.
  __device__ __forceinline__ Shares<kValues> read(const uint64_t* slots, int count) const {
    const int in_half = int(threadIdx.x) % Shares<kValues>::kMost, i = ::min(in_half, count - 1);
    Shares<kValues> shares{{}, in_half < count};
    bool is_there;
    do {
      is_there = true;
#pragma unroll
      for (int k = 0; k < kValues; ++k) {
        const uint64_t value = *static_cast<const volatile uint64_t*>(slots + at(k, i, count));
        is_there &= uint32_t(value >> 32) == turn_;
        shares.mine.at[k] = __uint_as_float(uint32_t(value));
      }
    } while (!__all_sync(0xffffffffu, is_there));
    return shares;
  }
  Merge merge_;
  int warps_, blocks_, rank_;
  uint64_t *of_warps_, *of_blocks_;
  uint32_t told_;  // a barrier in shared memory at which a block's warps arrive
  uint32_t turn_ = 0;
  int leader_ = 0;
  RowValues<kValues> merged_;
};

}  // namespace tc::cuda
