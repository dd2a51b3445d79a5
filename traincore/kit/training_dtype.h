// The dtype that tc_training_dtype chose for the calling thread.
#pragma once
#include "traincore/device.h"

namespace tc::kit {

int32_t training_dtype(const tc_context* ctx);  // F16 unless this thread chose another in this context

}  // namespace tc::kit
