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
#include "traincore/testing/gpu.h"
#include "traincore/testing/gpu_set.h"

namespace tc::testing {
namespace {

using cuda::require_ok;

constexpr int kMostStreams = 8;
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

// run() until memory is quiet: what was freed before is cleared in the background, which takes a tenth of the bandwidth
// for some 2.3 ms a GB (H200, 2026-11-30).
template <class F>
void settle(cudaStream_t stream, F&& run) {
  constexpr double kSeconds = 0.05;
  const Event begin;
  begin.record(stream);
  double spent = 0;
  while (spent < kSeconds) {
    run();
    const Event end;
    end.record(stream);
    spent = seconds_between(begin, end);
  }
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
  const auto stream = [&] {
    if (writes > 0)
      cuda::launch<stream_kernel<1>>("stream", {blocks, 256}, tc_exec_default(), s);
    else
      cuda::launch<stream_kernel<kReadUnroll>>("stream", {cuda::blocks_for(vectors, 256 * kReadUnroll), 256},
                                               tc_exec_default(), s);
  };
  settle(nullptr, stream);
  Event events[kRuns + 1];
  events[0].record(nullptr);
  for (int run = 0; run < kRuns; ++run) {
    stream();
    events[run + 1].record(nullptr);
  }
  double best = 1e30;
  for (int run = 1; run < kRuns; ++run) best = std::min(best, seconds_between(events[run], events[run + 1]));
  return double(vectors) * 16 * (reads + writes) / best;
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

// So many calls, on the sets in turn.
cudaGraphExec_t capture(const Pass& pass, const std::vector<std::unique_ptr<GpuSet>>& sets, int calls,
                        cudaStream_t stream) {
  require_ok(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
  tc_status_t status = TC_OK;
  for (int i = 0; i < calls && status == TC_OK; ++i)
    status = guard([&] { sets[size_t(i) % sets.size()]->call(pass, stream); });
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
  const cuda::DeviceGuard device(gpu_in_use());
  double& rate = known[{reads, writes}];
  if (rate == 0) rate = measure_ceiling(reads, writes);
  return rate;
}

void time_on_gpu(const OpCases& op, const PassCases& cases, const Case& c, int32_t dtype, double seconds,
                 Measurement& m) {
  constexpr double kFootprint = double(int64_t{1} << 30);
  constexpr double kShort = double(160 << 20);  // bytes of a call whose time is tens of microseconds
  constexpr int kMostSets = 64, kCallsOfShort = 16, kFewestRuns = 5, kMostRuns = 200;
  const cuda::DeviceGuard device(gpu_in_use());
  const Pass& pass = find_pass(op.name, cases.pass);
  const Problem problem(pass, c, dtype, Reals::storage, Memory::reserved);
  m.bytes = traffic_of(problem).total();
  const auto [reads, writes] = streams_of(problem);
  m.floor = m.bytes / gpu_ceiling(reads, writes);
  std::vector<std::unique_ptr<GpuSet>> sets;
  sets.push_back(std::make_unique<GpuSet>(problem));
  fill_inputs(c, problem, *sets[0]);
  if (const PassCases* forward = forward_of(op, cases)) take_saved(op, *forward, c, dtype, problem, *sets[0]);
  const int count = int(std::clamp(kFootprint / std::max(m.bytes, 1.0), 2.0, double(kMostSets)));
  while (int(sets.size()) < count) {
    sets.push_back(std::make_unique<GpuSet>(problem));
    sets[0]->copy_to(*sets.back());
  }
  cudaStream_t stream = nullptr;
  require_ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  const bool is_short = m.bytes < kShort;
  const int calls = is_short ? std::max(count, kCallsOfShort) : count;
  cudaGraphExec_t graph = capture(pass, sets, calls, stream);
  settle(stream, [&] { require_ok(cudaGraphLaunch(graph, stream), "warm-up"); });
  std::vector<double> times;
  double spent = 0;
  while (int(times.size()) < kFewestRuns || (spent < seconds && int(times.size()) < kMostRuns)) {
    const Event begin, end;
    // Behind another run, so that the host's time to launch a graph does not count.
    if (is_short) require_ok(cudaGraphLaunch(graph, stream), "an untimed run");
    begin.record(stream);
    require_ok(cudaGraphLaunch(graph, stream), "a timed run");
    end.record(stream);
    times.push_back(seconds_between(begin, end) / calls);
    spent += times.back() * calls;
  }
  m.time = timing_of(times);
  cudaGraphExecDestroy(graph);
  cudaStreamDestroy(stream);
}

}  // namespace tc::testing
