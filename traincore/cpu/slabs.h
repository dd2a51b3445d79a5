// Sums over rows in an order that the number of rows alone fixes: rows are cut into slabs, one thread sums a slab's rows
// in order, and slabs are added in order.
#pragma once
#include <algorithm>
#include <cstdint>

#include "traincore/cpu/parallel.h"

namespace tc {

// Enough for the threads of a socket; at least one, so that no rows give a sum of 0.
constexpr int64_t slab_count(int64_t rows) {
  constexpr int64_t kMost = 16;
  return std::clamp<int64_t>(rows, 1, kMost);
}

// body(slab, begin, end) for every slab and its rows.
template <class F>
void parallel_slabs(int64_t rows, int threads, F&& body) {
  const int64_t slabs = slab_count(rows);
  parallel_for(slabs, threads, [&](int64_t slab) { body(slab, rows * slab / slabs, rows * (slab + 1) / slabs); });
}

}  // namespace tc
