// A problem's tensors on the current GPU and nowhere else, filled there: for sizes that no host loop should touch.
#pragma once
#include <memory>

#include "traincore/testing/problem.h"

namespace tc::testing {

struct DeviceFree {
  void operator()(std::byte* p) const;
};
using DeviceMemory = std::unique_ptr<std::byte, DeviceFree>;
DeviceMemory device_memory(size_t bytes);

class GpuSet {
 public:
  explicit GpuSet(const Problem& problem);  // poisoned; KERNEL_NOT_FOUND where the call is refused
  std::byte* memory(const GuardedBuffer& b) const { return copies_.at(&b).get(); }
  void call(const Pass& pass, void* stream) const;
  void copy_to(const GpuSet& other) const;  // a set of the same problem

 private:
  std::map<const GuardedBuffer*, DeviceMemory> copies_;
  std::map<const GuardedBuffer*, size_t> sizes_;
  Moved moved_;
  DeviceMemory workspace_;
  size_t workspace_bytes_ = 0;
};

// A tensor of a set: its memory on the device from its first element on, in bytes.
using VisitMemory = std::function<void(const Field&, const std::string& key, const tc_tensor&, std::byte*, size_t)>;
void for_each_memory(const Problem& problem, const GpuSet& set, const VisitMemory& visit);
// Random inputs; a float tensor repeats its values beyond a million elements.
void fill_inputs(const Case& c, const Problem& problem, const GpuSet& set);
// What a backward reads that its forward wrote comes from the forward kernel.
void take_saved(const OpCases& op, const PassCases& forward, const Case& c, int32_t dtype, const Problem& backward,
                const GpuSet& to);

}  // namespace tc::testing
