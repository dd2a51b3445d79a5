// Whether a GPU is there, for what must not know CUDA.
#pragma once

namespace tc {

// NO_DEVICE unless CUDA can use the GPU of that index. With CUDA: traincore/cuda/device.cpp.
void require_gpu(int index);

}  // namespace tc
