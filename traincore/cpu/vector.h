// [cols] vectors (weights, biases and their gradients) whose dtype is known only at run time: one dispatch a call.
#pragma once
#include <cstddef>
#include <cstdint>

#include "traincore/core/types.h"

namespace tc {

// n elements of `dtype` (f32, bf16 or f16) to f32, and back by rounding to nearest even.
void widen(int32_t dtype, const void* from, int64_t n, float* to);
void narrow(int32_t dtype, const float* from, int64_t n, void* to);

// Copies past the caches (cpu/streaming.h says when). The two must not overlap.
void stream(const void* from, size_t bytes, void* to);

// The elements of a contiguous vector as f32: its own memory if it is f32, else `scratch`, filled with its
// element_count values. NULL for an absent vector.
const float* as_f32(const tc_tensor& vector, float* scratch);

// offset + vector as f32, n values; an absent vector counts as `absent` without an offset. The vector's own memory if it
// serves, else `scratch`, which holds n.
const float* as_f32(const tc_tensor& vector, double offset, float absent, int64_t n, float* scratch);

// vector = values, rounded to its dtype. `accumulate` adds to the old values instead; the vector must then be f32.
void store_as(const tc_tensor& vector, const float* values, bool accumulate);

// Adds vectors 1, 2, ..., count - 1 of n elements each to vector 0, in order; they lie one after the other.
void sum_vectors(float* vectors, int64_t count, int64_t n);

}  // namespace tc
