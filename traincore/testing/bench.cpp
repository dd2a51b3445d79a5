#include "traincore/testing/bench.h"

#include <algorithm>

#include "traincore/core/fail.h"
#include "traincore/testing/calls.h"
#include "traincore/testing/gpu_bench.h"

namespace tc::testing {
namespace {

void time_case(const Calls& calls, const BenchOptions& options, const Rates& rates, Measurement& m) {
  tc_exec exec = tc_exec_default();
  exec.threads = options.threads;
  m.time = measure(options.seconds, [&](int run) { calls.run(run, exec); });
  const Traffic traffic = calls.traffic();
  m.bytes = traffic.total();
  m.flops = calls.flops();
  const Evaluations functions = calls.evaluations();
  m.evaluations = functions.exp + functions.tanh;
  m.floor = traffic.streamed / rates.copy + traffic.updated / rates.update;
  const auto raise = [&](double seconds, Bound bound) {
    if (seconds > m.floor) m.floor = seconds, m.bound = bound;
  };
  if (rates.gemm > 0) raise(m.flops / rates.gemm, Bound::product);
  raise(functions.exp / rates.exp + functions.tanh / rates.tanh, Bound::functions);
}

}  // namespace

void bench(const OpCases& op, const BenchOptions& options, const Rates& rates,
           const std::function<void(const Measurement&)>& report) {
  const bool on_gpu = options.device == TC_CUDA;
  const auto cases = on_gpu && op.bench_cuda ? op.bench_cuda : op.bench;
  const std::vector<Case> list = cases ? cases() : std::vector<Case>{};
  const auto total = static_cast<int64_t>(op.passes.size() * options.dtypes.size() * list.size());
  int64_t done = 0;
  for (const PassCases& pass : op.passes)
    for (const int32_t dtype : options.dtypes)
      for (const Case& c : list) {
        Measurement m{std::string(op.name), std::string(pass.pass), tc_dtype_name(dtype), c.text()};
        if (options.progress) options.progress(done++, total);
        if (fmt::format("{} {} {}", m.pass, m.dtype, m.case_text).find(options.only) == std::string::npos) continue;
        try {
          if (on_gpu)
            time_on_gpu(op, pass, c, dtype, options.seconds, m);
          else
            time_case(Calls(op, pass, c, dtype), options, rates, m);
        } catch (const Error& e) {
          m.refusal = e.what();
        }
        report(m);
      }
}

}  // namespace tc::testing
