/* Element types: tc_dtype_t, tc_dtype_size, tc_dtype_name.  C11 and C++20. */
#pragma once
#include "traincore/core/types.h"
