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

// Two vectors of a row, of pairs that they make together (halves) or each by itself (interleaved), in order.
template <int kVec, bool kInterleaved>
__device__ __forceinline__ void turn(cuda::Floats<kVec>& a, cuda::Floats<kVec>& b, const cuda::Floats<kVec>& cos,
                                     const cuda::Floats<kVec>& sin) {
  const auto pair = [](float& x1, float& x2, float c, float s) {
    const float y1 = fmaf(-x2, s, x1 * c);
    x2 = fmaf(x1, s, x2 * c);
    x1 = y1;
  };
#pragma unroll
  for (int i = 0; i < kVec; ++i) {
    if constexpr (!kInterleaved || kVec == 1)
      pair(a[i], b[i], cos[i], sin[i]);
    else if (i < kVec / 2)
      pair(a[2 * i], a[2 * i + 1], cos[i], sin[i]);
    else
      pair(b[2 * i - kVec], b[2 * i - kVec + 1], cos[i], sin[i]);
  }
}

}  // namespace tc::ops::rope
