// Environment variables that force the CPU.
#pragma once

namespace tc::kit {

// TC_DISABLE_CUDA_GEMM is 1, true, yes or on; or TC_CUDA_GEMM or TC_USE_CUDA_GEMM is 0, false, no or off; in any case.
bool environment_forces_cpu();

}  // namespace tc::kit
