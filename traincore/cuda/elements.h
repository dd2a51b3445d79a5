// Tensors of one shape cut into items for an element-wise kernel, a thread each: dimensions that are dense together in
// every tensor are merged, and an item is a vector of 16 bytes or less where those fit. Pure.
#pragma once
#include <algorithm>
#include <initializer_list>
#include <string>

#include "traincore/core/view.h"

namespace tc::cuda {

inline constexpr int kItemThreads = 256;  // of a block

// Of K tensors. Dimensions count items in their last place, strides count elements.
template <int K>
struct Items {
  int64_t count, elements;  // the last item of one run of elements may be cut short
  int32_t width;            // elements of an item
  int32_t rank;             // at least 1
  int64_t extent[TC_MAX_RANK], stride[K][TC_MAX_RANK];
};

namespace detail {

template <int K>
void append_dimension(Items<K>& items, int64_t extent, const int64_t (&stride)[K]) {
  int32_t last = items.rank - 1;
  bool merges = last >= 0;
  for (int k = 0; k < K && merges; ++k) merges = items.stride[k][last] == extent * stride[k];
  if (!merges) last = items.rank++;
  items.extent[last] = merges ? items.extent[last] * extent : extent;
  for (int k = 0; k < K; ++k) items.stride[k][last] = stride[k];
}

template <int K>
bool fits_width(const Items<K>& items, const tc_tensor* const (&tensors)[K], int width) {
  const int32_t last = items.rank - 1;
  bool fits = last == 0 || items.extent[last] % width == 0;
  for (int k = 0; k < K; ++k) {
    const tc_tensor& t = *tensors[k];
    if (!given(t)) continue;
    fits &= items.stride[k][last] == 1 && reinterpret_cast<uintptr_t>(t.data) % (width * tc_dtype_size(t.dtype)) == 0;
    for (int d = 0; d < last; ++d) fits &= items.stride[k][d] % width == 0;
  }
  return fits;
}

}  // namespace detail

// Items of `width` elements where that fits every tensor, else of one. Absent tensors have no say; the first is there.
template <int K>
Items<K> items_of(const tc_tensor* const (&tensors)[K], int width) {
  const tc_tensor& shape = *tensors[0];
  Items<K> items{1, element_count(shape), 1, 0, {}, {}};
  for (int d = 0; d < shape.rank; ++d) {
    if (shape.shape[d] == 1) continue;
    int64_t stride[K];
    // An absent tensor merges whenever the first does.
    for (int k = 0; k < K; ++k) stride[k] = (given(*tensors[k]) ? *tensors[k] : shape).stride[d];
    detail::append_dimension(items, shape.shape[d], stride);
  }
  if (items.rank == 0) {
    items.rank = 1, items.extent[0] = 1;
    for (int k = 0; k < K; ++k) items.stride[k][0] = 1;
  }
  const int32_t last = items.rank - 1;
  if (width > 1 && detail::fits_width(items, tensors, width)) {
    items.width = width;
    items.extent[last] = (items.extent[last] + width - 1) / width;
    for (int k = 0; k < K; ++k) items.stride[k][last] = width;
  }
  for (int d = 0; d < items.rank; ++d) items.count *= items.extent[d];
  return items;
}

template <int K>
std::string describe(const Items<K>& items) {
  return items.width > 1 ? "a full grid, a thread for every " + std::to_string(items.width) + " elements"
                         : "a full grid, element by element: a stride or an address is no multiple of a vector";
}

}  // namespace tc::cuda
