#include "traincore/testing/gpu_bench.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <map>
#include <memory>

#include "traincore/core/op.h"
#include "traincore/core/random.h"
#include "traincore/cuda/launch.h"
#include "traincore/testing/check.h"
#include "traincore/testing/explain.h"
#include "traincore/testing/values.h"

namespace tc::testing {
namespace {

using cuda::require_ok;

constexpr int kMostStreams = 8;
// A float tensor repeats its values beyond this many elements. A prime: no two rows are the same.
constexpr int64_t kPeriod = 1000003;

struct DeviceFree {
  void operator()(std::byte* p) const { cudaFree(p); }
};
using DeviceMemory = std::unique_ptr<std::byte, DeviceFree>;
DeviceMemory device_memory(size_t bytes) {
  void* p = nullptr;
  require_ok(cudaMalloc(&p, std::max<size_t>(bytes, 1)), "the device memory of a benchmark");
  return DeviceMemory(static_cast<std::byte*>(p));
}

struct Event {
  cudaEvent_t event = nullptr;
  Event() { require_ok(cudaEventCreate(&event), "event"); }
  ~Event() { cudaEventDestroy(event); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record(cudaStream_t stream) const { require_ok(cudaEventRecord(event, stream), "event"); }
};
double seconds_between(const Event& a, const Event& b) {
  float ms = 0;
  require_ok(cudaEventSynchronize(b.event), "event");
  require_ok(cudaEventElapsedTime(&ms, a.event, b.event), "event");
  return ms * 1e-3;
}

struct Streams {
  const uint4* from[kMostStreams];
  uint4* to[kMostStreams];
  int64_t vectors;  // of each array
  int reads, writes;
};

// A kernel that writes keeps enough in flight with one vector a thread and array; one that only reads needs more.
constexpr int kReadUnroll = 8;

template <int kUnroll>
__global__ void __launch_bounds__(256) stream_kernel(const Streams s) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x * kUnroll + threadIdx.x;
  if (i >= s.vectors) return;
  uint4 x{};
#pragma unroll
  for (int r = 0; r < kMostStreams; ++r)
    if (r < s.reads)
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const uint4 y = s.from[r][min(i + u * int(blockDim.x), s.vectors - 1)];
        x.x ^= y.x, x.y ^= y.y, x.z ^= y.z, x.w ^= y.w;
      }
#pragma unroll
  for (int w = 0; w < kMostStreams; ++w)
    if (w < s.writes) s.to[w][i] = x;
  if (s.writes == 0 && (x.x ^ x.y ^ x.z ^ x.w) == 0x9e3779b9u && x.x == 1) s.to[0][0] = x;
}

__global__ void random_bits_kernel(uint4* to, int64_t vectors) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= vectors) return;
  const Words4 w = Philox{7}(uint64_t(i));
  to[i] = {w.x, w.y, w.z, w.w};
}

double measure_ceiling(int reads, int writes) {
  constexpr int64_t kBytes = int64_t{2} << 30;
  constexpr int kRuns = 12;
  const int64_t vectors = kBytes / (reads + writes) / 16;
  std::vector<DeviceMemory> arrays;
  Streams s{{}, {}, vectors, reads, writes};
  const int64_t blocks = cuda::blocks_for(vectors, 256);
  for (int i = 0; i < reads + std::max(writes, 1); ++i) {
    arrays.push_back(device_memory(i < reads + writes ? size_t(vectors) * 16 : 16));
    auto* p = reinterpret_cast<uint4*>(arrays.back().get());
    if (i < reads)
      s.from[i] = p;
    else
      s.to[i - reads] = p;
    if (i < reads) cuda::launch<random_bits_kernel>("random_bits", {blocks, 256}, tc_exec_default(), p, vectors);
  }
  Event events[kRuns + 1];
  events[0].record(nullptr);
  for (int run = 0; run < kRuns; ++run) {
    if (writes > 0)
      cuda::launch<stream_kernel<1>>("stream", {blocks, 256}, tc_exec_default(), s);
    else
      cuda::launch<stream_kernel<kReadUnroll>>("stream", {cuda::blocks_for(vectors, 256 * kReadUnroll), 256},
                                               tc_exec_default(), s);
    events[run + 1].record(nullptr);
  }
  double best = 1e30;
  for (int run = 1; run < kRuns; ++run) best = std::min(best, seconds_between(events[run], events[run + 1]));
  return double(vectors) * 16 * (reads + writes) / best;
}

