// What lives while the process has a context: buffers, streams, the device in use.
#pragma once
#include <atomic>

#include "traincore/device.h"
#include "traincore/kit/registry.h"
#include "traincore/kit/stream.h"

namespace tc::kit {

struct Context {
  std::atomic<int> device = 0;  // the GPU that calls run on, where there is one
};

// A buffer's memory: host memory that a CPU call may use, or managed memory that both may.
class Buffer {
 public:
  static std::shared_ptr<Buffer> allocate(const Context& context, size_t bytes);
  static std::shared_ptr<Buffer> wrap(void* data, size_t bytes);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  bool on_gpu() const { return owner_ == Owner::gpu; }

 private:
  enum class Owner : uint8_t { caller, host, gpu };
  Buffer(void* data, size_t bytes, Owner owner) : data_(data), bytes_(bytes), owner_(owner) {}
  void* data_;
  size_t bytes_;
  Owner owner_;
};

// The live context. NOT_INITIALIZED: handle is NULL; INVALID_ARG: it is not live. `call` begins the sentence.
std::shared_ptr<Context> context_of(std::string_view call, const tc_context* handle);

Registry<tc_buffer, Buffer, Kind::buffer>& buffers();
Registry<tc_stream, Stream, Kind::stream>& streams();

// INVALID_ARG for a handle that is not live; `name` is the argument's.
std::shared_ptr<Stream> stream_of(std::string_view call, const char* name, const tc_stream* handle);
std::shared_ptr<Buffer> buffer_of(std::string_view call, const char* name, const tc_buffer* handle);

uint64_t host_memory_bytes();

}  // namespace tc::kit
