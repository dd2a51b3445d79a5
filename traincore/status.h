/* Statuses: tc_status_t, tc_status_string, tc_last_error.  C11 and C++20.
 *
 * Every call returns TC_OK, or a negative status; then nothing was written, and tc_last_error() is one sentence on what
 * was wrong and what would be right. A status is the same number in the kit (tc_*) and in the ops (tcx_*). */
#pragma once
#include "traincore/core/types.h"
