// The CPU kernel of gemm_i8: exact panels by the f32 product, added in f64.
#include <cmath>

#include "traincore/core/view.h"
#include "traincore/cpu/gemm.h"
#include "traincore/cpu/parallel.h"
#include "traincore/ops/gemm_i8/plan.h"

namespace tc::ops::gemm_i8 {
namespace {

// Matrices of a [batch..., rows, cols] tensor, and the flag that says how they are to be read.
struct Operand {
  Rows<const int8_t> rows;
  int64_t rows_in_matrix;
  bool transposed;
  Operand(const tc_tensor& t, bool is_transposed)
      : rows(rows_of<const int8_t>(t)), rows_in_matrix(rows_in(t)), transposed(is_transposed) {}
};

// op(X)[row .. row + rows, col .. col + cols] of a matrix as f32, in the layout it is stored in.
GemmInput widened(const Operand& x, int64_t batch, int64_t row, int64_t col, int64_t rows, int64_t cols, float* to,
                  int threads) {
  if (x.transposed) {
    std::swap(row, col);
    std::swap(rows, cols);
  }
  parallel_for(rows, threads, [&](int64_t i) {
    const int8_t* const from = x.rows[batch * x.rows_in_matrix + row + i] + col;
    std::copy_n(from, cols, to + i * cols);
  });
  const GemmInput panel{to, TC_DTYPE_F32, cols, 1};
  return x.transposed ? panel.transposed() : panel;
}

int32_t to_i32(double z) { return static_cast<int32_t>(std::fmin(std::fmax(std::nearbyint(z), INT32_MIN), INT32_MAX)); }

// Rows [row, row + rows) of one product of the batch.
void run_rows(const tcx_gemm_i8_args& args, const Scratch& scratch, int64_t batch, int64_t row, int64_t rows,
              int threads) {
  const Operand a(args.a, args.transpose_a != 0), b(args.b, args.transpose_b != 0);
  const auto c = rows_of<int32_t>(args.c);
  const int64_t n = c.cols, k = args.transpose_a ? rows_in(args.a) : cols_in(args.a);
  std::fill_n(scratch.sum, rows * n, 0.0);
  for (int64_t first = 0; first < k && args.alpha != 0; first += kPanel) {
    const int64_t size = std::min(kPanel, k - first);
    run_gemm({.m = rows,
              .n = n,
              .k = size,
              .a = widened(a, batch, row, first, rows, size, scratch.a, threads),
              .b = widened(b, batch, first, 0, size, n, scratch.b, threads),
              .c = {scratch.product, TC_DTYPE_F32, n}},
             threads);
    parallel_for(rows, threads, [&](int64_t i) {
      for (int64_t j = i * n; j < (i + 1) * n; ++j) scratch.sum[j] += scratch.product[j];
    });
  }
  parallel_for(rows, threads, [&](int64_t i) {
    int32_t* const out = c[batch * rows_in(args.c) + row + i];
    for (int64_t j = 0; j < n; ++j) {
      const double z = args.alpha * scratch.sum[i * n + j];
      out[j] = to_i32(args.beta != 0 ? z + args.beta * out[j] : z);
    }
  });
}

}  // namespace

void gemm_i8_cpu(const tcx_gemm_i8_args& args, const tc_exec& exec) {
  const tc::Scratch scratch(carve, args, exec);
  const int64_t m = rows_in(args.c), batches = m ? rows_of<int32_t>(args.c).count / m : 0;
  if (cols_in(args.c) == 0) return;
  for (int64_t batch = 0; batch < batches; ++batch)
    for (int64_t row = 0; row < m; row += kRows)
      run_rows(args, *scratch, batch, row, std::min(kRows, m - row), exec.threads);
}

}  // namespace tc::ops::gemm_i8
