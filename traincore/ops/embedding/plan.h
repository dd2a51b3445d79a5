// The scratch of embedding's passes, and the check of ids that comes before any row is touched.
#pragma once
#include "traincore/core/arena.h"
#include "traincore/core/view.h"
#include "traincore/ops/embedding/embedding.h"

namespace tc::ops::embedding {

// The rows of dy sorted by id: those of id v are order[starts[v]] to order[starts[v + 1] - 1], in their own order.
struct BackwardScratch {
  int64_t* starts;  // [vocab + 1]
  int64_t* order;   // [rows]
};
inline BackwardScratch carve_backward(const tcx_embedding_backward_args& a, Arena& arena) {
  return {arena.take<int64_t>(a.dweight.shape[0] + 1), arena.take<int64_t>(element_count(a.ids))};
}

inline void require_in_vocabulary(const char* pass, const Indices& ids, int64_t vocab) {
  for (int64_t r = 0; r < ids.count(); ++r)
    require(ids[r] >= 0 && ids[r] < vocab, "{}: ids[{}] (counted row by row) is {}, but must be in [0, {})", pass, r,
            ids[r], vocab);
}

}  // namespace tc::ops::embedding
