#include "traincore/kit/call.h"

#include <algorithm>

#include "traincore/kit/environment.h"
#include "traincore/kit/gpu.h"

namespace tc::kit {
namespace {

thread_local tc_backend_t last_backend = TC_BACKEND_NONE;

// The bytes from the first element to the last; INVALID_SHAPE beyond 2^62.
int64_t span_bytes(const char* call, const char* name, const tc_tensor& t) {
  constexpr int64_t kLargest = int64_t{1} << 62;
  const auto size = static_cast<int64_t>(tc_dtype_size(t.dtype));
  int64_t count = size, span = size;
  bool empty = false, overflow = false;
  for (int i = 0; i < t.rank; ++i) {
    int64_t step;
    empty |= t.shape[i] == 0;
    overflow |= __builtin_mul_overflow(count, t.shape[i], &count) || count > kLargest;
    overflow |= __builtin_mul_overflow(t.stride[i], size, &step) ||
                __builtin_mul_overflow(step, t.shape[i] - 1, &step) || __builtin_add_overflow(span, step, &span);
  }
  if (empty) return 0;
  if (overflow || span > kLargest) fail(TC_ERR_INVALID_SHAPE, "{}: the shape of {} passes 2^62 bytes", call, name);
  return span;
}

}  // namespace

Call::Call(const char* name, const tc_context* ctx, std::initializer_list<const tc_buffer*> handles, Where where)
    : work_(std::make_shared<Work>()) {
  work_->name = name;
  work_->context = context_of(name, ctx);
  bool on_gpu = where == Where::best && gpu::count() > 0;
  for (const tc_buffer* handle : handles) {
    auto buffer = buffers().find(handle);
    if (!buffer) continue;  // tensor() says so, with the argument's name
    on_gpu &= buffer->on_gpu();
    work_->held.push_back({handle, std::move(buffer)});
  }
  if (on_gpu && !environment_forces_cpu()) {
    work_->device_kind = TC_CUDA;
    work_->device_index = work_->context->device;
  }
}

void Call::require_positive(std::initializer_list<Extent> extents, tc_status_t code) const {
  for (const Extent& e : extents)
    if (e.value <= 0) fail(code, "{}: {} is {}, but must be > 0", work_->name, e.name, e.value);
}

const Buffer& Call::buffer(const char* name, const tc_buffer* handle) const {
  for (const Held& held : work_->held)
    if (held.handle == handle) return *held.buffer;
  buffer_of(work_->name, name, handle);  // says what is wrong with it
  fail(TC_ERR_INTERNAL, "{}: {} was not named when the call began", work_->name, name);
}

tc_tensor Call::tensor(const char* name, const tc_buffer* handle, int32_t dtype, std::initializer_list<int64_t> shape,
                       std::initializer_list<int64_t> strides) const {
  const Buffer& memory = buffer(name, handle);
  tc_tensor t = tc_tensor_dense(memory.data(), dtype, static_cast<int32_t>(shape.size()), shape.begin());
  std::copy(strides.begin(), strides.end(), t.stride);
  t.device = work_->device_kind;
  t.device_index = work_->device_index;
  const int64_t needed = span_bytes(work_->name, name, t);
  if (static_cast<uint64_t>(needed) > memory.bytes())
    fail(TC_ERR_INVALID_SHAPE, "{}: {} has {} bytes, but its shape in {} needs {}", work_->name, name, memory.bytes(),
         tc_dtype_name(dtype), needed);
  return t;
}

tc_tensor Call::copied(const float* values, int64_t count) {
  const size_t bytes = static_cast<size_t>(count) * sizeof(float);
  auto memory = Buffer::allocate(*work_->context, bytes);
  std::copy_n(values, count, static_cast<float*>(memory->data()));
  tc_tensor t = tc_tensor_dense(memory->data(), TC_DTYPE_F32, 1, &count);
  t.device = work_->device_kind;
  t.device_index = work_->device_index;
  work_->copies.push_back(std::move(memory));
  return t;
}

void Call::Work::throw_unless_ok(tc_status_t status) const {
  if (status != TC_OK) fail(status, "{}: {}", name, tc_last_error());
}

void Call::Work::run() const {
  const bool on_gpu = device_kind == TC_CUDA;
  size_t scratch = 0;  // for all ops, so that what cannot be had is refused before any of them has written
  for (const Op& op : ops) scratch = std::max(scratch, op.workspace_bytes);
  const tc_exec exec = on_gpu ? gpu::exec(device_index, scratch) : tc_exec_default();
  for (const Op& op : ops) throw_unless_ok(op.run(exec));
  if (on_gpu) gpu::wait(device_index);
}

void Call::run(const tc_stream* stream) {
  if (stream)
    stream_of(work_->name, "stream", stream)->post([work = work_] { work->run(); });
  else
    work_->run();
  last_backend = work_->device_kind == TC_CUDA ? TC_BACKEND_CUDA : TC_BACKEND_PORTABLE_CPU;
}

}  // namespace tc::kit

tc_backend_t tc_last_backend(void) { return tc::kit::last_backend; }

const char* tc_backend_name(tc_backend_t backend) {
  switch (backend) {
    case TC_BACKEND_NONE:
      return "none";
    case TC_BACKEND_PORTABLE_CPU:
      return "portable_cpu";
    case TC_BACKEND_CUDA:
      return "cuda";
  }
  return "?";
}
