#include "traincore/cpu/parallel.h"

#include <omp.h>

#include <algorithm>

// OpenMP lives here and not in a file compiled once per SIMD target: outlined regions lose the target attribute.
void tc::parallel_for(int64_t count, int threads, FunctionRef<void(int64_t)> body) {
  const int wanted = threads > 0 ? threads : omp_get_max_threads();
  const int team = static_cast<int>(std::min<int64_t>(wanted, count));
  if (team <= 1 || omp_in_parallel()) {
    for (int64_t i = 0; i < count; ++i) body(i);
    return;
  }
#pragma omp parallel for schedule(dynamic, 1) num_threads(team)
  for (int64_t i = 0; i < count; ++i) body(i);
}
