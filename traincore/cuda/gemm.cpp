#include "traincore/cuda/gemm.h"

#include <cublasLt.h>
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "traincore/core/fail.h"
#include "traincore/cuda/launch.h"

namespace tc::cuda {
namespace {

constexpr uintptr_t kWorkspaceAlignment = 256;
constexpr size_t kUsedWorkspaceBytes = kGemmWorkspaceBytes - kWorkspaceAlignment;

// libcublasLt of the major version that this file was compiled with, loaded at first use and never unloaded: a machine
// without it can use everything else.
class Library {
 public:
  explicit Library(const char* op) {
    const std::string name = "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR);
    void* const handle = dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (!handle)
      fail(TC_ERR_PIPELINE,
           "{}: {} could not be loaded ({}); install cuBLAS of CUDA {} and put its folder on LD_LIBRARY_PATH", op, name,
           dlerror(), CUBLAS_VER_MAJOR);
    const auto find = [&]<class F>(F*& function, const char* symbol) {
      function = reinterpret_cast<F*>(dlsym(handle, symbol));
      if (!function) fail(TC_ERR_PIPELINE, "{}: {} has no function {}; install another cuBLAS", op, name, symbol);
    };
    find(create, "cublasLtCreate");
    find(status_string, "cublasLtGetStatusString");
    find(create_desc, "cublasLtMatmulDescCreate");
    find(destroy_desc, "cublasLtMatmulDescDestroy");
    find(set_desc, "cublasLtMatmulDescSetAttribute");
    find(create_layout, "cublasLtMatrixLayoutCreate");
    find(destroy_layout, "cublasLtMatrixLayoutDestroy");
    find(create_preference, "cublasLtMatmulPreferenceCreate");
    find(destroy_preference, "cublasLtMatmulPreferenceDestroy");
    find(set_preference, "cublasLtMatmulPreferenceSetAttribute");
    find(choose, "cublasLtMatmulAlgoGetHeuristic");
    find(multiply, "cublasLtMatmul");
  }

