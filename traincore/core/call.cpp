// The way into every kernel: arguments of any header version, the schema, exec, the backend.
#include <cstring>
#include <memory>

#include "traincore/core/gpus.h"
#include "traincore/core/op.h"

namespace tc {
namespace {

// A struct that starts with its size, from a caller built against an older or newer header: missing tail fields take
// their default, and unknown ones must be zero.
class Sized {
 public:
  Sized(std::string_view what, const void* given, const void* defaults, size_t known) : view_(given) {
    uint32_t size;
    std::memcpy(&size, given, sizeof size);
    if (size == known) return;
    require(size >= sizeof size, "{}: size is {}, but must be set to sizeof the struct; start from its _default()",
            what, size);
    const auto* bytes = static_cast<const std::byte*>(given);
    for (size_t i = known; i < size; ++i)
      require(bytes[i] == std::byte{0},
              "{}: byte {} is set, but this library knows only {} bytes; it is older than the caller's header", what, i,
              known);
    copy_ = std::make_unique<std::byte[]>(known);
    std::memcpy(copy_.get(), defaults, known);
    std::memcpy(copy_.get(), given, std::min<size_t>(size, known));
    view_ = copy_.get();
    cut_ = size;
  }
  const void* get() const { return view_; }
  // A caller's struct ends between fields, never inside one.
  bool cuts(size_t offset, size_t size) const { return cut_ > offset && cut_ < offset + size; }

