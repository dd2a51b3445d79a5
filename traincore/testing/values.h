// Reading and writing any tensor as doubles, element by element in row-major order.
#pragma once
#include <vector>

#include "traincore/core/function_ref.h"
#include "traincore/core/schema.h"

namespace tc::testing {

double get(const void* p, int32_t dtype);
void set(void* p, int32_t dtype, double value);
double rounded(double value, int32_t dtype);  // through the dtype and back
bool is_float(int32_t dtype);
double ulp(int32_t dtype, double magnitude);  // spacing of the dtype at that magnitude

// visit(pointer to the element, its row-major index), whatever the strides.
void for_each_element(const tc_tensor& t, FunctionRef<void(void*, int64_t)> visit);
std::vector<double> read_all(const tc_tensor& t);
void write_all(const tc_tensor& t, const std::vector<double>& values);
void copy_all(const tc_tensor& from, const tc_tensor& to);  // of one shape

}  // namespace tc::testing
