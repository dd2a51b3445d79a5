// When a kernel writes past the caches. An output larger than they are is read from memory by whoever comes next, so
// non-temporal stores lose nothing and save reading each line before it is overwritten. parallel_for makes them visible.
#pragma once
#include <algorithm>
#include <initializer_list>

#include "traincore/core/view.h"

namespace tc {

// A build for tests may set it to 0, so that small tensors go the way of large ones.
#ifndef TC_STREAMED_BYTES
#define TC_STREAMED_BYTES (int64_t{8} << 20)
#endif
inline constexpr int64_t kStreamedBytes = TC_STREAMED_BYTES;

// Of an output written once in this pass; in place of one of `inputs` its lines were just read, and stay.
inline bool streams(const tc_tensor& out, std::initializer_list<const tc_tensor*> inputs) {
  return element_count(out) * static_cast<int64_t>(tc_dtype_size(out.dtype)) > kStreamedBytes &&
         std::none_of(inputs.begin(), inputs.end(), [&](const tc_tensor* t) { return t->data == out.data; });
}

}  // namespace tc
