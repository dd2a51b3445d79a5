#include "traincore/testing/explain.h"

#include "traincore/core/op.h"
#include "traincore/testing/machine.h"

namespace tc::testing {
namespace {

std::string default_kernel(const Pass& pass, int32_t storage_dtype) {
  const Machine& m = machine();
  std::string compiled;
  for (const std::string& target : m.simd_compiled) compiled.append(compiled.empty() ? "" : ", ").append(target);
  return fmt::format("the CPU kernel of {} for {} storage, its only variant; {}, the best that this CPU has of {}",
                     pass.name, tc_dtype_name(storage_dtype), m.simd, compiled);
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

Explanation explain(const Pass& pass, const Case& c, int32_t storage_dtype, const tc_exec& exec) {
  Explanation e;
  try {
    Problem problem(pass, c, storage_dtype, Reals::storage, Memory::reserved);
    if (e.status = call_workspace(pass, problem.args(), &exec, &e.workspace); e.status != TC_OK) {
      e.refusal = tc_last_error();
      return e;
    }
    const Dims dims = validate(pass, problem.args());
    e.kernel = pass.explain ? pass.explain(problem.args(), exec, dims) : default_kernel(pass, storage_dtype);
    e.bytes = traffic_of(problem).total();
    if (pass.flops) e.flops = pass.flops(problem.args(), dims);
  } catch (const Error& error) {
    e.status = error.code;
    e.refusal = error.what();
  }
  return e;
}

}  // namespace tc::testing
