#include "traincore/cuda/boxes.h"

#include <dlfcn.h>

#include "traincore/core/fail.h"

namespace tc::cuda {
namespace {

// The driver's, which is loaded by the time there is a matrix on a GPU; a library with GPU kernels runs without it too.
auto encoder(const char* name) {
  static const auto function = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(
      dlsym(dlopen("libcuda.so.1", RTLD_LAZY), "cuTensorMapEncodeTiled"));
  if (!function) fail(TC_ERR_PIPELINE, "{}: the driver has no cuTensorMapEncodeTiled", name);
  return function;
}

}  // namespace

CUtensorMap box_map(const char* name, const BoxView& view) {
  constexpr cuuint32_t kEach[3] = {1, 1, 1};
  const auto type = view.dtype == TC_DTYPE_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  CUtensorMap map;
  const CUresult result = encoder(name)(&map, type, 3, const_cast<void*>(view.data), view.extents, view.strides,
                                        view.box, kEach, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                        CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS)
    fail(TC_ERR_PIPELINE, "{}: cuTensorMapEncodeTiled refuses a matrix of {} by {} by {} elements with {}", name,
         view.extents[0], view.extents[1], view.extents[2], static_cast<int>(result));
  return map;
}

}  // namespace tc::cuda
