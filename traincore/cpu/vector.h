// [cols] vectors (weights, biases and their gradients) whose dtype is known only at run time: one dispatch a call.
#pragma once
#include <cstdint>

#include "traincore/core/types.h"

namespace tc {

// n elements of `dtype` (f32, bf16 or f16) to f32, and back by rounding to nearest even.
void widen(int32_t dtype, const void* from, int64_t n, float* to);
void narrow(int32_t dtype, const float* from, int64_t n, void* to);

// The elements of a contiguous vector as f32: its own memory if it is f32, else `scratch`, filled with its
// element_count values. NULL for an absent vector.
const float* as_f32(const tc_tensor& vector, float* scratch);

// vector = values, rounded to its dtype. `accumulate` adds to the old values instead; the vector must then be f32.
void store_as(const tc_tensor& vector, const float* values, bool accumulate);

}  // namespace tc
