// The gather: rows are copied as they are.
#include <cstring>

#include "traincore/core/dispatch.h"
#include "traincore/cpu/parallel.h"
#include "traincore/cpu/streaming.h"
#include "traincore/cpu/vector.h"
#include "traincore/ops/embedding/plan.h"

namespace tc::ops::embedding {

void forward_cpu(const tcx_embedding_forward_args& a, const tc_exec& exec) {
  const Indices ids(a.ids);
  require_in_vocabulary("embedding_forward", ids, a.weight.shape[0]);
  with_type(FloatTypes{}, a.weight.dtype, [&]<class T>() {
    const auto weight = rows_of<const T>(a.weight);
    const auto y = rows_of<T>(a.y);
    const size_t bytes = static_cast<size_t>(y.cols) * sizeof(T);
    const bool streamed = streams(a.y, {});
    parallel_blocks(y.count, rows_per_block(y.count, y.cols), exec.threads, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r)
        streamed ? stream(weight[ids[r]], bytes, y[r]) : void(std::memcpy(y[r], weight[ids[r]], bytes));
    });
  });
}

}  // namespace tc::ops::embedding
