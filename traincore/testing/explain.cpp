#include "traincore/testing/explain.h"

#include <fmt/format.h>

#include "traincore/core/op.h"
#include "traincore/testing/machine.h"

namespace tc::testing {
namespace {

std::string simd_target() {
  const Machine& m = machine();
  return fmt::format("cpu, {}: the best that this CPU has of {}", m.simd, fmt::join(m.simd_compiled, ", "));
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
    e.kernel = pass.explain
                   ? pass.explain(problem.args(), exec, dims)
                   : fmt::format("the one variant of {}, for {} storage", pass.name, tc_dtype_name(storage_dtype));
    e.target = simd_target();
    e.bytes = traffic_of(problem).total();
    if (pass.flops) e.flops = pass.flops(problem.args(), dims);
  } catch (const Error& error) {
    e.status = error.code;
    e.refusal = error.what();
  }
  return e;
}

}  // namespace tc::testing
