// gemm beside oneDNN called directly: the same matrices, in one process, in interleaved rounds.
//
//     gemm_onednn [rounds [threads [text]]]    (7 rounds; 1 and 2 threads; the products whose name has the text)
//
// oneDNN's own call is dnnl_sgemm, to which its matmul primitive comes down below AVX-512. Below AVX-512 it refuses
// bf16, so the bf16 column, which reads and writes half the bytes and converts, stands beside oneDNN in f32 as well.
// Printed: GFLOP/s, best of the rounds, and the share of oneDNN's.
#include <dnnl.h>
#include <fmt/core.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <random>
#include <string_view>
#include <vector>

#include "traincore/core/numeric.h"
#include "traincore/ops/gemm/gemm.h"

namespace {

struct Shape {
  const char* what;
  int64_t m, n, k;
  bool transpose_a, transpose_b;
};
// Those of a 124M Llama: linear layers forward (x W^T), their gradients (dy W and dy^T x), decoding, the head; then
// others.
constexpr Shape kShapes[] = {
    {"square", 2048, 2048, 2048, false, false},
    {"qkv", 1024, 2304, 768, false, true},
    {"out", 1024, 768, 768, false, true},
    {"gate, up", 1024, 4096, 768, false, true},
    {"down", 1024, 768, 2048, false, true},
    {"qkv dx", 1024, 768, 2304, false, false},
    {"gate, up dx", 1024, 768, 4096, false, false},
    {"down dx", 1024, 2048, 768, false, false},
    {"qkv dW", 2304, 768, 1024, true, false},
    {"out dW", 768, 768, 1024, true, false},
    {"gate, up dW", 4096, 768, 1024, true, false},
    {"down dW", 768, 2048, 1024, true, false},
    {"head", 1024, 50257, 768, false, true},
    {"head, B^T stored", 1024, 50257, 768, false, false},
    {"head dx", 1024, 768, 50257, false, false},
    {"head dW", 50257, 768, 1024, true, false},
    {"decode", 1, 768, 768, false, true},
    {"decode", 1, 2304, 768, false, true},
    {"decode", 1, 768, 2048, false, true},
    {"decode", 1, 50257, 768, false, true},
    {"decode", 4, 2304, 768, false, true},
    {"decode", 4, 768, 2048, false, true},
    {"decode", 4, 50257, 768, false, true},
    {"decode", 16, 2304, 768, false, true},
    {"decode", 16, 768, 2048, false, true},
    {"decode", 16, 50257, 768, false, true},
    {"row, B as is", 1, 2304, 768, false, false},
    {"rows, B as is", 4, 2304, 768, false, false},
    {"rows, B as is", 16, 2304, 768, false, false},
    {"column", 2304, 1, 768, false, false},
    {"columns", 2304, 4, 768, false, false},
    {"long sum", 64, 64, 16384, true, false},
    {"K odd", 1024, 768, 1023, false, true},
    {"K odd", 1024, 768, 1023, false, false},
    {"K odd", 16, 768, 1023, false, true},
    {"all odd", 511, 769, 1023, true, false},
    {"small", 64, 64, 64, false, false},
    {"small", 128, 128, 128, false, true},
};

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::vector<float> random_values(int64_t n) {
  std::minstd_rand engine(static_cast<uint32_t>(n));
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& value : values) value = uniform(engine);
  return values;
}

template <class T>
struct Matrices {
  std::vector<T> a, b, c;
  Matrices(const Shape& s, const std::vector<float>& a_values, const std::vector<float>& b_values)
      : a(a_values.begin(), a_values.end()), b(b_values.begin(), b_values.end()), c(static_cast<size_t>(s.m * s.n)) {}
};

tc_tensor matrix(void* data, int32_t dtype, int64_t rows, int64_t cols) {
  const int64_t shape[] = {rows, cols};
  return tc_tensor_dense(data, dtype, 2, shape);
}

template <class T>
void run_traincore(const Shape& s, Matrices<T>& x, int threads) {
  constexpr int32_t kDtype = sizeof(T) == 4 ? TC_DTYPE_F32 : TC_DTYPE_BF16;
  auto args = tcx_gemm_forward_args_default();
  args.a = s.transpose_a ? matrix(x.a.data(), kDtype, s.k, s.m) : matrix(x.a.data(), kDtype, s.m, s.k);
  args.b = s.transpose_b ? matrix(x.b.data(), kDtype, s.n, s.k) : matrix(x.b.data(), kDtype, s.k, s.n);
  args.c = matrix(x.c.data(), kDtype, s.m, s.n);
  args.transpose_a = s.transpose_a, args.transpose_b = s.transpose_b;
  tc_exec exec = tc_exec_default();
  exec.threads = threads;
  tc::gemm_forward(args, exec);
}

void run_onednn(const Shape& s, Matrices<float>& x, int threads) {
  omp_set_num_threads(threads);
  const dnnl_status_t status =
      dnnl_sgemm(s.transpose_a ? 'T' : 'N', s.transpose_b ? 'T' : 'N', s.m, s.n, s.k, 1, x.a.data(),
                 s.transpose_a ? s.m : s.k, x.b.data(), s.transpose_b ? s.k : s.n, 0, x.c.data(), s.n);
  if (status != dnnl_success) std::abort();
}

// The best time of one call in a round of about 50 ms.
template <class F>
double time_of(double estimate, F&& call) {
  const int calls = static_cast<int>(std::clamp(0.05 / estimate, 1.0, 2000.0));
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < calls; ++i) {
    const double begin = now();
    call();
    best = std::min(best, now() - begin);
  }
  return best;
}

void measure(const Shape& s, int rounds, int threads) {
  const std::vector<float> a = random_values(s.m * s.k), b = random_values(s.k * s.n);
  Matrices<float> f32(s, a, b), own(s, a, b);
  Matrices<tc::bf16> bf16(s, a, b);
  const double work = 2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
  double onednn = std::numeric_limits<double>::infinity(), ours = onednn, ours_bf16 = onednn;
  run_onednn(s, f32, threads), run_traincore(s, own, threads), run_traincore(s, bf16, threads);
  for (int round = 0; round < rounds; ++round) {
    const double estimate = work / (40e9 * threads);
    onednn = std::min(onednn, time_of(estimate, [&] { run_onednn(s, f32, threads); }));
    ours = std::min(ours, time_of(estimate, [&] { run_traincore(s, own, threads); }));
    ours_bf16 = std::min(ours_bf16, time_of(estimate, [&] { run_traincore(s, bf16, threads); }));
  }
  fmt::print("{} | {:17} {:5} x {:5} x {:5} {}{} | {:6.1f} | {:6.1f} {:5.2f} | {:6.1f} {:5.2f}\n", threads, s.what, s.m,
             s.n, s.k, s.transpose_a ? 'T' : 'N', s.transpose_b ? 'T' : 'N', work / onednn * 1e-9, work / ours * 1e-9,
             onednn / ours, work / ours_bf16 * 1e-9, onednn / ours_bf16);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 7;
  const std::vector<int> threads = argc > 2 ? std::vector<int>{std::atoi(argv[2])} : std::vector<int>{1, 2};
  const std::string_view only = argc > 3 ? argv[3] : "";
  fmt::print("threads | product | oneDNN f32 | f32, share | bf16, share; GFLOP/s\n");
  for (const int n : threads)
    for (const Shape& s : kShapes)
      if (std::string_view(s.what).find(only) != std::string_view::npos) measure(s, rounds, n);
}
