// CPU cast: the SIMD conversions are those of cpu/vector, this is the way through the elements.
#include "traincore/cpu/elements.h"
#include "traincore/ops/cast/cast.h"

namespace tc::ops::cast {

void cast_cpu(const tcx_cast_args& a, const tc_exec& exec) {
  const Elements x(a.x), y(a.y);
  parallel_chunks(x.count(), exec.threads, [&](int64_t first, int64_t n) {
    alignas(64) float scratch[Elements::kChunk];
    y.write(first, n, x.read(first, n, y.place(first, n, scratch)));
  });
}

}  // namespace tc::ops::cast
