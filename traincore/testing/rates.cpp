// Copies compiled once per SIMD target, as the kernels they are the measure of.
#include "traincore/testing/rates.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "traincore/cpu/parallel.h"
#include "traincore/testing/calls.h"
#include "traincore/testing/machine.h"
#include "traincore/testing/timing.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "traincore/testing/rates.cpp"
#include "hwy/foreach_target.h"
//
#include "hwy/cache_control.h"
#include "traincore/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tc::testing::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// n is a multiple of every vector length; both arrays are aligned.
void vector_copy(const float* from, float* to, int64_t n) {
  const hn::ScalableTag<float> d;
  for (int64_t i = 0; i < n; i += static_cast<int64_t>(hn::Lanes(d))) hn::Store(hn::Load(d, from + i), d, to + i);
}
void streaming_copy(const float* from, float* to, int64_t n) {
  const hn::ScalableTag<float> d;
  for (int64_t i = 0; i < n; i += static_cast<int64_t>(hn::Lanes(d))) hn::Stream(hn::Load(d, from + i), d, to + i);
  hwy::FlushStream();
}
void update(const float* from, float* to, int64_t n) {
  const hn::ScalableTag<float> d;
  const auto decay = hn::Set(d, 0.999f);
  for (int64_t i = 0; i < n; i += static_cast<int64_t>(hn::Lanes(d)))
    hn::Store(hn::Mul(hn::Load(d, from + i), decay), d, to + i);
}

// A stand-in for the rows of a kernel that stay in the first-level cache.
constexpr int64_t kRow = 2048;
template <class F>
void evaluate_rows(const float* x, float* y, int64_t n, F f) {
  for (int64_t done = 0; done < n; done += kRow)
    tc::HWY_NAMESPACE::map_row(0, kRow, y, false, [=](auto at) HWY_ATTR { return f(at.load(x)); });
}
void evaluate_exp(const float* x, float* y, int64_t n) {
  evaluate_rows(x, y, n, [](auto v) HWY_ATTR { return tc::HWY_NAMESPACE::exp(v); });
}
void evaluate_tanh(const float* x, float* y, int64_t n) {
  evaluate_rows(x, y, n, [](auto v) HWY_ATTR { return tc::HWY_NAMESPACE::tanh(v); });
}

}  // namespace
}  // namespace tc::testing::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tc::testing {
HWY_EXPORT(vector_copy);
HWY_EXPORT(streaming_copy);
HWY_EXPORT(update);
HWY_EXPORT(evaluate_exp);
HWY_EXPORT(evaluate_tanh);
namespace {

constexpr double kSeconds = 0.5;              // per way of copying
constexpr int64_t kSlice = int64_t{1} << 20;  // arrays are multiples of this many elements

using Traversal = void (*)(const float*, float*, int64_t);
void by_memcpy(const float* from, float* to, int64_t n) { std::memcpy(to, from, n * sizeof(float)); }
void by_vectors(const float* from, float* to, int64_t n) { HWY_DYNAMIC_DISPATCH(vector_copy)(from, to, n); }
void by_streaming(const float* from, float* to, int64_t n) { HWY_DYNAMIC_DISPATCH(streaming_copy)(from, to, n); }
void exponentials(const float* from, float* to, int64_t n) { HWY_DYNAMIC_DISPATCH(evaluate_exp)(from, to, n); }
void hyperbolic_tangents(const float* from, float* to, int64_t n) { HWY_DYNAMIC_DISPATCH(evaluate_tanh)(from, to, n); }
void in_place(const float* from, float* to, int64_t n) { HWY_DYNAMIC_DISPATCH(update)(from, to, n); }

// Elements of each of two arrays: 256 MB together, more where the cache is large, less where memory is short.
int64_t array_length() {
  const int64_t wanted = std::max(int64_t{128} << 20, 2 * machine().cache_bytes);
  const int64_t bytes = std::min(wanted, free_memory_bytes() / 4);
  return std::max<int64_t>(bytes / 4 / kSlice, 1) * kSlice;
}

class Array {
 public:
  explicit Array(int64_t n) : data_(static_cast<float*>(::operator new (n * sizeof(float), std::align_val_t{4096}))) {
    Random random(1);
    for (int64_t i = 0; i < kSlice; ++i) data_[i] = static_cast<float>(random.uniform());
    for (int64_t i = kSlice; i < n; i += kSlice) std::memcpy(data_ + i, data_, kSlice * sizeof(float));
  }
  ~Array() { ::operator delete (data_, std::align_val_t{4096}); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  float* data() { return data_; }

 private:
  float* data_;
};

// One contiguous part per thread, as a program that copies one array would.
double bytes_per_second(Traversal copy, const float* from, float* to, int64_t n, int threads) {
  const int64_t slices = n / kSlice, parts = std::min<int64_t>(threads, slices);
  const Timing t = measure(kSeconds, [&](int) {
    parallel_for(parts, threads, [&](int64_t part) {
      const int64_t begin = slices * part / parts * kSlice, end = slices * (part + 1) / parts * kSlice;
      copy(from + begin, to + begin, end - begin);
    });
  });
  return 2.0 * static_cast<double>(n) * sizeof(float) / t.best;
}

// Each thread evaluates the same few elements over and over, and writes to memory of its own.
double evaluations_per_second(Traversal function, const float* from, float* to, int threads) {
  const Timing t = measure(kSeconds, [&](int) {
    parallel_for(threads, threads, [&](int64_t part) { function(from, to + part * kSlice, kSlice); });
  });
  return static_cast<double>(threads) * static_cast<double>(kSlice) / t.best;
}

double flops_per_second(int threads) {
  constexpr int64_t kSize = 2048;
  const OpCases* op = find_op("gemm");
  if (!op) return 0;
  const Case c = Case().dim("batch", std::vector<int64_t>{}).dim("m", kSize).dim("n", kSize).dim("k", kSize);
  const Calls product(*op, {.pass = "gemm_forward"}, c, TC_DTYPE_F32);
  tc_exec exec = tc_exec_default();
  exec.threads = threads;
  const Timing t = measure(2 * kSeconds, [&](int run) { product.run(run, exec); });
  return 2.0 * kSize * kSize * kSize / t.best;
}

}  // namespace

Rates measure_rates(int threads, const std::function<void(int64_t done, int64_t total)>& progress) {
  const int team = threads > 0 ? threads : machine().threads;
  const int64_t n = array_length();
  Array a(n), b(n);
  const std::pair<const char*, Traversal> ways[] = {
      {"memcpy", by_memcpy}, {"vector stores", by_vectors}, {"non-temporal stores", by_streaming}};
  constexpr int64_t kSteps = std::size(ways) + 4;
  int64_t step = 0;
  Rates rates;
  for (const auto& [name, copy] : ways) {
    progress(step++, kSteps);
    if (const double rate = bytes_per_second(copy, a.data(), b.data(), n, team); rate > rates.copy)
      rates.copy = rate, rates.copied_by = name;
  }
  progress(step++, kSteps);
  rates.update = bytes_per_second(in_place, a.data(), a.data(), n, team);
  const int parts = static_cast<int>(std::min<int64_t>(team, n / kSlice));
  progress(step++, kSteps);
  rates.exp = evaluations_per_second(exponentials, a.data(), b.data(), parts);
  progress(step++, kSteps);
  rates.tanh = evaluations_per_second(hyperbolic_tangents, a.data(), b.data(), parts);
  progress(step++, kSteps);
  rates.gemm = flops_per_second(team);
  return rates;
}

}  // namespace tc::testing
#endif
