// Problems run on a GPU: all of their memory is copied there, guards included, and back. NO_DEVICE in a build without CUDA.
#pragma once
#include "traincore/cuda/device.h"
#include "traincore/testing/problem.h"

namespace tc::testing {

TC_TOOL_API int gpu_count();  // 0 in a build without CUDA
TC_TOOL_API std::string gpu_name(int index);
TC_TOOL_API const cuda::DeviceInfo& gpu_info(int index);
// The GPU that check and bench run on, 0 unless chosen.
TC_TOOL_API void use_gpu(int index);
int gpu_in_use();

// The call on the caller's legacy stream, made while another GPU is the current device if there is one, with a poisoned and guarded workspace of exactly the size asked for, and a
// set of device errors that must stay 0.
tc_status_t run_on_gpu(const Pass& pass, Problem& problem, const tc_exec& exec);
// The call captured into a graph while the inputs are poison, on a side stream of its own with a kernel spinning on
// another stream all the while; the graph is then replayed with the problem's inputs. A call that allocates,
// synchronises, waits for another stream or looks at its inputs from the host fails. loads_kernels: whether a
// library's kernels may have to be loaded for it, which a call ahead of the spinning kernel then does.
tc_status_t run_captured(const Pass& pass, Problem& problem, const tc_exec& exec, bool loads_kernels);

}  // namespace tc::testing
