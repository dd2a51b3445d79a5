// When a kernel writes past the caches. An output larger than they are is read from memory by whoever comes next, so
// non-temporal stores lose nothing and save reading each line before it is overwritten. parallel_for makes them visible.
#pragma once
#include <algorithm>
#include <atomic>
#include <initializer_list>

#include "traincore/core/view.h"

namespace tc {

// Larger outputs are streamed. check sets it to 0 for a while, so that small tensors go the way of large ones.
inline std::atomic<int64_t> streamed_bytes{int64_t{8} << 20};

// Of an output written once in this pass; in place of one of `inputs` its lines were just read, and stay.
inline bool streams(const tc_tensor& out, std::initializer_list<const tc_tensor*> inputs) {
  return element_count(out) * static_cast<int64_t>(tc_dtype_size(out.dtype)) >
             streamed_bytes.load(std::memory_order_relaxed) &&
         std::none_of(inputs.begin(), inputs.end(), [&](const tc_tensor* t) { return t->data == out.data; });
}

}  // namespace tc
