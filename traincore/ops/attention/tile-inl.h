// Products of small f32 matrices in cache, register by register: what the attention kernels spend their time in.
//
//   C[m, n] (op)= A[m, k] B[k, n]
//
// Rows come in groups of kGroup and columns in whole vectors, so every matrix of a kernel's scratch is padded to that;
// the padding holds finite numbers and is never used. An element is summed over k in order, whatever the tile around
// it.
#if defined(TRAINCORE_OPS_ATTENTION_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRAINCORE_OPS_ATTENTION_TILE_INL_H_
#undef TRAINCORE_OPS_ATTENTION_TILE_INL_H_
#else
#define TRAINCORE_OPS_ATTENTION_TILE_INL_H_
#endif

#include "traincore/cpu/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tc::ops::attention::HWY_NAMESPACE {
namespace {

using namespace tc::HWY_NAMESPACE;  // NOLINT(google-build-using-namespace): the SIMD vocabulary of this target

constexpr int kGroup = 6;  // 6 x 2 vectors of sums leave room for one row of B and one element of A in 16 registers

// Element (i, j) is at data + i * stride + j. Read transposed, A's element (i, j) is at data + j * stride + i.
struct Matrix {
  const float* data;
  int64_t stride;
};

// One group of rows by kWidth vectors: finish(row, column, sum) takes each vector of the product.
template <int kWidth, bool kTransposed, class Finish>
HWY_INLINE void multiply_group(Matrix a, Matrix b, int64_t depth, Finish&& finish) {
  const int64_t across = kTransposed ? 1 : a.stride, along = kTransposed ? a.stride : 1;
  V sum[kGroup][kWidth];
  for (auto& row : sum) std::fill(row, row + kWidth, hn::Zero(F32()));
  for (int64_t k = 0; k < depth; ++k) {
    V line[kWidth];
    for (int w = 0; w < kWidth; ++w) line[w] = load(b.data + k * b.stride + w * lanes());
    for (int r = 0; r < kGroup; ++r) {
      const V element = set(a.data[r * across + k * along]);
      for (int w = 0; w < kWidth; ++w) sum[r][w] = hn::MulAdd(element, line[w], sum[r][w]);
    }
  }
  for (int r = 0; r < kGroup; ++r)
    for (int w = 0; w < kWidth; ++w) finish(r, w * lanes(), sum[r][w]);
}

// finish(row, column, sum) for every vector of A B; m and n are rounded up to whole groups and vectors.
template <bool kTransposed, class Finish>
HWY_INLINE void multiply(int64_t m, int64_t n, int64_t depth, Matrix a, Matrix b, Finish&& finish) {
  const int64_t step = lanes();
  const auto column = [&]<int kWidth>(int64_t j) HWY_ATTR {
    for (int64_t i = 0; i < m; i += kGroup) {
      const Matrix rows{a.data + (kTransposed ? i : i * a.stride), a.stride};
      multiply_group<kWidth, kTransposed>(rows, {b.data + j, b.stride}, depth,
                                          [&](int r, int64_t c, V sum) HWY_ATTR { finish(i + r, j + c, sum); });
    }
  };
  int64_t j = 0;
  for (; j + step < n; j += 2 * step) column.template operator()<2>(j);
  if (j < n) column.template operator()<1>(j);
}

}  // namespace
}  // namespace tc::ops::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // TRAINCORE_OPS_ATTENTION_TILE_INL_H_
