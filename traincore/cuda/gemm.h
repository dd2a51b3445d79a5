// Matrix products on the GPU; the engine is cuBLASLt, which gemm.cpp alone knows.
//
//   D[m, n] = alpha op(A)[m, k] op(B)[k, n] + beta D
//
// Matrices are row-major. A and B are both f32, bf16 or f16; products and sums are f32, of f32 operands true f32. A
// product may be captured, and the same call gives the same bits.
//
// libcublasLt is loaded at the first product of the process, and a handle is made, on the device too, at the first one there.
// cuBLASLt loads its own kernels as they are first needed, which may wait for what then runs on the GPU;
// CUDA_MODULE_LOADING=EAGER in the environment has them loaded with the library. After that nothing waits and nothing is
// allocated on the device.
#pragma once
#include "traincore/core/types.h"

namespace tc::cuda {

// Element (i, j) is at data + i * stride + j, stride >= the number of columns; op(X) is X^T where it is transposed.
struct GemmInput {
  const void* data;
  int64_t stride;
  bool transposed = false;
};

// Must not overlap the inputs.
struct GemmOutput {
  void* data;
  int32_t dtype;
  int64_t stride;
};

struct Gemm {
  int64_t m, n, k;  // > 0
  int32_t dtype;    // of A and B
  GemmInput a, b;
  GemmOutput d;  // f32, or dtype
  float alpha = 1;
  float beta = 0;                  // 0 does not read D
  const float* factors = nullptr;  // device memory: alpha and beta in place of those above
};

// What run_gemm() needs beside its operands, aligned to 64 bytes.
inline constexpr int64_t kGemmWorkspaceBytes = int64_t{32} << 20;

// On exec.stream, on the current device. Throws TC_ERR_PIPELINE, naming `op`, if there is no libcublasLt or it fails.
void run_gemm(const char* op, const Gemm& gemm, void* workspace, const tc_exec& exec);

}  // namespace tc::cuda
