// The C face of GGUF files.
#include "traincore/gguf.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "traincore/kit/context.h"
#include "traincore/kit/gguf_file.h"

namespace tc::kit {
namespace {

static_assert(sizeof(tc_gguf_llama_config) == 88 && offsetof(tc_gguf_llama_config, context_length) == 0 &&
              offsetof(tc_gguf_llama_config, embedding_length) == 8 &&
              offsetof(tc_gguf_llama_config, feed_forward_length) == 16 &&
              offsetof(tc_gguf_llama_config, block_count) == 24 &&
              offsetof(tc_gguf_llama_config, attention_head_count) == 32 &&
              offsetof(tc_gguf_llama_config, attention_head_count_kv) == 40 &&
              offsetof(tc_gguf_llama_config, rope_dimension_count) == 48 &&
              offsetof(tc_gguf_llama_config, vocab_size) == 56 &&
              offsetof(tc_gguf_llama_config, rms_norm_epsilon) == 64 &&
              offsetof(tc_gguf_llama_config, rope_freq_base) == 72 &&
              offsetof(tc_gguf_llama_config, rope_freq_scale) == 80);

[[noreturn]] void refuse_file(const char* path) {
  fail(TC_ERR_INTERNAL, "tc_gguf_open: cannot read {}: {}", path, std::strerror(errno));
}

class Mapping {
 public:
  explicit Mapping(const char* path) {
    const int file = ::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) refuse_file(path);
    struct stat status {};
    const bool known = fstat(file, &status) == 0;
    size_ = known ? static_cast<size_t>(status.st_size) : 0;
    data_ = size_ ? mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file, 0) : nullptr;
    const int error = errno;
    ::close(file);
    errno = error;
    if (!known || data_ == MAP_FAILED) refuse_file(path);
  }
  ~Mapping() {
    if (data_) munmap(data_, size_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_}; }

 private:
  void* data_;
  size_t size_;
};

struct OpenFile {
  explicit OpenFile(const char* path) : mapping(path), file(mapping.bytes()) {}
  Mapping mapping;
  GgufFile file;
};

Registry<tc_gguf_file, OpenFile, Kind::gguf>& files() {
  static auto* const instance = new Registry<tc_gguf_file, OpenFile, Kind::gguf>;
  return *instance;
}

std::shared_ptr<OpenFile> file_of(const char* call, const tc_gguf_file* handle) {
  auto file = files().find(handle);
  require(file != nullptr, "{}: file is not an open file: it is NULL, was closed, or never was one", call);
  return file;
}

tc_gguf_tensor_info info_of(const GgufTensor& t) {
  return {t.name.c_str(), t.n_dims, {t.dims[0], t.dims[1], t.dims[2], t.dims[3]}, t.type, t.offset, t.bytes, t.data};
}

const GgufTensor& tensor_of(const char* call, const OpenFile& open, const char* name) {
  require(name != nullptr, "{}: name is NULL", call);
  const GgufTensor* const tensor = open.file.tensor(name);
  require(tensor != nullptr, "{}: the file has no tensor {}", call, name);
  return *tensor;
}

// read(value) of a key; `otherwise` where there is none, or the file or key is no such thing.
template <class T, class F>
T metadata(const char* call, const tc_gguf_file* handle, const char* key, T otherwise, F&& read) {
  T result = otherwise;
  guard([&] {
    const auto open = file_of(call, handle);
    require(key != nullptr, "{}: key is NULL", call);
    if (const GgufValue* value = open->file.value(key)) result = read(*value);
  });
  return result;
}

}  // namespace
}  // namespace tc::kit

using namespace tc::kit;  // NOLINT(google-build-using-namespace): the C face of this namespace
using tc::fail;
using tc::guard;
using tc::require;

tc_status_t tc_gguf_open(const char* path, tc_gguf_file** file) {
  return guard([&] {
    require(path != nullptr, "tc_gguf_open: path is NULL");
    require(file != nullptr, "tc_gguf_open: file is NULL, but must point to where the file goes");
    *file = files().add(std::make_shared<OpenFile>(path));
  });
}

