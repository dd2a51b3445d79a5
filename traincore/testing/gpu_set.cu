#include "traincore/testing/gpu_set.h"

#include <cuda_runtime.h>

#include <algorithm>

#include "traincore/core/op.h"
#include "traincore/cuda/launch.h"
#include "traincore/testing/check.h"
#include "traincore/testing/gpu.h"
#include "traincore/testing/values.h"

namespace tc::testing {
namespace {

using cuda::require_ok;

// A float tensor repeats its values beyond this many elements. A prime: no two rows are the same.
constexpr int64_t kPeriod = 1000003;

// Random values of a tensor's fill, over all the memory behind it.
void fill_memory(const Pass& pass, const Case& c, const Field& f, const std::string& key, const tc_tensor& t,
                 std::byte* to, size_t bytes) {
  Random random(name_hash(key));
  const Fill draw = fill_of(pass, c, f, t.dtype);
  const size_t size = tc_dtype_size(t.dtype);
  const bool repeats = is_float(t.dtype) || t.dtype == TC_DTYPE_I16;  // not what may be an index
  const int64_t all = int64_t(bytes / size), count = repeats ? std::min(all, kPeriod) : all;
  std::vector<std::byte> pattern(size_t(count) * size);
  std::vector<double> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) values[size_t(i)] = draw(c, random, i);
  write_all(tc_tensor_dense(pattern.data(), t.dtype, 1, &count), values);
  require_ok(cudaMemcpy(to, pattern.data(), pattern.size(), cudaMemcpyHostToDevice), "fill");
  for (size_t done = pattern.size(); done < bytes; done *= 2)
    require_ok(cudaMemcpy(to + done, to, std::min(done, bytes - done), cudaMemcpyDeviceToDevice), "fill");
}

}  // namespace

void DeviceFree::operator()(std::byte* p) const { cudaFree(p); }

DeviceMemory device_memory(size_t bytes) {
  void* p = nullptr;
  require_ok(cudaMalloc(&p, std::max<size_t>(bytes, 1)), "device memory");
  return DeviceMemory(static_cast<std::byte*>(p));
}

GpuSet::GpuSet(const Problem& problem) {
  problem.for_each_buffer([&](GuardedBuffer& b) {
    sizes_[&b] = b.size();
    copies_[&b] = device_memory(b.size());
    require_ok(cudaMemset(copies_[&b].get(), 0xff, b.size()), "poison");
  });
  moved_ = problem.moved([&](tc_tensor t, const GuardedBuffer& b) {
    t.data = copies_.at(&b).get() + (static_cast<std::byte*>(t.data) - b.begin());
    t.device = TC_CUDA, t.device_index = gpu_in_use();
    return t;
  });
  if (call_workspace(problem.pass(), moved_.args(), nullptr, &workspace_bytes_) != TC_OK)
    throw Error(TC_ERR_KERNEL_NOT_FOUND, tc_last_error());
  workspace_ = device_memory(workspace_bytes_);
}

void GpuSet::call(const Pass& pass, void* stream) const {
  tc_exec exec = tc_exec_default();
  exec.stream = stream, exec.workspace = workspace_.get(), exec.workspace_bytes = workspace_bytes_;
  if (const tc_status_t status = tc::call(pass, moved_.args(), &exec); status != TC_OK)
    throw Error(status, tc_last_error());
}

void GpuSet::copy_to(const GpuSet& other) const {
  for (const auto& [buffer, copy] : copies_)
    require_ok(cudaMemcpy(other.copies_.at(buffer).get(), copy.get(), sizes_.at(buffer), cudaMemcpyDeviceToDevice),
               "copy");
}

void for_each_memory(const Problem& problem, const GpuSet& set, const VisitMemory& visit) {
  std::map<const void*, std::pair<std::byte*, size_t>> where;
  problem.moved([&](tc_tensor t, const GuardedBuffer& b) {
    where[t.data] = {set.memory(b) + (static_cast<std::byte*>(t.data) - b.begin()),
                     size_t(b.begin() + b.size() - static_cast<std::byte*>(t.data)) - 256};
    return t;
  });
  problem.for_each([&](const Field& f, const std::string& key, const tc_tensor& t) {
    if (element_count(t) > 0) visit(f, key, t, where.at(t.data).first, where.at(t.data).second);
  });
}

void fill_inputs(const Case& c, const Problem& problem, const GpuSet& set) {
  for_each_memory(problem, set,
                  [&](const Field& f, const std::string& key, const tc_tensor& t, std::byte* p, size_t bytes) {
                    if (problem.reads(f)) fill_memory(problem.pass(), c, f, key, t, p, bytes);
                  });
}

void take_saved(const OpCases& op, const PassCases& forward_cases, const Case& c, int32_t dtype,
                const Problem& backward, const GpuSet& to) {
  const Pass& forward = find_pass(op.name, forward_cases.pass);
  const Case full = with_saved(c, forward, backward);
  const Problem problem(forward, full, dtype, Reals::storage, Memory::reserved);
  const GpuSet from(problem);
  fill_inputs(full, problem, from);
  from.call(forward, nullptr);
  require_ok(cudaDeviceSynchronize(), cuda::last_kernel_name());
  std::map<std::string, std::pair<std::byte*, size_t>> made;
  for_each_memory(problem, from,
                  [&](const Field& f, const std::string& key, const tc_tensor&, std::byte* p, size_t bytes) {
                    if (f.is_written()) made[key] = {p, bytes};
                  });
  for_each_memory(
      backward, to, [&](const Field& f, const std::string& key, const tc_tensor&, std::byte* p, size_t bytes) {
        if (const auto found = made.find(key); found != made.end() && backward.reads(f))
          require_ok(
              cudaMemcpy(p, found->second.first, std::min(bytes, found->second.second), cudaMemcpyDeviceToDevice),
              "saved");
      });
}

}  // namespace tc::testing
