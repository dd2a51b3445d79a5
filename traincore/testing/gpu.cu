#include "traincore/testing/gpu.h"

#include <cuda_runtime.h>

#include <map>

#include "traincore/core/op.h"
#include "traincore/cuda/launch.h"

namespace tc::testing {
namespace {

using cuda::require_ok;

// Grow-only device memory of this thread, handed out piece by piece.
class Pool {
 public:
  std::byte* take(size_t bytes) {
    const size_t at = used_;
    used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return data_ + at;
  }
  // Empties the pool and makes room for so much in so many pieces.
  void reset(size_t bytes, size_t pieces) {
    used_ = 0;
    const size_t needed = bytes + pieces * kAlignment;
    if (needed <= capacity_) return;
    cudaFree(data_);
    data_ = nullptr, capacity_ = 0;
    require_ok(cudaMalloc(&data_, needed), "the device memory of a check");
    capacity_ = needed;
  }

 private:
  static constexpr size_t kAlignment = 256;
  std::byte* data_ = nullptr;
  size_t capacity_ = 0, used_ = 0;
};

constexpr size_t kGuard = 256;
constexpr int kPoison = 0xff;

// A problem's memory, a workspace and the error bits on the current device.
class OnGpu {
 public:
  OnGpu(const Pass& pass, Problem& problem) : pass_(pass), problem_(problem) {
    size_t bytes = 0, pieces = 2;
    problem.for_each_buffer([&](GuardedBuffer& b) { bytes += b.size(), ++pieces; });
    static thread_local Pool pool;
    size_t workspace = 0;
    // Asked with the tensors' own addresses, which are as aligned as those they will have.
    moved_ = problem.moved(
        [](tc_tensor t, const GuardedBuffer&) { return t.device = TC_CUDA, t.device_index = gpu_in_use(), t; });
    if (call_workspace(pass, moved_.args(), nullptr, &workspace) != TC_OK)
      throw Error(TC_ERR_INTERNAL, tc_last_error());
    workspace_bytes_ = workspace;
    pool.reset(bytes + workspace + 2 * kGuard + sizeof(uint32_t), pieces);
    problem.for_each_buffer([&](GuardedBuffer& b) { copies_[&b] = pool.take(b.size()); });
    workspace_ = pool.take(workspace + 2 * kGuard);
    errors_ = reinterpret_cast<uint32_t*>(pool.take(sizeof(uint32_t)));
    moved_ = problem.moved([&](tc_tensor t, const GuardedBuffer& b) {
      t.data = copies_.at(&b) + (static_cast<std::byte*>(t.data) - b.begin());
      t.device = TC_CUDA, t.device_index = gpu_in_use();
      return t;
    });
  }
  const void* args() const { return moved_.args(); }
  tc_exec exec(tc_exec e, cudaStream_t stream) const {
    e.stream = stream;
    e.workspace = workspace_ + kGuard, e.workspace_bytes = workspace_bytes_;
    e.device_errors = errors_;
    return e;
  }
  void upload() {
    for (const auto& [buffer, copy] : copies_)
      require_ok(cudaMemcpy(copy, buffer->begin(), buffer->size(), cudaMemcpyHostToDevice), "upload");
    require_ok(cudaMemset(workspace_, kPoison, workspace_bytes_ + 2 * kGuard), "poison");
    require_ok(cudaMemset(errors_, 0, sizeof(uint32_t)), "errors");
  }
  void poison() {
    for (const auto& [buffer, copy] : copies_) require_ok(cudaMemset(copy, kPoison, buffer->size()), "poison");
    require_ok(cudaDeviceSynchronize(), "poison");
  }
  void download() {
    for (const auto& [buffer, copy] : copies_)
      require_ok(cudaMemcpy(const_cast<std::byte*>(buffer->begin()), copy, buffer->size(), cudaMemcpyDeviceToHost),
                 "download");
    uint32_t errors = 0;
    require_ok(cudaMemcpy(&errors, errors_, sizeof errors, cudaMemcpyDeviceToHost), "errors");
    if (errors) throw Error(TC_ERR_INVALID_ARG, "device error bits " + std::to_string(errors) + " were set");
    std::byte guards[2][kGuard];
    require_ok(cudaMemcpy(guards[0], workspace_, kGuard, cudaMemcpyDeviceToHost), "guard");
    require_ok(cudaMemcpy(guards[1], workspace_ + kGuard + workspace_bytes_, kGuard, cudaMemcpyDeviceToHost), "guard");
    for (const auto& guard : guards)
      for (const std::byte b : guard)
        if (b != std::byte{kPoison}) throw Error(TC_ERR_INTERNAL, "bytes around the workspace were written");
  }