tc_status_t tc_gguf_close(tc_gguf_file* file) {
  return guard([&] {
    if (!files().take(file)) file_of("tc_gguf_close", file);  // refuses it
  });
}

uint64_t tc_gguf_tensor_count(const tc_gguf_file* file) {
  uint64_t count = 0;
  guard([&] { count = file_of("tc_gguf_tensor_count", file)->file.tensors().size(); });
  return count;
}

tc_status_t tc_gguf_tensor_at(const tc_gguf_file* file, uint64_t index, tc_gguf_tensor_info* info) {
  return guard([&] {
    const auto open = file_of("tc_gguf_tensor_at", file);
    require(info != nullptr, "tc_gguf_tensor_at: info is NULL");
    const auto& tensors = open->file.tensors();
    require(index < tensors.size(), "tc_gguf_tensor_at: index is {}, but the file has {} tensors", index,
            tensors.size());
    *info = info_of(tensors[index]);
  });
}

tc_status_t tc_gguf_get_tensor(const tc_gguf_file* file, const char* name, tc_gguf_tensor_info* info) {
  return guard([&] {
    const auto open = file_of("tc_gguf_get_tensor", file);
    require(info != nullptr, "tc_gguf_get_tensor: info is NULL");
    *info = info_of(tensor_of("tc_gguf_get_tensor", *open, name));
  });
}

tc_status_t tc_gguf_tensor_to_buffer(tc_context* ctx, const tc_gguf_file* file, const char* name, tc_buffer** buffer) {
  return guard([&] {
    const char* const call = "tc_gguf_tensor_to_buffer";
    const auto context = context_of(call, ctx);
    const auto open = file_of(call, file);
    require(buffer != nullptr, "{}: buffer is NULL, but must point to where the buffer goes", call);
    const GgufTensor& tensor = tensor_of(call, *open, name);
    if (tensor.type == TC_GGUF_TYPE_UNSUPPORTED)
      fail(TC_ERR_UNSUPPORTED_DTYPE, "{}: tensor {} is not F32, F16 or BF16", call, name);
    if (tensor.bytes == 0) fail(TC_ERR_INVALID_SHAPE, "{}: tensor {} has no elements", call, name);
    auto memory = Buffer::allocate(*context, tensor.bytes);
    std::memcpy(memory->data(), tensor.data, tensor.bytes);
    *buffer = buffers().add(std::move(memory));
  });
}

const char* tc_gguf_meta_get_str(const tc_gguf_file* file, const char* key) {
  return metadata<const char*>("tc_gguf_meta_get_str", file, key, nullptr, [](const GgufValue& value) {
    const auto* const text = std::get_if<std::string>(&value);
    return text ? text->c_str() : nullptr;
  });
}

int64_t tc_gguf_meta_get_i64(const tc_gguf_file* file, const char* key, int64_t default_value) {
  return metadata<int64_t>("tc_gguf_meta_get_i64", file, key, default_value, [&](const GgufValue& value) {
    if (const auto* u = std::get_if<uint64_t>(&value); u && *u <= INT64_MAX) return static_cast<int64_t>(*u);
    if (const auto* i = std::get_if<int64_t>(&value)) return *i;
    if (const auto* b = std::get_if<bool>(&value)) return int64_t{*b};
    return default_value;
  });
}

double tc_gguf_meta_get_f64(const tc_gguf_file* file, const char* key, double default_value) {
  return metadata<double>("tc_gguf_meta_get_f64", file, key, default_value, [&](const GgufValue& value) {
    if (const auto* d = std::get_if<double>(&value)) return *d;
    if (const auto* u = std::get_if<uint64_t>(&value)) return static_cast<double>(*u);
    if (const auto* i = std::get_if<int64_t>(&value)) return static_cast<double>(*i);
    return default_value;
  });
}

tc_status_t tc_gguf_get_llama_config(const tc_gguf_file* file, tc_gguf_llama_config* config) {
  return guard([&] {
    const auto open = file_of("tc_gguf_get_llama_config", file);
    require(config != nullptr, "tc_gguf_get_llama_config: config is NULL");
    *config = llama_config(open->file);
  });
}