// Random values of a tensor's fill, over all the memory behind it.
void fill_memory(const Case& c, const Field& f, const std::string& key, const tc_tensor& t, std::byte* to,
                 size_t bytes) {
  Random random(name_hash(key));
  const auto found = c.fills.find(f.name);
  if (found == c.fills.end() && !is_float(t.dtype))
    fail(TC_ERR_INTERNAL, "the bench case gives no fill for {}", f.name);
  const Fill draw = found == c.fills.end() ? normal() : found->second;
  const size_t size = tc_dtype_size(t.dtype);
  const int64_t all = int64_t(bytes / size), count = is_float(t.dtype) ? std::min(all, kPeriod) : all;
  std::vector<std::byte> pattern(size_t(count) * size);
  for (int64_t i = 0; i < count; ++i) set(pattern.data() + size_t(i) * size, t.dtype, draw(c, random, i));
  require_ok(cudaMemcpy(to, pattern.data(), pattern.size(), cudaMemcpyHostToDevice), "fill");
  for (size_t done = pattern.size(); done < bytes; done *= 2)
    require_ok(cudaMemcpy(to + done, to, std::min(done, bytes - done), cudaMemcpyDeviceToDevice), "fill");
}

// One set of tensors on the device.
class Set {
 public:
  Set(const Problem& problem) {
    problem.for_each_buffer([&](GuardedBuffer& b) {
      sizes_[&b] = b.size();
      copies_[&b] = device_memory(b.size());
      require_ok(cudaMemset(copies_[&b].get(), 0xff, b.size()), "poison");
    });
    moved_ = problem.moved([&](tc_tensor t, const GuardedBuffer& b) {
      t.data = copies_.at(&b).get() + (static_cast<std::byte*>(t.data) - b.begin());
      t.device = TC_CUDA;
      return t;
    });
    size_t bytes = 0;
    if (call_workspace(problem.pass(), moved_.args(), nullptr, &bytes) != TC_OK)
      throw Error(TC_ERR_KERNEL_NOT_FOUND, tc_last_error());
    workspace_bytes_ = bytes;
    workspace_ = device_memory(bytes);
  }
  std::byte* memory(const GuardedBuffer& b) const { return copies_.at(&b).get(); }
  void call(const Pass& pass, cudaStream_t stream) const {
    tc_exec exec = tc_exec_default();
    exec.stream = stream, exec.workspace = workspace_.get(), exec.workspace_bytes = workspace_bytes_;
    if (const tc_status_t status = tc::call(pass, moved_.args(), &exec); status != TC_OK)
      throw Error(status, tc_last_error());
  }
  void copy_to(const Set& other) const {  // a set of the same problem
    for (const auto& [buffer, copy] : copies_)
      require_ok(cudaMemcpy(other.copies_.at(buffer).get(), copy.get(), sizes_.at(buffer), cudaMemcpyDeviceToDevice),
                 "copy");
  }

 private:
  std::map<const GuardedBuffer*, DeviceMemory> copies_;
  std::map<const GuardedBuffer*, size_t> sizes_;
  Moved moved_;
  DeviceMemory workspace_;
  size_t workspace_bytes_ = 0;
};

