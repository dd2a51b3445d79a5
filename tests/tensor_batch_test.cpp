// How many tensors are cut into launches: pure, so it is tested on machines without a GPU.
#include "traincore/cuda/tensor_batch.h"

#include <gtest/gtest.h>

#include <vector>

namespace tc::cuda {
namespace {

constexpr int64_t kPerBlock = 1000;

tc_tensor dense(int64_t elements, int32_t dtype = TC_DTYPE_F32) {
  return tc_tensor_dense(reinterpret_cast<void*>(0x1000), dtype, 1, &elements);
}

// Every element of every tensor once, in order, whatever the sizes.
TEST(TensorBatch, CoversEveryElement) {
  std::vector<tc_tensor> tensors;
  int64_t elements = 0, blocks = 0;
  for (int64_t i = 0; i < 500; ++i) {
    const int64_t n = i % 7 == 3 ? 0 : i * 37 % 2503;
    tensors.push_back(dense(n, i % 2 ? TC_DTYPE_BF16 : TC_DTYPE_F32));
    elements += n, blocks += (n + kPerBlock - 1) / kPerBlock;
  }
  int64_t seen = 0, seen_blocks = 0;
  const int64_t count = for_tensor_batches(tensors.data(), 500, kPerBlock, [&](const TensorBatch& batch) {
    EXPECT_EQ(batch.first_block, seen_blocks);
    EXPECT_LE(batch.count, TensorBatch::kMost);
    int32_t block = 0;
    for (int i = 0; i < batch.count; ++i) {
      EXPECT_EQ(batch.tensors[i].first_block, block);
      EXPECT_GT(batch.tensors[i].elements, 0);
      block += static_cast<int32_t>((batch.tensors[i].elements + kPerBlock - 1) / kPerBlock);
      seen += batch.tensors[i].elements;
    }
    EXPECT_EQ(batch.blocks, block);
    seen_blocks += block;
  });
  EXPECT_EQ(seen, elements);
  EXPECT_EQ(seen_blocks, blocks);
  EXPECT_EQ(count, blocks);
}

TEST(TensorBatch, NothingIsNoLaunch) {
  const tc_tensor empty = dense(0);
  EXPECT_EQ(for_tensor_batches(&empty, 1, kPerBlock, [](const TensorBatch&) { FAIL(); }), 0);
  EXPECT_EQ(for_tensor_batches(nullptr, 0, kPerBlock, [](const TensorBatch&) { FAIL(); }), 0);
}

// A tensor of more blocks than a launch takes goes on in the next, at the right address.
TEST(TensorBatch, HugeTensorsAreSplit) {
  constexpr int64_t kMostBlocks = int64_t{1} << 30;
  const tc_tensor huge = dense(2 * kMostBlocks + 5, TC_DTYPE_BF16);
  std::vector<int64_t> parts, addresses;
  const int64_t blocks = for_tensor_batches(&huge, 1, 1, [&](const TensorBatch& batch) {
    for (int i = 0; i < batch.count; ++i) {
      parts.push_back(batch.tensors[i].elements);
      addresses.push_back(reinterpret_cast<intptr_t>(batch.tensors[i].data));
    }
  });
  EXPECT_EQ(blocks, 2 * kMostBlocks + 5);
  EXPECT_EQ(parts, (std::vector<int64_t>{kMostBlocks, kMostBlocks, 5}));
  EXPECT_EQ(addresses, (std::vector<int64_t>{0x1000, 0x1000 + 2 * kMostBlocks, 0x1000 + 4 * kMostBlocks}));
}

}  // namespace
}  // namespace tc::cuda
