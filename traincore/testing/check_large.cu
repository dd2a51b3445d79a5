// One call on more than 2^31 elements a tensor, held against the oracle on a sample of its rows.
#include <cuda_runtime.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "traincore/core/fail.h"
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

constexpr int32_t kDtype = TC_DTYPE_BF16;
constexpr int64_t kElements = (int64_t{1} << 31) + (int64_t{1} << 20);
constexpr int64_t kSampled = 1000;                          // rows,
constexpr int64_t kSampledElements = 1 << 25, kLeast = 16;  // fewer where they are wide: oracles run on the host

// What a large case has many of: the dimension that its tensors lead with or, in lists, the elements of the last one.
// Oracles see the chosen ones alone.
struct Rows {
  std::string_view dimension;
  int64_t count = 0;
  std::vector<int64_t> chosen;  // in order, each once

  // Whether it is a row for each of them; a loss that is summed leads with the dimension too, but has none.
  bool are_of(const Field& f, const tc_tensor& t) const {
    return leads_with(f, dimension) && element_count(t) >= count;
  }
};

void set_count(Case& c, std::string_view dimension, int64_t count) {
  (c.list_shapes.empty() ? c.dims.find(dimension)->second : c.list_shapes.back()) = {count};
}

int64_t count_of(const Case& c, std::string_view dimension) {
  if (c.list_shapes.empty()) return c.extent(dimension);
  const std::vector<int64_t>& last = c.list_shapes.back();
  return std::accumulate(last.begin(), last.end(), int64_t{1}, std::multiplies<>());
}

int64_t widest_row(const Problem& problem, int64_t rows) {
  int64_t widest = 1;
  problem.for_each([&](const Field&, const std::string&, const tc_tensor& t) {
    widest = std::max(widest, element_count(t) / std::max<int64_t>(rows, 1));
  });
  return widest;
}

// The first and last rows, those around element 2^31, and others at random.
std::vector<int64_t> choose(int64_t rows, int64_t width) {
  const int64_t middle = (int64_t{1} << 31) / width;
  const int64_t wanted = std::min({rows, kSampled, std::max(kSampledElements / width, kLeast)});
  std::set<int64_t> chosen;
  for (const int64_t row : {int64_t{0}, int64_t{1}, middle - 1, middle, middle + 1, rows - 2, rows - 1})
    chosen.insert(std::clamp<int64_t>(row, 0, rows - 1));
  Random random(31);
  while (static_cast<int64_t>(chosen.size()) < wanted) chosen.insert(random.below(rows));
  return {chosen.begin(), chosen.end()};
}

// Copies the chosen rows of a dense tensor on the device to a block of them alone, or back.
void copy_chosen(std::byte* device, std::vector<std::byte>& block, const Rows& rows, cudaMemcpyKind direction) {
  const size_t size = block.size() / rows.chosen.size();
  std::byte* here = block.data();
  for (const int64_t row : rows.chosen) {
    std::byte* const there = device + static_cast<size_t>(row) * size;
    const bool back = direction == cudaMemcpyHostToDevice;
    require_ok(cudaMemcpy(back ? there : here, back ? here : there, size, direction), "sample");
    here += size;
  }
}

size_t chosen_bytes(const tc_tensor& t, const Rows& rows) {
  return static_cast<size_t>(element_count(t) / rows.count) * rows.chosen.size() * tc_dtype_size(t.dtype);
}

// The chosen rows of a tensor that has rows, else all of it.
std::vector<double> gather(const Field& f, const tc_tensor& t, std::byte* device, const Rows& rows) {
  const auto size = static_cast<int64_t>(tc_dtype_size(t.dtype));
  std::vector<std::byte> block(rows.are_of(f, t) ? chosen_bytes(t, rows)
                                                 : static_cast<size_t>(element_count(t) * size));
  if (rows.are_of(f, t))
    copy_chosen(device, block, rows, cudaMemcpyDeviceToHost);
  else
    require_ok(cudaMemcpy(block.data(), device, block.size(), cudaMemcpyDeviceToHost), "sample");
  const int64_t count = static_cast<int64_t>(block.size()) / size;
  return read_all(tc_tensor_dense(block.data(), t.dtype, 1, &count));
}

// Makes a tensor zero but in the chosen rows.
void clear_others(const tc_tensor& t, std::byte* device, size_t bytes, const Rows& rows) {
  std::vector<std::byte> kept(chosen_bytes(t, rows));
  copy_chosen(device, kept, rows, cudaMemcpyDeviceToHost);
  require_ok(cudaMemset(device, 0, bytes), "zero");
  copy_chosen(device, kept, rows, cudaMemcpyHostToDevice);
}

// What an oracle makes of the chosen rows.
struct Definition {
  Values exact, honest;
  std::map<std::string, Terms, std::less<>> terms;  // by field
};

