// Many dense tensors for one kernel: their addresses travel as its parameters, so that nothing is copied to the device
// first and a captured call replays. A block works on a run of one tensor's elements; the cut depends on the sizes alone.
#pragma once
#include "traincore/core/view.h"

namespace tc::cuda {

struct TensorBatch {
  static constexpr int kMost = 160;  // a kernel's parameters have 4 KB
  struct Tensor {
    void* data;
    int64_t elements;
    int32_t first_block, dtype;
  };
  Tensor tensors[kMost];
  int32_t count = 0, blocks = 0;
  int64_t first_block = 0;  // of the call

#ifdef __CUDACC__
  // The tensor that this block works on.
  __device__ __forceinline__ const Tensor& tensor() const {
    int low = 0, high = count;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (tensors[middle].first_block <= int(blockIdx.x) ? low : high) = middle;
    }
    return tensors[low];
  }
#endif
};

// f(batch) for batches that hold all tensors, in order, `per_block` elements a block. Returns the blocks of the call.
template <class F>
int64_t for_tensor_batches(const tc_tensor* tensors, int64_t count, int64_t per_block, F&& f) {
  constexpr int64_t kMostBlocks = int64_t{1} << 30;
  TensorBatch batch;
  const auto flush = [&] {
    if (batch.count == 0) return;
    f(static_cast<const TensorBatch&>(batch));
    batch.first_block += batch.blocks;
    batch.count = 0, batch.blocks = 0;
  };
  for (int64_t i = 0; i < count; ++i) {
    auto* data = static_cast<std::byte*>(tensors[i].data);
    const auto size = static_cast<int64_t>(tc_dtype_size(tensors[i].dtype));
    for (int64_t left = element_count(tensors[i]); left > 0;) {
      const int64_t elements = left < kMostBlocks * per_block ? left : kMostBlocks * per_block;
      const int64_t blocks = (elements + per_block - 1) / per_block;
      if (batch.count == TensorBatch::kMost || batch.blocks + blocks > kMostBlocks) flush();
      batch.tensors[batch.count++] = {data, elements, batch.blocks, tensors[i].dtype};
      batch.blocks += static_cast<int32_t>(blocks);
      data += elements * size, left -= elements;
    }
  }
  flush();
  return batch.first_block;
}

}  // namespace tc::cuda
