// Reading and writing any tensor as doubles, element by element in row-major order.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "traincore/core/function_ref.h"
#include "traincore/core/schema.h"

namespace tc::testing {

double rounded(double value, int32_t dtype);  // through the dtype and back
bool is_float(int32_t dtype);
double ulp(int32_t dtype, double magnitude);  // spacing of the dtype at that magnitude

// A tensor's elements in row-major order, whatever the strides: visit(pointer to the first of a row, elements in it,
// bytes from one to the next).
void for_each_row(const tc_tensor& t, FunctionRef<void(std::byte*, int64_t, int64_t)> visit);
std::vector<double> read_all(const tc_tensor& t);
void write_all(const tc_tensor& t, std::span<const double> values);  // from the first again where there are too few
void copy_all(const tc_tensor& from, const tc_tensor& to);           // of one shape

}  // namespace tc::testing
