// Device code: the way of a thread through the items of elements.h.
#pragma once
#include <cstddef>
#include <type_traits>

#include "traincore/core/view.h"
#include "traincore/cuda/vec.cuh"

namespace tc::cuda {

template <int K>
struct Items;  // of elements.h

template <int N>
using Width = std::integral_constant<int, N>;

template <class Index, int K>
__device__ __forceinline__ void locate_as(const Items<K>& items, Index i, int64_t (&at)[K]) {
#pragma unroll
  for (int k = 0; k < K; ++k) at[k] = 0;
#pragma unroll 1
  for (int d = items.rank - 1; d >= 0; --d) {
    const Index extent = Index(items.extent[d]), rest = i / extent;
    const int64_t place = int64_t(i - rest * extent);
#pragma unroll
    for (int k = 0; k < K; ++k) at[k] += place * items.stride[k][d];
    i = rest;
  }
}

// Where item i starts in each tensor, in elements.
template <int K>
__device__ __forceinline__ void locate(const Items<K>& items, int64_t i, int64_t (&at)[K]) {
  if (items.rank == 1) {
#pragma unroll
    for (int k = 0; k < K; ++k) at[k] = i * items.stride[k][0];
  } else if (items.count <= UINT32_MAX) {
    locate_as(items, uint32_t(i), at);
  } else {
    locate_as(items, uint64_t(i), at);
  }
}

// f(Width<N>, at) for the items of this thread, at[k] being where N elements of tensor k start: N is kWidth, and 1 for the
// elements of an item that is cut short.
template <int kWidth, int K, class F>
__device__ __forceinline__ void each_item(const Items<K>& items, F&& f) {
  const auto each = [&](auto&& place) {
    for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < items.count;
         i += int64_t(gridDim.x) * blockDim.x) {
      int64_t at[K];
      place(i, at);
      if (kWidth == 1 || (i + 1) * kWidth <= items.elements) {
        f(Width<kWidth>{}, at);
      } else {
#pragma unroll 1
        for (int64_t rest = items.elements - i * kWidth; rest > 0; --rest) {
          f(Width<1>{}, at);
#pragma unroll
          for (int k = 0; k < K; ++k) ++at[k];
        }
      }
    }
  };
  if (kWidth > 1 && items.rank == 1)  // one run of elements: all tensors' places are one number
    each([](int64_t i, int64_t(&at)[K]) {
#pragma unroll
      for (int k = 0; k < K; ++k) at[k] = i * kWidth;
    });
  else
    each([&](int64_t i, int64_t(&at)[K]) { locate(items, i, at); });
}

// A tensor whose dtype is known only at run time; the same for every thread, so the branch costs little. N elements of
// f32 have 16 bytes at most.
struct AnyElements {
  void* data;
  int32_t dtype;
  template <int N>
  __device__ __forceinline__ Floats<N> load(int64_t at) const {
    if (dtype == TC_DTYPE_F32) return Pack<float, N>::load(static_cast<const float*>(data) + at).f32();
    if (dtype == TC_DTYPE_BF16) return Pack<bf16, N>::load(static_cast<const bf16*>(data) + at).f32();
    return Pack<f16, N>::load(static_cast<const f16*>(data) + at).f32();
  }
  template <int N>
  __device__ __forceinline__ void store(int64_t at, const Floats<N>& x) const {
    if (dtype == TC_DTYPE_F32)
      Pack<float, N>::from(x).store(static_cast<float*>(data) + at);
    else if (dtype == TC_DTYPE_BF16)
      Pack<bf16, N>::from(x).store(static_cast<bf16*>(data) + at);
    else
      Pack<f16, N>::from(x).store(static_cast<f16*>(data) + at);
  }
};
inline AnyElements any_elements(const tc_tensor& t) { return {t.data, t.dtype}; }

// [rows... cols] of a run-time dtype, a few columns at a time.
struct AnyTable {
  Rows<std::byte> rows;
  int32_t dtype, element_bytes;
  explicit AnyTable(const tc_tensor& t)
      : rows(rows_of<std::byte>(t)), dtype(t.dtype), element_bytes(static_cast<int32_t>(tc_dtype_size(t.dtype))) {
    for (int i = 0; i < rows.rank; ++i) rows.stride[i] *= element_bytes;
  }
  __device__ __forceinline__ std::byte* at(int64_t row, int64_t column) const {
    return rows[row] + column * element_bytes;
  }
  template <int N>
  __device__ __forceinline__ Floats<N> load(int64_t row, int64_t column) const {
    return AnyVector{at(row, column), dtype}.template load<N>(0);
  }
  __device__ __forceinline__ void store(int64_t row, int64_t column, float x) const {
    store_as(at(row, column), dtype, 0, x);
  }
};

}  // namespace tc::cuda