 private:
  const Pass& pass_;
  Problem& problem_;
  Moved moved_;
  std::map<const GuardedBuffer*, std::byte*> copies_;
  std::byte* workspace_ = nullptr;
  size_t workspace_bytes_ = 0;
  uint32_t* errors_ = nullptr;
};

// Until *stop is set by the host, two seconds at most.
__global__ void spin(const volatile int* stop) {
  const long long begin = clock64();
  while (!*stop && clock64() - begin < 4'000'000'000ll) __nanosleep(1000);
}

class Spinner {
 public:
  Spinner() {
    void* flag = nullptr;
    require_ok(cudaHostAlloc(&flag, sizeof(int), cudaHostAllocMapped), "spinner");
    stop_ = static_cast<volatile int*>(flag);
    require_ok(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "spinner");
  }
  void start() {
    *stop_ = 0;
    tc_exec exec = tc_exec_default();
    exec.stream = stream_;
    cuda::launch<spin>("spin", {1, 1}, exec, static_cast<const volatile int*>(stop_));
  }
  // Whether it was still spinning.
  bool end() {
    const bool spinning = cudaStreamQuery(stream_) == cudaErrorNotReady;
    *stop_ = 1;
    require_ok(cudaStreamSynchronize(stream_), "spinner");
    return spinning;
  }

 private:
  volatile int* stop_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

void require_call(tc_status_t status) {
  if (status != TC_OK) throw Error(status, tc_last_error());
}

cudaGraphExec_t capture(const Pass& pass, const OnGpu& on, const tc_exec& exec, cudaStream_t stream) {
  require_ok(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
  const tc_exec captured = on.exec(exec, stream);
  const tc_status_t status = call(pass, on.args(), &captured);
  const std::string sentence = tc_last_error();
  cudaGraph_t graph = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(stream, &graph);
  if (status != TC_OK) throw Error(status, "under capture: " + sentence);
  require_ok(ended, "the end of the capture");
  cudaGraphExec_t executable = nullptr;
  require_ok(cudaGraphInstantiate(&executable, graph, 0), "the captured graph");
  cudaGraphDestroy(graph);
  return executable;
}

int chosen_gpu = 0;

// With the next GPU, if there is one, as the current device: a call must find its own.
tc_status_t call_from_elsewhere(const Pass& pass, const void* args, const tc_exec& exec) {
  const cuda::DeviceGuard elsewhere((gpu_in_use() + 1) % gpu_count());
  return call(pass, args, &exec);
}

}  // namespace

void use_gpu(int index) {
  cuda::device_info(index);  // NO_DEVICE where there is none
  chosen_gpu = index;
}
int gpu_in_use() { return chosen_gpu; }
int gpu_count() { return cuda::device_count(); }
const cuda::DeviceInfo& gpu_info(int index) { return cuda::device_info(index); }
std::string gpu_name(int index) { return cuda::device_info(index).name; }

tc_status_t run_on_gpu(const Pass& pass, Problem& problem, const tc_exec& exec) {
  return guard([&] {
    const cuda::DeviceGuard device(gpu_in_use());
    OnGpu on(pass, problem);
    on.upload();
    const tc_exec placed = on.exec(exec, nullptr);
    require_call(call_from_elsewhere(pass, on.args(), placed));
    require_ok(cudaDeviceSynchronize(), cuda::last_kernel_name());
    on.download();
  });
}

tc_status_t run_captured(const Pass& pass, Problem& problem, const tc_exec& exec, bool loads_kernels) {
  return guard([&] {
    const cuda::DeviceGuard device(gpu_in_use());
    static thread_local cudaStream_t side = [] {
      cudaStream_t s = nullptr;
      require_ok(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), "side stream");
      return s;
    }();
    static thread_local Spinner spinner;
    OnGpu on(pass, problem);
    on.poison();
    if (loads_kernels) {
      const tc_exec placed = on.exec(exec, side);
      require_call(call(pass, on.args(), &placed));
      require_ok(cudaStreamSynchronize(side), cuda::last_kernel_name());
    }
    spinner.start();
    cudaGraphExec_t graph = capture(pass, on, exec, side);
    require_ok(cudaGraphLaunch(graph, side), "a replay on poison");
    require_ok(cudaStreamSynchronize(side), cuda::last_kernel_name());
    const bool spinning = spinner.end();
    on.upload();
    require_ok(cudaDeviceSynchronize(), "upload");
    require_ok(cudaGraphLaunch(graph, side), "the replay");
    require_ok(cudaStreamSynchronize(side), cuda::last_kernel_name());
    cudaGraphExecDestroy(graph);
    if (!spinning) throw Error(TC_ERR_INTERNAL, "the call waited for the work of another stream");
    on.download();
  });
}

}  // namespace tc::testing