  decltype(&cublasLtCreate) create;
  decltype(&cublasLtGetStatusString) status_string;
  decltype(&cublasLtMatmulDescCreate) create_desc;
  decltype(&cublasLtMatmulDescDestroy) destroy_desc;
  decltype(&cublasLtMatmulDescSetAttribute) set_desc;
  decltype(&cublasLtMatrixLayoutCreate) create_layout;
  decltype(&cublasLtMatrixLayoutDestroy) destroy_layout;
  decltype(&cublasLtMatmulPreferenceCreate) create_preference;
  decltype(&cublasLtMatmulPreferenceDestroy) destroy_preference;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference;
  decltype(&cublasLtMatmulAlgoGetHeuristic) choose;
  decltype(&cublasLtMatmul) multiply;
};
const Library& library(const char* op) {
  static const Library loaded(op);
  return loaded;
}

void require_done(const Library& lt, cublasStatus_t status, const char* op, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    fail(TC_ERR_PIPELINE, "{}: {} of cuBLASLt failed: {}", op, what, lt.status_string(status));
}

// While it lives, this thread may do what a capture on another stream would forbid: cuBLASLt allocates for itself when a
// handle is made and when a kernel is loaded.
class Unrestricted {
 public:
  Unrestricted() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~Unrestricted() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  Unrestricted(const Unrestricted&) = delete;
  Unrestricted& operator=(const Unrestricted&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

// Of the device, which is the current one; made once and never destroyed.
cublasLtHandle_t handle_of(const Library& lt, int device, const char* op) {
  static std::mutex mutex;
  static std::map<int, cublasLtHandle_t> handles;
  const std::lock_guard lock(mutex);
  cublasLtHandle_t& handle = handles[device];
  if (!handle) require_done(lt, lt.create(&handle), op, "a handle");
  return handle;
}

cudaDataType_t type_of(int32_t dtype) {
  return dtype == TC_DTYPE_F32 ? CUDA_R_32F : dtype == TC_DTYPE_BF16 ? CUDA_R_16BF : CUDA_R_16F;
}

// What the choice of an algorithm depends on: numbers alone, so that two calls may be compared.
struct Shape {
  int64_t device, m, n, k, dtype, d_dtype;
  int64_t a_stride, b_stride, d_stride, a_transposed, b_transposed;
  int64_t a_alignment, b_alignment, d_alignment, takes_factors;
  auto operator<=>(const Shape&) const = default;  // NOLINT(modernize-use-nullptr): it takes the comparison for one
};

// Bytes that an address is a multiple of: a power of two, and at most what the widest access needs, so that results do
// not depend on where an allocator puts things. Strides are known to cuBLASLt from the layouts.
int64_t alignment_of(const void* p) {
  constexpr uintptr_t kMost = 16;
  const auto address = reinterpret_cast<uintptr_t>(p) | kMost;
  return static_cast<int64_t>(address & ~(address - 1));
}

Shape shape_of(const Gemm& g, int device) {
  return {device,
          g.m,
          g.n,
          g.k,
          g.dtype,
          g.d.dtype,
          g.a.stride,
          g.b.stride,
          g.d.stride,
          int64_t{g.a.transposed},
          int64_t{g.b.transposed},
          alignment_of(g.a.data),
          alignment_of(g.b.data),
          alignment_of(g.d.data),
          int64_t{g.factors != nullptr}};
}

// A product as cuBLASLt is asked for it. It knows column-major matrices, and as one of those a row-major matrix is its own
// transpose: D^T = op(B)^T op(A)^T, so its first operand is B.
class Plan {
 public:
  Plan(const Library& lt, cublasLtHandle_t handle, const Shape& s, const char* op)
      : desc_(nullptr, lt.destroy_desc),
        a_(layout(lt, s.dtype, s.a_transposed ? s.k : s.m, s.a_transposed ? s.m : s.k, s.a_stride, op)),
        b_(layout(lt, s.dtype, s.b_transposed ? s.n : s.k, s.b_transposed ? s.k : s.n, s.b_stride, op)),
        d_(layout(lt, s.d_dtype, s.m, s.n, s.d_stride, op)) {
    describe(lt, s, op);
    choose(lt, handle, s, op);
  }

  void run(const Library& lt, cublasLtHandle_t handle, const Gemm& g, void* workspace, const tc_exec& exec,
           const char* op) const {
    const float* const alpha = g.factors ? g.factors : &g.alpha;
    const float* const beta = g.factors ? g.factors + 1 : &g.beta;
    auto* const bytes = static_cast<std::byte*>(workspace);
    void* const aligned = bytes + (-reinterpret_cast<uintptr_t>(bytes) & (kWorkspaceAlignment - 1));
    require_done(lt,
                 lt.multiply(handle, desc_.get(), alpha, g.b.data, b_.get(), g.a.data, a_.get(), beta, g.d.data,
                             d_.get(), g.d.data, d_.get(), &algorithm_, aligned, kUsedWorkspaceBytes,
                             static_cast<cudaStream_t>(exec.stream)),
                 op, "a product");
  }

 private:
  using Desc = std::unique_ptr<cublasLtMatmulDescOpaque_t, decltype(&cublasLtMatmulDescDestroy)>;
  using Layout = std::unique_ptr<cublasLtMatrixLayoutOpaque_t, decltype(&cublasLtMatrixLayoutDestroy)>;
  using Preference = std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, decltype(&cublasLtMatmulPreferenceDestroy)>;

  // Of a row-major matrix.
  static Layout layout(const Library& lt, int64_t dtype, int64_t rows, int64_t cols, int64_t stride, const char* op) {
    cublasLtMatrixLayout_t made = nullptr;
    require_done(lt,
                 lt.create_layout(&made, type_of(static_cast<int32_t>(dtype)), static_cast<uint64_t>(cols),
                                  static_cast<uint64_t>(rows), stride),
                 op, "the layout of a matrix");
    return {made, lt.destroy_layout};
  }

  void describe(const Library& lt, const Shape& s, const char* op) {
    cublasLtMatmulDesc_t made = nullptr;
    require_done(lt, lt.create_desc(&made, CUBLAS_COMPUTE_32F, CUDA_R_32F), op, "the description of a product");
    desc_.reset(made);
    const auto set = [&](cublasLtMatmulDescAttributes_t attribute, int32_t value) {
      require_done(lt, lt.set_desc(made, attribute, &value, sizeof value), op, "the description of a product");
    };
    set(CUBLASLT_MATMUL_DESC_TRANSA, s.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, s.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_POINTER_MODE, s.takes_factors ? CUBLASLT_POINTER_MODE_DEVICE : CUBLASLT_POINTER_MODE_HOST);
  }

  // Where K is cut, the parts meet in f32, each in a place of its own.
  void choose(const Library& lt, cublasLtHandle_t handle, const Shape& s, const char* op) {
    cublasLtMatmulPreference_t made = nullptr;
    require_done(lt, lt.create_preference(&made), op, "a preference");
    const Preference preference(made, lt.destroy_preference);
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      require_done(lt, lt.set_preference(made, attribute, &value, sizeof value), op, "a preference");
    };
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kUsedWorkspaceBytes});
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(s.b_alignment));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(s.a_alignment));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<uint32_t>(s.d_alignment));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(s.d_alignment));
    cublasLtMatmulHeuristicResult_t best{};
    int found = 0;
    require_done(lt, lt.choose(handle, desc_.get(), b_.get(), a_.get(), d_.get(), d_.get(), made, 1, &best, &found), op,
                 "the choice of an algorithm");
    if (found == 0)
      fail(TC_ERR_PIPELINE, "{}: cuBLASLt has no algorithm for a product of m = {}, n = {}, k = {}", op, s.m, s.n, s.k);
    algorithm_ = best.algo;
  }

  Desc desc_;
  Layout a_, b_, d_;
  cublasLtMatmulAlgo_t algorithm_{};
};

// This thread's plans, by shape.
const Plan& plan_for(const Library& lt, cublasLtHandle_t handle, const Shape& shape, const char* op) {
  constexpr size_t kMost = 256;
  thread_local std::map<Shape, Plan> plans;
  const auto known = plans.find(shape);
  if (known != plans.end()) return known->second;
  Plan made(lt, handle, shape, op);
  if (plans.size() >= kMost) plans.clear();
  return plans.emplace(shape, std::move(made)).first->second;
}

}  // namespace

void run_gemm(const char* op, const Gemm& gemm, void* workspace, const tc_exec& exec) {
  const Library& lt = library(op);
  int device = 0;
  require_ok(cudaGetDevice(&device), "cudaGetDevice");
  const Unrestricted unrestricted;
  const cublasLtHandle_t handle = handle_of(lt, device, op);
  plan_for(lt, handle, shape_of(gemm, device), op).run(lt, handle, gemm, workspace, exec, op);
}

}  // namespace tc::cuda
