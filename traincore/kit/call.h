// One call of the kit: its buffers looked up, its ops checked, and only then run, now or on a stream.
#pragma once
#include <functional>
#include <initializer_list>
#include <vector>

#include "traincore/kit/context.h"

namespace tc::kit {

struct Extent {
  const char* name;
  int64_t value;
};

// Thrown by Call::add: the GPU was to serve the call, but has no kernel for one of its ops.
struct NoGpuKernel {};

class Call {
 public:
  enum class Where : uint8_t { best, cpu };
  // `buffers` are all that the call may name; NULL ones are left out. A GPU is best if it can reach them all.
  Call(const char* name, const tc_context* ctx, std::initializer_list<const tc_buffer*> buffers, Where where);

  const char* name() const { return work_->name; }

  // Each extent must be > 0.
  void require_positive(std::initializer_list<Extent> extents, tc_status_t code = TC_ERR_INVALID_ARG) const;

  // A tensor in a buffer, which must be live and large enough; dense without strides, else strides >= 0.
  tc_tensor tensor(const char* name, const tc_buffer* handle, int32_t dtype, std::initializer_list<int64_t> shape,
                   std::initializer_list<int64_t> strides = {}) const;
  // `count` floats of the caller's, copied: they need not outlive the call.
  tc_tensor copied(const float* values, int64_t count);

  // Checks an op's arguments now, and runs it in run(). What args point to must last until then: copied() does.
  template <class A>
  void add(tc_status_t (*op)(const A*, const tc_exec*), tc_status_t (*workspace)(const A*, const tc_exec*, size_t*),
           const A& args) {
    size_t bytes = 0;
    const tc_status_t status = workspace(&args, nullptr, &bytes);
    if (status == TC_ERR_KERNEL_NOT_FOUND && work_->device_kind == TC_CUDA) throw NoGpuKernel();
    work_->throw_unless_ok(status);
    work_->ops.push_back({bytes, [op, args](const tc_exec& exec) { return op(&args, &exec); }});
  }

  // Runs what was added: now, or in its turn on a stream if there is one. Either way it has been checked.
  void run(const tc_stream* stream);

 private:
  struct Op {
    size_t workspace_bytes;
    std::function<tc_status_t(const tc_exec&)> run;
  };
  struct Held {
    const tc_buffer* handle;
    std::shared_ptr<Buffer> buffer;
  };
  // What a stream keeps until the call has run.
  struct Work {
    const char* name;  // of the call
    std::shared_ptr<Context> context;
    std::vector<Held> held;
    std::vector<std::shared_ptr<Buffer>> copies;
    std::vector<Op> ops;
    int32_t device_kind = TC_CPU, device_index = 0;
    void run() const;
    void throw_unless_ok(tc_status_t status) const;  // an op's refusal, as this call's
  };

  const Buffer& buffer(const char* name, const tc_buffer* handle) const;

  std::shared_ptr<Work> work_;
};

// The body of a C function: describe(call) adds ops, which then run; on the CPU where the GPU has no kernel for them.
template <class F>
tc_status_t call(const char* name, const tc_context* ctx, std::initializer_list<const tc_buffer*> buffers, F&& describe,
                 const tc_stream* stream = nullptr) {
  const auto run = [&](Call::Where where) {
    Call call(name, ctx, buffers, where);
    describe(call);
    call.run(stream);
  };
  return guard([&] {
    try {
      run(Call::Where::best);
    } catch (const NoGpuKernel&) {
      run(Call::Where::cpu);
    }
  });
}

}  // namespace tc::kit
