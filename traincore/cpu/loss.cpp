#include "traincore/cpu/loss.h"

namespace tc {

double count_targets(const char* pass, const tc_tensor& target, int64_t classes, LossOptions& options) {
  const Indices targets(target);
  double total_weight = 0;
  for (int64_t row = 0; row < targets.count(); ++row) {
    const int64_t t = targets[row];
    if (t == options.ignore_index) continue;
    require(t >= 0 && t < classes, "{}: target of row {} is {}, but must be a class in [0, {}) or ignore_index ({})",
            pass, row, t, classes, options.ignore_index);
    ++options.valid_count;
    total_weight += options.weight(t);
  }
  return total_weight;
}

tc_tensor row_values(int32_t reduction, const tc_tensor& output, float* scratch, int64_t rows) {
  if (reduced_count(reduction, output, 1) == 0) return output;
  return tc_tensor_dense(scratch, TC_DTYPE_F32, 1, &rows);
}

void reduce_rows(int32_t reduction, const LossOptions& options, const float* row_values, int64_t rows,
                 const tc_tensor& output) {
  if (reduced_count(reduction, output, 1) == 0) return;
  double total = 0;
  for (int64_t r = 0; r < rows; ++r) total += row_values[r];
  *static_cast<float*>(output.data) = static_cast<float>(total * options.inverse_normalizer());
}

}  // namespace tc
