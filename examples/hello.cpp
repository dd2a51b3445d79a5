// RMSNorm of one row from C++20; a bad call throws tc::Error with one sentence:
//   c++ -std=c++20 hello.cpp $(pkg-config --cflags --libs traincore) -o hello && ./hello
#include <cstdio>

#include "traincore/ops/rmsnorm/rmsnorm.h"

int main() {
  float x[] = {3, 4}, weight[] = {2, 0.5f}, y[2];
  const int64_t rows_cols[] = {1, 2};

  auto args = tcx_rmsnorm_forward_args_default();
  args.x = tc_tensor_dense(x, TC_DTYPE_F32, 2, rows_cols);
  args.weight = tc_tensor_dense(weight, TC_DTYPE_F32, 1, rows_cols + 1);
  args.y = tc_tensor_dense(y, TC_DTYPE_F32, 2, rows_cols);
  args.eps = 1e-6;
  tc::rmsnorm_forward(args);
  std::printf("y = %.6f %.6f\n", y[0], y[1]);

  args.eps = 0;
  try {
    tc::rmsnorm_forward(args);
  } catch (const tc::Error& e) {
    std::printf("refused: %s\n", e.what());
  }
}
