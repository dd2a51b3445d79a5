#include "traincore/testing/explain.h"

#include <fmt/format.h>

#include <algorithm>

#include "traincore/core/op.h"
#include "traincore/testing/gpu.h"
#include "traincore/testing/machine.h"

namespace tc::testing {
namespace {

std::string simd_target() {
  const Machine& m = machine();
  return fmt::format("cpu, {}: the best that this CPU has of {}", m.simd, fmt::join(m.simd_compiled, ", "));
}

std::string cpu_kernel(const Pass& pass, const void* args, const tc_exec& exec, const Dims& dims, int32_t dtype) {
  if (pass.explain) return pass.explain(args, exec, dims);
  return fmt::format("the one variant of {}, for {} storage", pass.name, tc_dtype_name(dtype));
}
std::string gpu_kernel(const Pass& pass, const void* args, const tc_exec& exec, const Gpu& gpu) {
  if (pass.cuda_explain) return pass.cuda_explain(args, exec, gpu.info);
  if (!pass.cuda) fail(TC_ERR_KERNEL_NOT_FOUND, "{}: there is no GPU kernel for it", pass.name);
  return fmt::format("the one GPU variant of {}", pass.name);
}

std::string gpu_target(const Pass& pass, const Gpu& gpu) {
  const char* const where = gpu.index >= 0 ? "" : gpu_count() > 0 ? "; described" : "; described, since no GPU is here";
  return fmt::format("{}, sm_{}, {} multiprocessors{}{}", gpu.info.name, gpu.info.sm, gpu.info.multiprocessors, where,
                     pass.cuda ? "" : "; this build has no GPU kernels");
}

}  // namespace

Traffic traffic_of(const Problem& call) {
  const Pass& pass = call.pass();
  if (pass.bytes) return {.streamed = pass.bytes(call.args(), validate(pass, call.args()))};
  Traffic traffic;
  call.for_each([&](const Field& f, const std::string&, const tc_tensor& t) {
    const double bytes = static_cast<double>(element_count(t)) * static_cast<double>(tc_dtype_size(t.dtype));
    if (f.is_written() && call.reads(f))
      traffic.updated += 2 * bytes;
    else
      traffic.streamed += bytes;
  });
  return traffic;
}

Explanation explain(const Pass& pass, const Case& c, int32_t storage_dtype, const tc_exec& exec, const Gpu* gpu) {
  Explanation e;
  try {
    Problem problem(pass, c, storage_dtype, Reals::storage, Memory::reserved);
    const Moved call = problem.moved([&](tc_tensor t, const GuardedBuffer&) {
      if (gpu) t.device = TC_CUDA, t.device_index = std::max(gpu->index, 0);
      return t;
    });
    const bool asks_workspace = !gpu || (gpu->index >= 0 && pass.cuda);
    e.status = asks_workspace ? call_workspace(pass, call.args(), &exec, &e.workspace.emplace())
                              : call_check(pass, call.args(), &exec);
    if (e.status != TC_OK) {
      e.refusal = tc_last_error();
      return e;
    }
    const Dims dims = validate(pass, call.args());
    e.kernel =
        gpu ? gpu_kernel(pass, call.args(), exec, *gpu) : cpu_kernel(pass, call.args(), exec, dims, storage_dtype);
    e.target = gpu ? gpu_target(pass, *gpu) : simd_target();
    e.bytes = traffic_of(problem).total();
    if (pass.flops) e.flops = pass.flops(problem.args(), dims);
  } catch (const Error& error) {
    e.status = error.code;
    e.refusal = error.what();
  }
  return e;
}

}  // namespace tc::testing
