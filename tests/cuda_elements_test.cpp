// How tensors of one shape become the items of an element-wise GPU kernel: pure, so it is tested on machines without a GPU.
#include "traincore/cuda/elements.h"

#include <gtest/gtest.h>

namespace tc::cuda {
namespace {

alignas(64) float memory[64];

tc_tensor dense(std::initializer_list<int64_t> shape) {
  return tc_tensor_dense(memory, TC_DTYPE_F32, static_cast<int32_t>(shape.size()), shape.begin());
}

TEST(Items, DenseTensorsAreOneRunWhoseLastItemIsCutShort) {
  const tc_tensor x = dense({3, 5, 7}), y = dense({3, 5, 7});
  const Items<2> items = items_of<2>({&x, &y}, 4);
  EXPECT_EQ(items.rank, 1);
  EXPECT_EQ(items.width, 4);
  EXPECT_EQ(items.elements, 105);
  EXPECT_EQ(items.count, 27);
  EXPECT_EQ(items.stride[0][0], 4);
}

TEST(Items, HalvesOfAPackedTensorAreRowsOfVectors) {
  tc_tensor gate = dense({2, 3, 8}), y = gate;
  gate.stride[0] = 3 * 16, gate.stride[1] = 16;
  const Items<2> items = items_of<2>({&gate, &y}, 4);
  EXPECT_EQ(items.rank, 2);
  EXPECT_EQ(items.width, 4);
  EXPECT_EQ(items.extent[0], 6);
  EXPECT_EQ(items.extent[1], 2);
  EXPECT_EQ(items.stride[0][0], 16);
  EXPECT_EQ(items.stride[1][0], 8);
  EXPECT_EQ(items.count, 12);
}

TEST(Items, WhatNoVectorFitsGoesElementByElement) {
  tc_tensor x = dense({4, 6}), y = x;
  x.stride[0] = 7;  // an odd stride
  EXPECT_EQ((items_of<2>({&x, &y}, 4).width), 1);
  x.stride[0] = 8;  // rows of a vector and a half
  EXPECT_EQ((items_of<2>({&x, &y}, 4).width), 1);
  x = y;
  x.data = memory + 1;
  EXPECT_EQ((items_of<2>({&x, &y}, 4).width), 1);
  x = y;
  x.stride[0] = 1, x.stride[1] = 4;  // a transpose
  const Items<2> items = items_of<2>({&x, &y}, 4);
  EXPECT_EQ(items.width, 1);
  EXPECT_EQ(items.rank, 2);
  EXPECT_EQ(items.count, 24);
}

TEST(Items, AbsentTensorsHaveNoSay) {
  const tc_tensor x = dense({4, 6}), absent{};
  const Items<2> items = items_of<2>({&x, &absent}, 4);
  EXPECT_EQ(items.rank, 1);
  EXPECT_EQ(items.width, 4);
}

TEST(Items, ScalarsAndEmptyTensors) {
  const tc_tensor scalar = dense({}), ones = dense({1, 1}), empty = dense({3, 0, 2});
  for (const tc_tensor& t : {scalar, ones}) {
    const Items<1> items = items_of<1>({&t}, 4);
    EXPECT_EQ(items.rank, 1);
    EXPECT_EQ(items.count, 1);
    EXPECT_EQ(items.elements, 1);
  }
  EXPECT_EQ((items_of<1>({&empty}, 4).count), 0);
}

}  // namespace
}  // namespace tc::cuda