 private:
  const void* view_;
  std::unique_ptr<std::byte[]> copy_;
  size_t cut_ = 0;
};

const void* defaults_of(const Pass& pass) {
  thread_local std::unique_ptr<std::byte[]> buffer;
  thread_local size_t capacity = 0;
  if (capacity < pass.args_size) buffer = std::make_unique<std::byte[]>(capacity = pass.args_size);
  set_defaults(pass, buffer.get());
  return buffer.get();
}

Sized sized_args(const Pass& pass, const void* args) {
  require(args != nullptr, "{}: args is NULL", pass.name);
  uint32_t size;
  std::memcpy(&size, args, sizeof size);
  Sized sized(pass.name, args, size == pass.args_size ? nullptr : defaults_of(pass), pass.args_size);
  for (const Field& f : pass.fields)
    require(!sized.cuts(f.offset, field_size(f)), "{}: size is {}, which ends inside {}; set it to sizeof the struct",
            pass.name, size, f.name);
  return sized;
}

const tc_exec kDefaultExec = tc_exec_default();

Sized sized_exec(const Pass& pass, const tc_exec* exec) {
  const tc_exec* given = exec ? exec : &kDefaultExec;
  return {pass.name, given, &kDefaultExec, sizeof(tc_exec)};
}

std::string served(uint32_t offers, uint32_t first_bit, int count, const char* const* names) {
  std::string text;
  for (int i = 0; i < count; ++i)
    if (offers >> i & first_bit) text.append(text.empty() ? "" : " or ").append(names[i]);
  return text;
}

void check_exec(const Pass& pass, const tc_exec& exec) {
  static const char* const determinism[] = {"TC_RUN_TO_RUN", "TC_BATCH_INVARIANT", "TC_UNORDERED"};
  static const char* const precision[] = {"TC_STANDARD", "TC_STRICT", "TC_FAST"};
  require(exec.determinism >= 0 && exec.determinism <= 2, "{}: exec.determinism is {}, but must be 0, 1 or 2",
          pass.name, exec.determinism);
  require(exec.precision >= 0 && exec.precision <= 2, "{}: exec.precision is {}, but must be 0, 1 or 2", pass.name,
          exec.precision);
  require(exec.threads >= 0, "{}: exec.threads is {}, but must be 0 (all cores) or more", pass.name, exec.threads);
  if (!(pass.offers >> exec.determinism & kRunToRun))
    fail(TC_ERR_KERNEL_NOT_FOUND, "{}: no variant offers {}; it serves {}", pass.name, determinism[exec.determinism],
         served(pass.offers, kRunToRun, 3, determinism));
  if (!(pass.offers >> exec.precision & kStandard))
    fail(TC_ERR_KERNEL_NOT_FOUND, "{}: no variant offers {}; it serves {}", pass.name, precision[exec.precision],
         served(pass.offers, kStandard, 3, precision));
}

size_t workspace_of(const Pass& pass, const void* args, const tc_exec& exec, int32_t device) {
  const auto size = device == TC_CUDA ? pass.cuda_workspace : pass.workspace;
  return size ? size(args, exec) : 0;
}

// On the CPU a call without a workspace takes this thread's; on a GPU nothing is ever allocated.
void check_workspace(const Pass& pass, const void* args, const tc_exec& exec, int32_t device) {
  if (!exec.workspace && device == TC_CPU) return;
  const size_t needed = workspace_of(pass, args, exec, device);
  if (needed == 0) return;
  require(exec.workspace != nullptr,
          "{}: exec.workspace is NULL, but this call needs {} bytes of device memory; ask tcx_{}_workspace", pass.name,
          needed, pass.name);
  require(reinterpret_cast<uintptr_t>(exec.workspace) % Arena::kAlignment == 0,
          "{}: exec.workspace is not aligned to {} bytes", pass.name, size_t{Arena::kAlignment});
  require(exec.workspace_bytes >= needed,
          "{}: exec.workspace has {} bytes, but this call needs {}; ask tcx_{}_workspace", pass.name,
          exec.workspace_bytes, needed, pass.name);
}

struct Device {
  int32_t type, index;
};
Device device_of(const Pass& pass, const void* args) {
  const auto of = [](const tc_tensor& t) { return Device{t.device, t.device_index}; };
  for (const Field& f : pass.fields) {
    if (!f.is_tensor()) continue;
    if (!f.is_list() && given(tensor_at(args, f))) return of(tensor_at(args, f));
    if (f.is_list() && list_at(args, f).count > 0) return of(list_at(args, f).data[0]);
  }
  return {TC_CPU, 0};
}

[[noreturn]] void no_kernel(const Pass& pass, int32_t device) {
  fail(TC_ERR_KERNEL_NOT_FOUND, "{}: the tensors are on {}, but there is only a kernel for {}", pass.name,
       device == TC_CPU ? "the CPU" : "a GPU", device == TC_CPU ? "a GPU" : "the CPU");
}

// Everything that happens before a kernel may run.
template <class F>
void prepare(const Pass& pass, const void* raw_args, const tc_exec* raw_exec, F&& then) {
  const Sized args = sized_args(pass, raw_args), exec = sized_exec(pass, raw_exec);
  const auto& e = *static_cast<const tc_exec*>(exec.get());
  check_exec(pass, e);
  const Dims dims = validate(pass, args.get());
  if (pass.check) pass.check(args.get(), e, dims);
  then(args.get(), e);
}

// What fails below, in a device's code or the machine's, is told with the pass's name as well.
template <class F>
void named(const Pass& pass, F&& f) {
  try {
    f();
  } catch (const Error& e) {
    if (std::string_view(e.what()).starts_with(pass.name)) throw;
    fail(e.code, "{}: {}", pass.name, e.what());
  }
}

}  // namespace

tc_status_t call(const Pass& pass, const void* args, const tc_exec* exec) noexcept {
  return guard([&] {
    prepare(pass, args, exec, [&](const void* a, const tc_exec& e) {
      const Device device = device_of(pass, a);
      const auto run = device.type == TC_CPU ? pass.cpu : pass.cuda;
      named(pass, [&] {
        if (device.type == TC_CUDA) require_gpu(device.index);  // before what a call on it lacks
        if (!run) no_kernel(pass, device.type);
        check_workspace(pass, a, e, device.type);
        run(a, e);
      });
    });
  });
}

tc_status_t call_workspace(const Pass& pass, const void* args, const tc_exec* exec, size_t* bytes) noexcept {
  return guard([&] {
    require(bytes != nullptr, "{}_workspace: bytes is NULL", pass.name);
    prepare(pass, args, exec, [&](const void* a, const tc_exec& e) {
      const Device device = device_of(pass, a);
      named(pass, [&] {
        if (device.type == TC_CUDA && !pass.cuda) require_gpu(device.index), no_kernel(pass, device.type);
        *bytes = workspace_of(pass, a, e, device.type);
      });
    });
  });
}

tc_status_t call_check(const Pass& pass, const void* args, const tc_exec* exec) noexcept {
  return guard([&] { prepare(pass, args, exec, [](const void*, const tc_exec&) {}); });
}

}  // namespace tc
