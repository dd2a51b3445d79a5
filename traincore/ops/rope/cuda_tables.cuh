// Device code: the tables of a rotation, and who is turned by which of their rows.
#pragma once
#include "traincore/cuda/elements.cuh"
#include "traincore/cuda/indices.cuh"

namespace tc::ops::rope {

// The row of the tables for position s of sequence b: chosen by positions, or counted.
struct TableRows {
  cuda::AnyIndices positions;
  bool gathers;
  int64_t batch_stride, count;  // 0: all sequences have the same rows
  TableRows(const tc_tensor& cos, const tc_tensor& positions_, int64_t seq)
      : positions(positions_),
        gathers(given(positions_)),
        batch_stride((gathers ? positions_.rank : cos.rank - 1) > 1 ? seq : 0),
        count(rows_of<char>(cos).count) {}
  __device__ __forceinline__ int64_t chosen(int64_t b, int64_t s) const {
    const int64_t at = b * batch_stride + s;
    return gathers ? positions[at] : at;
  }
  // -1 where a chosen row is outside of the tables.
  __device__ __forceinline__ int64_t inside(int64_t row) const { return row >= 0 && row < count ? row : -1; }
};

// Where the two elements of a pair are in their row.
template <bool kInterleaved>
__device__ __forceinline__ int64_t first_of_pair(int64_t pair) {
  return kInterleaved ? 2 * pair : pair;
}
template <bool kInterleaved>
__device__ __forceinline__ int64_t second_of_pair(int64_t pair, int64_t half) {
  return kInterleaved ? 2 * pair + 1 : half + pair;
}

}  // namespace tc::ops::rope
