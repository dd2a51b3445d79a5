// CPU fill: one chunk of the value, stored all over y.
#include "traincore/cpu/elements.h"
#include "traincore/ops/fill/fill.h"

namespace tc::ops::fill {

void fill_cpu(const tcx_fill_args& a, const tc_exec& exec) {
  const Elements y(a.y);
  alignas(64) float values[Elements::kChunk];
  std::fill_n(values, std::min(y.count(), Elements::kChunk), static_cast<float>(a.value));
  parallel_chunks(y.count(), exec.threads, [&](int64_t first, int64_t n) { y.write(first, n, values); });
}

}  // namespace tc::ops::fill
