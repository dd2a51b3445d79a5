#include "traincore/cpu/parallel.h"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <exception>

#include "hwy/cache_control.h"

namespace tc {
namespace {

// The first exception that leaves any thread's body; an exception must not leave an OpenMP region itself.
class FirstException {
 public:
  template <class F>
  void guard(F&& body) noexcept {
    if (thrown_.load(std::memory_order_relaxed)) return;
    try {
      body();
    } catch (...) {
      if (!thrown_.exchange(true)) first_ = std::current_exception();
    }
  }
  void rethrow() const {
    if (first_) std::rethrow_exception(first_);
  }

 private:
  std::atomic<bool> thrown_ = false;
  std::exception_ptr first_;
};

}  // namespace

// OpenMP lives here and not in a file compiled once per SIMD target: outlined regions lose the target attribute.
void parallel_for(int64_t count, int threads, FunctionRef<void(int64_t)> body) {
  // OpenMP ends the process when it cannot start a thread, so more than the machine can use are never asked for.
  constexpr int kAlwaysGranted = 64;
  const int most = std::max({omp_get_num_procs(), omp_get_max_threads(), kAlwaysGranted});
  const int wanted = threads > 0 ? std::min(threads, most) : omp_get_max_threads();
  const int team = static_cast<int>(std::min<int64_t>(wanted, count));
  if (team <= 1 || omp_in_parallel()) {
    for (int64_t i = 0; i < count; ++i) body(i);
    hwy::FlushStream();
    return;
  }
  FirstException failure;
#pragma omp parallel num_threads(team)
  {
#pragma omp for schedule(dynamic, 1) nowait
    for (int64_t i = 0; i < count; ++i) failure.guard([&] { body(i); });
    hwy::FlushStream();
  }
  failure.rethrow();
}

SingleThread::SingleThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
SingleThread::~SingleThread() { omp_set_num_threads(before_); }

}  // namespace tc
