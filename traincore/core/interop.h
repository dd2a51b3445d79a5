/* What the faces of other languages stand on: the schema, and their tensors seen as tc_tensor. C11 and C++20. */
#pragma once
#include <dlpack/dlpack.h>

#include "traincore/core/types.h"

TC_C_BEGIN
/* Every op, pass and argument of this library as JSON: names, formulas, roles, dtypes, shapes, defaults, choices, and
 * where each argument is in its struct. What other languages generate their faces from. NULL if there is no memory. */
TC_API const char* tc_schema(void);

/* A tensor of another framework: no copy, no ownership; the producer keeps the memory alive. CUDA and CUDA-managed
 * memory are on TC_CUDA, CPU and pinned memory on TC_CPU. byte_offset is added to the address; strides NULL means dense,
 * row-major. bool (code 6) and bfloat16 (code 4) are read whatever the header's age.
 * Errors: INVALID_ARG (NULL, another device), INVALID_SHAPE (rank), UNSUPPORTED_DTYPE (vector lanes too). On an error
 * nothing is written.  Source: https://dmlc.github.io/dlpack, DLTensor. */
TC_API tc_status_t tc_tensor_from_dlpack(const DLTensor* from, tc_tensor* to);

/* For Python: many tensors at once, handed over as a tuple of capsules named "dltensor"; capsule i becomes the tc_tensor
 * at args + offsets[i]. PyTuple_GetItem and PyCapsule_GetPointer are passed in, so that the library needs none of the
 * interpreter's headers; where the latter gives NULL, its exception is set. The caller holds the interpreter's lock. */
typedef void* tc_tuple_item(void* tuple, ptrdiff_t index);
typedef void* tc_capsule_pointer(void* capsule, const char* name);
TC_API tc_status_t tc_tensors_from_capsules(void* tuple, tc_tuple_item* item, tc_capsule_pointer* pointer,
                                            int64_t count, const int64_t* offsets, void* args);
TC_C_END