void define(const PassCases& cases, const Problem& whole, const Case& c, const Values& inputs, Definition& to) {
  Problem exact(whole.pass(), c, kDtype, Reals::f64), honest(whole.pass(), c, kDtype, Reals::f32);
  for (Problem* p : {&exact, &honest}) p->write_inputs(inputs);
  cases.exact(exact.args(), whole.args());
  cases.honest(honest.args(), whole.args());
  const auto append = [](Values& all, const Values& more) {
    for (const auto& [key, list] : more) all[key].insert(all[key].end(), list.begin(), list.end());
  };
  append(to.exact, exact.outputs());
  append(to.honest, honest.outputs());
  for (const Field& f : whole.pass().fields)
    if (cases.terms && exact.has(f) && f.is_written())
      to.terms[std::string(f.name)] = cases.terms(f.name, exact.args());
}

Definition definition_of(const OpCases& op, const PassCases& cases, const Problem& whole, const Case& large,
                         const Rows& rows, const Values& inputs) {
  Definition d;
  Case part = large;
  set_count(part, rows.dimension, op.place ? 1 : static_cast<int64_t>(rows.chosen.size()));
  if (!op.place) define(cases, whole, part, inputs, d);
  for (const int64_t row : op.place ? rows.chosen : std::vector<int64_t>{}) {
    op.place(part, row);
    define(cases, whole, part, inputs, d);
  }
  return d;
}

void check_case(const OpCases& op, const PassCases& cases, const Case& large, Rows rows, const Outcome& outcome,
                const Report& report) {
  const Pass& pass = find_pass(op.name, cases.pass);
  const Problem problem(pass, large, kDtype, Reals::storage, Memory::reserved);
  rows.chosen = choose(rows.count, widest_row(problem, rows.count));
  const GpuSet set(problem);
  fill_inputs(large, problem, set);
  if (const PassCases* forward = forward_of(op, cases)) take_saved(op, *forward, large, kDtype, problem, set);
  Values inputs, got;
  for_each_memory(problem, set,
                  [&](const Field& f, const std::string& key, const tc_tensor& t, std::byte* p, size_t bytes) {
                    if (!problem.reads(f)) return;
                    if (op.summed.contains(f.name) && rows.are_of(f, t)) clear_others(t, p, bytes, rows);
                    inputs[key] = gather(f, t, p, rows);
                  });
  set.call(pass, nullptr);
  require_ok(cudaDeviceSynchronize(), cuda::last_kernel_name());
  for_each_memory(problem, set, [&](const Field& f, const std::string& key, const tc_tensor& t, std::byte* p, size_t) {
    if (f.is_written() && (rows.are_of(f, t) || f.is_list() || !op.summed.empty())) got[key] = gather(f, t, p, rows);
  });
  if (got.empty())
    fail(TC_ERR_INTERNAL, "{}: the case has no output that a sample of rows can be held against", pass.name);
  const Definition want = definition_of(op, cases, problem, large, rows, inputs);
  problem.for_each([&](const Field& f, const std::string& key, const tc_tensor& t) {
    if (!got.contains(key)) return;
    const auto terms = want.terms.find(f.name);
    const Comparison result =
        compare(got.at(key), want.exact.at(key), want.honest.at(key), t.dtype,
                terms == want.terms.end() ? Terms{} : terms->second, large.nonfinite.contains(f.name),
                large.zero.contains(f.name) || !is_float(t.dtype));
    Outcome o = outcome;
    o.field = key, o.error = result.error, o.budget = result.budget, o.message = result.failure;
    report(o);
  });
}

}  // namespace

// What is made larger: the rows or, of an op that says what may be, what its first tensor leads with.
static std::string_view large_dimension(const OpCases& op, const Pass& pass) {
  if (const std::string_view rows = row_dimension(pass); !rows.empty() || !op.large) return rows;
  const auto first = std::find_if(pass.fields.begin(), pass.fields.end(), [](const Field& f) { return f.is_tensor(); });
  return first->shape[0].terms[0].name;
}

void check_large(const OpCases& op, const CheckOptions& options, const Report& report) {
  const auto list = op.bench_cuda ? op.bench_cuda() : op.bench ? op.bench() : std::vector<Case>{};
  const cuda::DeviceGuard device(gpu_in_use());
  for (const PassCases& cases : op.passes) {
    const Pass& pass = find_pass(op.name, cases.pass);
    Rows rows{.dimension = large_dimension(op, pass)};
    if (!pass.cuda || rows.dimension.empty() || list.empty()) continue;
    Case large = op.large ? op.large() : list[0];
    const Problem usual(pass, large, kDtype, Reals::storage, Memory::reserved);
    const int64_t widest = widest_row(usual, count_of(large, rows.dimension));
    rows.count = (kElements + widest - 1) / widest;
    set_count(large, rows.dimension, rows.count);
    Outcome o{std::string(op.name),  std::string(pass.name),      "large",
              tc_dtype_name(kDtype), device_name(options.device), large.text()};
    const tc_status_t status = guard([&] { check_case(op, cases, large, rows, o, report); });
    if (status == TC_OK) continue;
    (status == TC_ERR_KERNEL_NOT_FOUND ? o.refusal : o.message) = tc_last_error();
    report(o);
  }
}

}  // namespace tc::testing