// visit(field, key, tensor, its buffer), through moved(), which knows them all.
void for_each_memory(
    const Problem& problem, const Set& set,
    const std::function<void(const Field&, const std::string&, const tc_tensor&, std::byte*, size_t)>& visit) {
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

void fill_inputs(const Case& c, const Problem& problem, const Set& set) {
  for_each_memory(problem, set,
                  [&](const Field& f, const std::string& key, const tc_tensor& t, std::byte* p, size_t bytes) {
                    if (problem.reads(f)) fill_memory(c, f, key, t, p, bytes);
                  });
}

// What a backward reads that its forward wrote comes from the forward kernel.
void take_saved(const OpCases& op, const PassCases& forward_cases, const Case& c, int32_t dtype,
                const Problem& backward, const Set& to) {
  const Pass& forward = find_pass(op.name, forward_cases.pass);
  Case full = c;
  backward.for_each([&](const Field& f, const std::string&, const tc_tensor&) {
    for (const Field& made : forward.fields)
      if (made.name == f.name && made.is_tensor() && made.is_written() && backward.reads(f))
        full.given.insert(std::string(f.name));
  });
  const Problem problem(forward, full, dtype, Reals::storage, Memory::reserved);
  const Set from(problem);
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

// The arrays that carry the traffic: no smaller than a quarter of the largest.
std::pair<int, int> streams_of(const Problem& problem) {
  double largest = 0;
  const auto bytes = [](const tc_tensor& t) { return double(element_count(t)) * double(tc_dtype_size(t.dtype)); };
  problem.for_each(
      [&](const Field&, const std::string&, const tc_tensor& t) { largest = std::max(largest, bytes(t)); });
  int reads = 0, writes = 0;
  problem.for_each([&](const Field& f, const std::string&, const tc_tensor& t) {
    if (4 * bytes(t) < largest) return;
    reads += problem.reads(f);
    writes += f.is_written();
  });
  return {std::clamp(reads, writes ? 0 : 1, kMostStreams), std::min(writes, kMostStreams)};
}

cudaGraphExec_t capture(const Pass& pass, const std::vector<std::unique_ptr<Set>>& sets, cudaStream_t stream) {
  require_ok(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
  tc_status_t status = TC_OK;
  for (const auto& set : sets)
    if (status == TC_OK) status = guard([&] { set->call(pass, stream); });
  const std::string sentence = tc_last_error();
  cudaGraph_t graph = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(stream, &graph);
  if (status != TC_OK) throw Error(status, sentence);
  require_ok(ended, "capture");
  cudaGraphExec_t executable = nullptr;
  require_ok(cudaGraphInstantiate(&executable, graph, 0), "graph");
  cudaGraphDestroy(graph);
  return executable;
}

Timing timing_of(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  const auto quantile = [&](double q) { return times[size_t(q * double(times.size() - 1))]; };
  return {quantile(0.5), times[0], (quantile(0.75) - quantile(0.25)) / quantile(0.5), int(times.size())};
}

}  // namespace

double gpu_ceiling(int reads, int writes) {
  static std::map<std::pair<int, int>, double> known;
  const cuda::DeviceGuard device(0);
  double& rate = known[{reads, writes}];
  if (rate == 0) rate = measure_ceiling(reads, writes);
  return rate;
}

void time_on_gpu(const OpCases& op, const PassCases& cases, const Case& c, int32_t dtype, double seconds,
                 Measurement& m) {
  constexpr double kFootprint = double(int64_t{1} << 30);
  constexpr int kMostSets = 64, kFewestRuns = 5, kMostRuns = 200;
  const cuda::DeviceGuard device(0);
  const Pass& pass = find_pass(op.name, cases.pass);
  const Problem problem(pass, c, dtype, Reals::storage, Memory::reserved);
  m.bytes = traffic_of(problem).total();
  const auto [reads, writes] = streams_of(problem);
  m.floor = m.bytes / gpu_ceiling(reads, writes);
  std::vector<std::unique_ptr<Set>> sets;
  sets.push_back(std::make_unique<Set>(problem));
  fill_inputs(c, problem, *sets[0]);
  if (const PassCases* forward = forward_of(op, cases)) take_saved(op, *forward, c, dtype, problem, *sets[0]);
  const int count = int(std::clamp(kFootprint / std::max(m.bytes, 1.0), 2.0, double(kMostSets)));
  while (int(sets.size()) < count) {
    sets.push_back(std::make_unique<Set>(problem));
    sets[0]->copy_to(*sets.back());
  }
  cudaStream_t stream = nullptr;
  require_ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  cudaGraphExec_t graph = capture(pass, sets, stream);
  require_ok(cudaGraphLaunch(graph, stream), "warm-up");
  std::vector<double> times;
  double spent = 0;
  while (int(times.size()) < kFewestRuns || (spent < seconds && int(times.size()) < kMostRuns)) {
    const Event begin, end;
    begin.record(stream);
    require_ok(cudaGraphLaunch(graph, stream), "a timed run");
    end.record(stream);
    times.push_back(seconds_between(begin, end) / count);
    spent += times.back() * count;
  }
  m.time = timing_of(times);
  cudaGraphExecDestroy(graph);
  cudaStreamDestroy(stream);
}

}  // namespace tc::testing
