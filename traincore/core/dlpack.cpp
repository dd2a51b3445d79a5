// Tensors of other frameworks, as they hand them over.
#include "traincore/core/interop.h"

#include <algorithm>

#include "traincore/core/fail.h"

namespace tc {
namespace {

// DLPack's type codes; older headers lack the last two.
enum : uint8_t { kInt = 0, kUInt = 1, kFloat = 2, kBfloat = 4, kBool = 6 };
constexpr int64_t kMaxRank = TC_MAX_RANK;

int32_t dtype_of(const DLDataType& type) {
  const auto is = [&](uint8_t code, uint8_t bits) { return type.code == code && type.bits == bits; };
  if (type.lanes == 1) {
    if (is(kFloat, 32)) return TC_DTYPE_F32;
    if (is(kBfloat, 16)) return TC_DTYPE_BF16;
    if (is(kFloat, 16)) return TC_DTYPE_F16;
    if (is(kInt, 64)) return TC_DTYPE_I64;
    if (is(kInt, 32)) return TC_DTYPE_I32;
    if (is(kFloat, 64)) return TC_DTYPE_F64;
    if (is(kBool, 8)) return TC_DTYPE_BOOL;
    if (is(kUInt, 8)) return TC_DTYPE_U8;
    if (is(kInt, 16)) return TC_DTYPE_I16;
    if (is(kInt, 8)) return TC_DTYPE_I8;
  }
  fail(TC_ERR_UNSUPPORTED_DTYPE, "a DLPack tensor has type code {}, {} bits, {} lanes, which no dtype here has",
       type.code, type.bits, type.lanes);
}

void set_device(const DLDevice& device, tc_tensor& t) {
  switch (device.device_type) {
    case kDLCPU:
    case kDLCUDAHost:
      t.device = TC_CPU;
      return;
    case kDLCUDA:
    case kDLCUDAManaged:
      t.device = TC_CUDA;
      t.device_index = device.device_id;
      return;
    default:
      fail(TC_ERR_INVALID_ARG, "a DLPack tensor is on a device of type {}, expected the CPU (1, 3) or CUDA (2, 13)",
           static_cast<int>(device.device_type));
  }
}

tc_tensor tensor_of(const DLTensor& from) {
  if (from.ndim < 0 || from.ndim > kMaxRank)
    fail(TC_ERR_INVALID_SHAPE, "a DLPack tensor has {} dimensions, but a tensor has 0 to {}", from.ndim, kMaxRank);
  require(from.ndim == 0 || from.shape, "a DLPack tensor has {} dimensions, but its shape is NULL", from.ndim);
  auto* data = static_cast<std::byte*>(from.data);
  tc_tensor t = tc_tensor_dense(data ? data + from.byte_offset : nullptr, dtype_of(from.dtype), from.ndim, from.shape);
  const bool empty = std::count(t.shape, t.shape + t.rank, 0) > 0;  // whose strides say nothing
  if (from.strides && !empty) std::copy_n(from.strides, t.rank, t.stride);
  set_device(from.device, t);
  return t;
}

}  // namespace
}  // namespace tc

tc_status_t tc_tensor_from_dlpack(const DLTensor* from, tc_tensor* to) {
  return tc::guard([&] {
    tc::require(from && to, "tc_tensor_from_dlpack: {} is NULL", from ? "to" : "from");
    *to = tc::tensor_of(*from);
  });
}

tc_status_t tc_tensors_from_capsules(void* tuple, tc_tuple_item* item, tc_capsule_pointer* pointer, int64_t count,
                                     const int64_t* offsets, void* args) {
  return tc::guard([&] {
    tc::require(tuple && item && pointer && offsets && args, "tc_tensors_from_capsules: an argument is NULL");
    for (int64_t i = 0; i < count; ++i) {
      void* capsule = item(tuple, i);
      const void* tensor = capsule ? pointer(capsule, "dltensor") : nullptr;
      tc::require(tensor != nullptr, "tc_tensors_from_capsules: item {} is no capsule named dltensor", i);
      *reinterpret_cast<tc_tensor*>(static_cast<std::byte*>(args) + offsets[i]) =
          tc::tensor_of(*static_cast<const DLTensor*>(tensor));
    }
  });
}
