// The definition of gemm_i8. It is the same for both types of the budget: the arithmetic is in integers and in f64.
#include <cmath>

#include "traincore/core/view.h"
#include "traincore/ops/gemm_i8/gemm_i8.h"

namespace tc::ops::gemm_i8 {

template <class Real>
void oracle(const tcx_gemm_i8_args& args) {
  const auto a = rows_of<const int8_t>(args.a), b = rows_of<const int8_t>(args.b);
  const auto c = rows_of<int32_t>(args.c);
  const int64_t m = args.c.shape[args.c.rank - 2], n = c.cols;
  const int64_t k = args.transpose_a ? args.a.shape[args.a.rank - 2] : a.cols;
  for (int64_t row = 0; row < c.count; ++row)
    for (int64_t j = 0; j < n; ++j) {
      const int64_t batch = row / m, i = row % m;
      int64_t sum = 0;
      for (int64_t l = 0; l < k; ++l) {
        const int64_t x = args.transpose_a ? a[batch * k + l][i] : a[row][l];
        sum += x * (args.transpose_b ? b[batch * n + j][l] : b[batch * k + l][j]);
      }
      double z = args.alpha * static_cast<double>(sum);
      if (args.beta != 0) z += args.beta * c[row][j];
      c[row][j] = static_cast<int32_t>(std::fmin(std::fmax(std::nearbyint(z), INT32_MIN), INT32_MAX));
    }
}

template void oracle<double>(const tcx_gemm_i8_args&);
template void oracle<float>(const tcx_gemm_i8_args&);

}  // namespace tc::ops::gemm_i8
