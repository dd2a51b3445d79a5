// GPUs that can be asked about without being here: what plans look at, of the code that builds have unless told otherwise.
#pragma once
#include <string_view>

#include "traincore/cuda/device.h"

namespace tc::cuda {

struct KnownDevice {
  std::string_view word;  // on the command line
  DeviceInfo info;
};
inline constexpr KnownDevice kKnownDevices[] = {
    {"h200", {"NVIDIA H200", 90, 90, 132, 227 << 10, 60 << 20, 0}},
    {"a100", {"NVIDIA A100", 80, 80, 108, 163 << 10, 40 << 20, 0}},
    {"rtx4090", {"NVIDIA GeForce RTX 4090", 89, 80, 128, 99 << 10, 72 << 20, 0}},
};

}  // namespace tc::cuda
