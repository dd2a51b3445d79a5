// Device code for sm_90: boxes of boxes.h on their way into shared memory, each announced by a barrier there. One thread asks
// for a box and gives the barrier its bytes; whoever wants to read it waits for the barrier's phase.
#pragma once
#include <cuda.h>

#include "traincore/cuda/overlap.cuh"
#include "traincore/cuda/vec.cuh"

namespace tc::cuda {

struct BoxAt {
  const CUtensorMap* map;
  int32_t at[3];  // where the box starts in each dimension
};

class BoxBarrier {
 public:
  // By one thread, before fence_barriers() and a barrier of the block.
  __device__ __forceinline__ void start() {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(this)) : "memory");
  }
  // Until the box of that phase has come: phases are 0, 1, 0, 1, ..
  __device__ __forceinline__ void wait(uint32_t phase) const {
    asm volatile(
        "{\n.reg .pred has_come;\nAGAIN:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 has_come, [%0], %1;\n@!has_come bra AGAIN;\n}" ::"r"(
            shared_address(this)),
        "r"(phase)
        : "memory");
  }
  // A box that is read once, to `to`, which is aligned to 1024 bytes.
  __device__ __forceinline__ void ask_for(const BoxAt& box, int bytes, void* to) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(this)), "r"(bytes)
                 : "memory");
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(shared_address(to)),
        "l"(box.map), "r"(box.at[0]), "r"(box.at[1]), "r"(box.at[2]), "r"(shared_address(this)), "l"(read_once_policy())
        : "memory");
  }

 private:
  uint64_t state_;
};

// What start() did is there for the copy engine.
__device__ __forceinline__ void fence_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

// send_for_once() a box.
__device__ __forceinline__ void send_for_once(const BoxAt& box) {
  asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global.tile.L2::cache_hint [%0, {%1, %2, %3}], %4;" ::"l"(box.map),
               "r"(box.at[0]), "r"(box.at[1]), "r"(box.at[2]), "l"(read_once_policy())
               : "memory");
}

}  // namespace tc::cuda
