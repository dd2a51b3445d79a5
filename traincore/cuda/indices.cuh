// Device code: targets, token ids and positions.
#pragma once
#include <cstddef>

#include "traincore/core/view.h"

namespace tc::cuda {

// [rows...] of i32 or i64, one number per row, any strides. Made on the host, read on the device.
class AnyIndices {
 public:
  explicit AnyIndices(const tc_tensor& t) : bytes_(values_of<const std::byte>(t)), is_wide_(t.dtype == TC_DTYPE_I64) {
    for (int i = 0; i < bytes_.rank; ++i) bytes_.stride[i] *= static_cast<int64_t>(tc_dtype_size(t.dtype));
  }
  TC_HD int64_t count() const { return bytes_.count; }
  __device__ __forceinline__ int64_t operator[](int64_t row) const {
    const std::byte* const p = bytes_[row];
    return is_wide_ ? *reinterpret_cast<const int64_t*>(p) : *reinterpret_cast<const int32_t*>(p);
  }

 private:
  Rows<const std::byte> bytes_;
  bool is_wide_;
};

}  // namespace tc::cuda
