// What every front door shares: from a typed kernel to a Pass, and from a Pass to the exported C functions.
#pragma once
#include "traincore/core/arena.h"
#include "traincore/core/fail.h"
#include "traincore/core/schema.h"
#include "traincore/core/view.h"

#ifdef TC_WITH_CUDA
#define TC_IF_CUDA(kernel) (kernel)
#else
#define TC_IF_CUDA(kernel) nullptr
#endif

// The two exported C functions of a pass; `pass` is its Pass object.
#define TC_EXPORT_PASS(name, pass)                                                                                  \
  tc_status_t tcx_##name(const tcx_##name##_args* args, const tc_exec* exec) { return tc::call(pass, args, exec); } \
  tc_status_t tcx_##name##_workspace(const tcx_##name##_args* args, const tc_exec* exec, size_t* bytes) {           \
    return tc::call_workspace(pass, args, exec, bytes);                                                             \
  }

namespace tc {

// Validates, chooses the backend and runs it. The only way into a kernel.
tc_status_t call(const Pass& pass, const void* args, const tc_exec* exec) noexcept;
tc_status_t call_workspace(const Pass& pass, const void* args, const tc_exec* exec, size_t* bytes) noexcept;
// All that both do before they look for a kernel.
tc_status_t call_check(const Pass& pass, const void* args, const tc_exec* exec) noexcept;

// Typed functions, seen as the untyped pointers that Pass holds.
template <class A>
struct Erase {
  template <void (*F)(const A&, const tc_exec&)>
  static void run(const void* args, const tc_exec& exec) {
    F(*static_cast<const A*>(args), exec);
  }
  template <void (*F)(const A&, const Dims&)>
  static void check(const void* args, const tc_exec&, const Dims& dims) {
    F(*static_cast<const A*>(args), dims);
  }
  template <double (*F)(const A&, const Dims&)>
  static double flops(const void* args, const Dims& dims) {
    return F(*static_cast<const A*>(args), dims);
  }
  template <Evaluations (*F)(const A&, const Dims&)>
  static Evaluations evaluations(const void* args, const Dims& dims) {
    return F(*static_cast<const A*>(args), dims);
  }
  template <double (*F)(const A&, const Dims&)>
  static double bytes(const void* args, const Dims& dims) {
    return F(*static_cast<const A*>(args), dims);
  }
  template <std::string (*F)(const A&, const Dims&)>
  static std::string explain(const void* args, const tc_exec&, const Dims& dims) {
    return F(*static_cast<const A*>(args), dims);
  }
  template <std::string (*F)(const A&, const tc_exec&, const cuda::DeviceInfo&)>
  static std::string cuda_explain(const void* args, const tc_exec& exec, const cuda::DeviceInfo& device) {
    return F(*static_cast<const A*>(args), exec, device);
  }
  template <size_t (*F)(const A&, const tc_exec&)>
  static size_t cuda_workspace(const void* args, const tc_exec& exec) {
    return F(*static_cast<const A*>(args), exec);
  }
  template <auto Carve>
  static size_t workspace(const void* args, const tc_exec&) {
    Arena counting;
    Carve(*static_cast<const A*>(args), counting);
    return counting.used();
  }
};

}  // namespace tc
