// Boxes of a matrix of 16-bit elements, which Hopper's copy engine brings into shared memory: rows of 128 bytes, whose
// 16-byte chunks stand at chunk ^ row % 8. What a box has beyond the matrix is zero.
#pragma once
#include <cuda.h>

#include "traincore/core/types.h"

namespace tc::cuda {

inline constexpr int kBoxColumns = 64;  // that 128 bytes have

// A view of the matrix in three dimensions, the first of them contiguous; `box` is its part of it, box[0] = kBoxColumns.
// Strides are in bytes and multiples of 16; data is aligned to 16 bytes.
struct BoxView {
  const void* data;
  int32_t dtype;
  uint64_t extents[3], strides[2];
  uint32_t box[3];
};

// What kernels take boxes by, as a __grid_constant__ argument. Host code only; `name` is the kernel's, for errors.
CUtensorMap box_map(const char* name, const BoxView& view);

}  // namespace tc::cuda
