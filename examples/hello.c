/* RMSNorm of two rows, forward and backward, from plain C11:
 *   cc hello.c $(pkg-config --cflags --libs traincore) -o hello && ./hello */
#include <stdio.h>

#include "traincore/ops/rmsnorm/rmsnorm.h"

int main(void) {
  float x[2][4] = {{1, 2, 3, 4}, {-1, 0.5f, 2, 0}}, weight[4] = {1, 1, 2, 0.5f}, y[2][4], rstd[2];
  const int64_t rows_cols[] = {2, 4};

  tcx_rmsnorm_forward_args forward = tcx_rmsnorm_forward_args_default();
  forward.x = tc_tensor_dense(x, TC_DTYPE_F32, 2, rows_cols);
  forward.weight = tc_tensor_dense(weight, TC_DTYPE_F32, 1, rows_cols + 1);
  forward.y = tc_tensor_dense(y, TC_DTYPE_F32, 2, rows_cols);
  forward.rstd = tc_tensor_dense(rstd, TC_DTYPE_F32, 1, rows_cols);
  forward.eps = 1e-6;
  if (tcx_rmsnorm_forward(&forward, NULL) != TC_OK) {
    fprintf(stderr, "%s\n", tc_last_error());
    return 1;
  }

  float dy[2][4] = {{1, 1, 1, 1}, {0, 1, 0, -1}}, dx[2][4], dweight[4];
  tcx_rmsnorm_backward_args backward = tcx_rmsnorm_backward_args_default();
  backward.dy = tc_tensor_dense(dy, TC_DTYPE_F32, 2, rows_cols);
  backward.x = forward.x;
  backward.weight = forward.weight;
  backward.rstd = forward.rstd;
  backward.dx = tc_tensor_dense(dx, TC_DTYPE_F32, 2, rows_cols);
  backward.dweight = tc_tensor_dense(dweight, TC_DTYPE_F32, 1, rows_cols + 1);
  if (tcx_rmsnorm_backward(&backward, NULL) != TC_OK) {
    fprintf(stderr, "%s\n", tc_last_error());
    return 1;
  }
  for (int r = 0; r < 2; ++r) printf("y  = %9.6f %9.6f %9.6f %9.6f\n", y[r][0], y[r][1], y[r][2], y[r][3]);
  for (int r = 0; r < 2; ++r) printf("dx = %9.6f %9.6f %9.6f %9.6f\n", dx[r][0], dx[r][1], dx[r][2], dx[r][3]);
  printf("dw = %9.6f %9.6f %9.6f %9.6f\n", dweight[0], dweight[1], dweight[2], dweight[3]);
  return 0;
}
