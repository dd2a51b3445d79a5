// One call on more than 2^31 elements a tensor, held against the oracle on a sample of its rows.
#include <cuda_runtime.h>

#include <algorithm>

#include "traincore/core/view.h"
#include "traincore/cuda/launch.h"
#include "traincore/testing/check.h"
#include "traincore/testing/compare.h"
#include "traincore/testing/gpu.h"
#include "traincore/testing/gpu_set.h"
#include "traincore/testing/values.h"

namespace tc::testing {
namespace {

using cuda::require_ok;

constexpr int64_t kElements = (int64_t{1} << 31) + (int64_t{1} << 20);
constexpr int64_t kSampled = 1000;

// The first and last rows, those around element 2^31, and others at random.
std::vector<int64_t> sampled_rows(int64_t rows, int64_t cols) {
  const int64_t middle = (int64_t{1} << 31) / cols;
  std::vector<int64_t> sample = {0, 1, middle - 1, middle, middle + 1, rows - 2, rows - 1};
  Random random(31);
  while (static_cast<int64_t>(sample.size()) < kSampled) sample.push_back(random.below(rows));
  for (int64_t& row : sample) row = std::clamp<int64_t>(row, 0, rows - 1);
  return sample;
}

// The sampled rows of a dense tensor that leads with the rows, else all of it, as doubles.
std::vector<double> gather(const tc_tensor& t, const std::byte* device, bool leads, int64_t rows,
                           const std::vector<int64_t>& sample) {
  // A scalar leads with the rows too where its shape has none: a loss that is summed.
  leads &= element_count(t) >= rows;
  const int64_t count = element_count(t), size = static_cast<int64_t>(tc_dtype_size(t.dtype));
  const int64_t width = leads ? count / rows : count;
  const std::vector<int64_t> whole = {0};
  std::vector<std::byte> bytes(static_cast<size_t>(width * size));
  std::vector<double> values;
  for (const int64_t row : leads ? sample : whole) {
    require_ok(cudaMemcpy(bytes.data(), device + row * width * size, bytes.size(), cudaMemcpyDeviceToHost), "sample");
    const std::vector<double> read = read_all(tc_tensor_dense(bytes.data(), t.dtype, 1, &width));
    values.insert(values.end(), read.begin(), read.end());
  }
  return values;
}

void check_case(const OpCases& op, const PassCases& cases, const Case& large, std::string_view rows_name, int32_t dtype,
                Outcome outcome, const Report& report) {
  const Pass& pass = find_pass(op.name, cases.pass);
  const int64_t rows = large.extent(rows_name);
  const Problem problem(pass, large, dtype, Reals::storage, Memory::reserved);
  const GpuSet set(problem);
  fill_inputs(large, problem, set);
  if (const PassCases* forward = forward_of(op, cases)) take_saved(op, *forward, large, dtype, problem, set);
  int64_t widest = 1;
  problem.for_each([&](const Field&, const std::string&, const tc_tensor& t) {
    widest = std::max(widest, element_count(t) / rows);
  });
  const std::vector<int64_t> sample = sampled_rows(rows, widest);
  Values inputs, got;
  const auto gather_where = [&](Values& to, auto wanted) {
    for_each_memory(problem, set,
                    [&](const Field& f, const std::string& key, const tc_tensor& t, std::byte* p, size_t) {
                      if (wanted(f, t)) to[key] = gather(t, p, leads_with(f, rows_name), rows, sample);
                    });
  };
  gather_where(inputs, [&](const Field& f, const tc_tensor&) { return problem.reads(f); });
  set.call(pass, nullptr);
  require_ok(cudaDeviceSynchronize(), cuda::last_kernel_name());
  gather_where(got, [&](const Field& f, const tc_tensor& t) {
    return f.is_written() && leads_with(f, rows_name) && element_count(t) >= rows;
  });
  Case small = large;
  small.dims.find(rows_name)->second = {kSampled};
  Problem exact(pass, small, dtype, Reals::f64), honest(pass, small, dtype, Reals::f32);
  for (Problem* p : {&exact, &honest}) p->write_inputs(inputs);
  cases.exact(exact.args(), problem.args());
  cases.honest(honest.args(), problem.args());
  const Values want = exact.outputs(), plain = honest.outputs();
  problem.for_each([&](const Field& f, const std::string& key, const tc_tensor& t) {
    if (!got.contains(key)) return;
    const Terms terms = cases.terms ? cases.terms(f.name, exact.args()) : Terms{};
    const Comparison result =
        compare(got.at(key), want.at(key), plain.at(key), t.dtype, terms, large.nonfinite.contains(f.name),
                large.zero.contains(f.name) || !is_float(t.dtype));
    Outcome o = outcome;
    o.field = key, o.error = result.error, o.budget = result.budget, o.message = result.failure;
    report(o);
  });
}

}  // namespace

// What is made larger: the rows or, of an op that says that its elements may be, those.
static std::string_view large_dimension(const OpCases& op, const Pass& pass) {
  if (const std::string_view rows = row_dimension(pass); !rows.empty() || !op.large) return rows;
  return pass.fields.front().shape[0].terms[0].name;
}

void check_large(const OpCases& op, const CheckOptions& options, const Report& report) {
  const auto list = op.bench_cuda ? op.bench_cuda() : op.bench ? op.bench() : std::vector<Case>{};
  const cuda::DeviceGuard device(gpu_in_use());
  for (const PassCases& cases : op.passes) {
    const Pass& pass = find_pass(op.name, cases.pass);
    const std::string_view rows = large_dimension(op, pass);
    if (!pass.cuda || rows.empty() || list.empty()) continue;
    Case large = op.large ? op.large() : list[0];
    const Problem sizes(pass, large, TC_DTYPE_BF16, Reals::storage, Memory::reserved);
    int64_t widest = 1;
    sizes.for_each([&](const Field&, const std::string&, const tc_tensor& t) {
      widest = std::max(widest, element_count(t) / std::max<int64_t>(large.extent(rows), 1));
    });
    large.dims.find(rows)->second = {(kElements + widest - 1) / widest};
    Outcome o{std::string(op.name), std::string(pass.name), "large", "bf16", device_name(options.device), large.text()};
    const tc_status_t status = guard([&] { check_case(op, cases, large, rows, TC_DTYPE_BF16, o, report); });
    if (status == TC_OK) continue;
    (status == TC_ERR_KERNEL_NOT_FOUND ? o.refusal : o.message) = tc_last_error();
    report(o);
  }
}

}  // namespace tc::testing
