#include "traincore/kit/context.h"

#include <unistd.h>

#include <cstdlib>
#include <new>

#include "traincore/kit/environment.h"
#include "traincore/kit/gpu.h"

namespace tc::kit {
namespace {

// Never destroyed, so that a call made while the program exits is still refused rather than undefined.
struct Process {
  std::mutex mutex;  // of references and handle
  int64_t references = 0;
  tc_context* handle = nullptr;
  Registry<tc_context, Context, Kind::context> contexts;
  Registry<tc_buffer, Buffer, Kind::buffer> buffers;
  Registry<tc_stream, Stream, Kind::stream> streams;
};

Process& process() {
  static Process* const instance = [] {
    auto* const made = new Process;
    std::atexit([] { process().streams.take_all(); });  // no call may outlive the libraries it uses
    return made;
  }();
  return *instance;
}

constexpr std::align_val_t kAlignment{64};

}  // namespace

std::shared_ptr<Context> context_of(std::string_view call, const tc_context* handle) {
  if (!handle) fail(TC_ERR_NOT_INITIALIZED, "{}: ctx is NULL; call tc_init first", call);
  auto context = process().contexts.find(handle);
  require(context != nullptr, "{}: ctx is not a live context: it was shut down, or tc_init never made it", call);
  return context;
}

Registry<tc_buffer, Buffer, Kind::buffer>& buffers() { return process().buffers; }
Registry<tc_stream, Stream, Kind::stream>& streams() { return process().streams; }

std::shared_ptr<Buffer> buffer_of(std::string_view call, const char* name, const tc_buffer* handle) {
  require(handle != nullptr, "{}: {} is NULL, but must be a buffer", call, name);
  auto buffer = buffers().find(handle);
  require(buffer != nullptr,
          "{}: {} is not a live buffer: it was freed, its context was shut down, or it never was one", call, name);
  return buffer;
}

std::shared_ptr<Stream> stream_of(std::string_view call, const char* name, const tc_stream* handle) {
  require(handle != nullptr, "{}: {} is NULL, but must be a stream", call, name);
  auto stream = streams().find(handle);
  require(stream != nullptr,
          "{}: {} is not a live stream: it was destroyed, its context was shut down, or it never was one", call, name);
  return stream;
}

uint64_t host_memory_bytes() {
  return static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE));
}

std::shared_ptr<Buffer> Buffer::allocate(const Context& context, size_t bytes) {
  if (gpu::count() > 0)
    return std::shared_ptr<Buffer>(new Buffer(gpu::allocate(context.device, bytes), bytes, Owner::gpu));
  if (bytes > host_memory_bytes())
    fail(TC_ERR_ALLOC, "tc_buffer_alloc: {} bytes are more than this machine's {}", bytes, host_memory_bytes());
  return std::shared_ptr<Buffer>(new Buffer(::operator new(bytes, kAlignment), bytes, Owner::host));
}

std::shared_ptr<Buffer> Buffer::wrap(void* data, size_t bytes) {
  return std::shared_ptr<Buffer>(new Buffer(data, bytes, Owner::caller));
}

Buffer::~Buffer() {
  if (owner_ == Owner::host) ::operator delete(data_, kAlignment);
  if (owner_ == Owner::gpu) gpu::release(data_);
}

}  // namespace tc::kit

using namespace tc::kit;  // NOLINT(google-build-using-namespace): the C face of this namespace
using tc::fail;
using tc::guard;
using tc::require;

tc_status_t tc_init(tc_context** ctx) {
  return guard([&] {
    require(ctx != nullptr, "tc_init: ctx is NULL, but must point to where the context goes");
    Process& p = process();
    const std::lock_guard lock(p.mutex);
    const bool first = p.references == 0;
    if (first) p.handle = p.contexts.add(std::make_shared<Context>());
    ++p.references;
    *ctx = p.handle;
    if (!first)
      fail(TC_ERR_ALREADY_INITIALIZED,
           "tc_init: the process has a context already; *ctx is set to it, and one more tc_shutdown is due");
  });
}

tc_status_t tc_shutdown(tc_context* ctx) {
  return guard([&] {
    Process& p = process();
    const std::lock_guard lock(p.mutex);
    context_of("tc_shutdown", ctx);
    if (--p.references > 0) return;
    p.contexts.take(ctx);
    p.streams.take_all();
    p.buffers.take_all();
  });
}

tc_status_t tc_buffer_alloc(tc_context* ctx, size_t bytes, tc_buffer** buffer) {
  return guard([&] {
    const auto context = context_of("tc_buffer_alloc", ctx);
    require(buffer != nullptr, "tc_buffer_alloc: buffer is NULL, but must point to where the buffer goes");
    require(bytes > 0, "tc_buffer_alloc: bytes is 0, but a buffer has at least 1");
    *buffer = buffers().add(Buffer::allocate(*context, bytes));
  });
}

tc_status_t tc_buffer_from_ptr(tc_context* ctx, void* data, size_t bytes, tc_buffer** buffer) {
  return guard([&] {
    context_of("tc_buffer_from_ptr", ctx);
    require(data != nullptr, "tc_buffer_from_ptr: data is NULL");
    require(buffer != nullptr, "tc_buffer_from_ptr: buffer is NULL, but must point to where the buffer goes");
    require(bytes > 0, "tc_buffer_from_ptr: bytes is 0, but a buffer has at least 1");
    require(bytes <= UINTPTR_MAX - reinterpret_cast<uintptr_t>(data),
            "tc_buffer_from_ptr: {} bytes from data on pass the end of the address space", bytes);
    *buffer = buffers().add(Buffer::wrap(data, bytes));
  });
}

tc_status_t tc_buffer_free(tc_context* ctx, tc_buffer* buffer) {
  return guard([&] {
    context_of("tc_buffer_free", ctx);
    if (!buffers().take(buffer)) buffer_of("tc_buffer_free", "buffer", buffer);  // refuses it
  });
}

tc_status_t tc_buffer_map(tc_buffer* buffer, void** data) {
  return guard([&] {
    require(data != nullptr, "tc_buffer_map: data is NULL, but must point to where the address goes");
    *data = buffer_of("tc_buffer_map", "buffer", buffer)->data();
  });
}

size_t tc_buffer_size(const tc_buffer* buffer) {
  size_t bytes = 0;
  guard([&] { bytes = buffer_of("tc_buffer_size", "buffer", buffer)->bytes(); });
  return bytes;
}

tc_status_t tc_stream_create(tc_context* ctx, tc_stream** stream) {
  return guard([&] {
    context_of("tc_stream_create", ctx);
    require(stream != nullptr, "tc_stream_create: stream is NULL, but must point to where the stream goes");
    *stream = streams().add(std::make_shared<Stream>());
  });
}

tc_status_t tc_stream_destroy(tc_context* ctx, tc_stream* stream) {
  return guard([&] {
    context_of("tc_stream_destroy", ctx);
    if (!streams().take(stream)) stream_of("tc_stream_destroy", "stream", stream);  // refuses it
  });
}

tc_status_t tc_stream_sync(tc_stream* stream) {
  return guard([&] { stream_of("tc_stream_sync", "stream", stream)->sync(); });
}
