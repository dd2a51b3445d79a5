// Reading files: one clear sentence per fault, 64-bit positions, no text mode, no hidden copies.
#pragma once
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <utility>

namespace tc::train {

// Throws "cannot <action> <path>: <what errno says>".
[[noreturn]] void fail_errno(std::string_view action, const std::string& path);

// A file descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor();
  int get() const { return fd_; }

 private:
  int fd_;
};

// A regular file open for reading. Errors: missing, a directory, a device, no permission.
class InputFile {
 public:
  explicit InputFile(std::string path);
  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }
  int descriptor() const { return fd_.get(); }
  // Exactly `bytes` bytes from `offset`. Errors: the file ends before, the disk fails.
  void read(int64_t offset, void* to, int64_t bytes) const;

 private:
  std::string path_;
  Descriptor fd_;
  int64_t size_ = 0;
};

// A whole file in memory, read-only, paged in on use.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  MappedFile(MappedFile&& other) noexcept
      : path_(std::move(other.path_)),
        data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)) {}
  MappedFile& operator=(MappedFile&&) = delete;
  ~MappedFile();
  const std::string& path() const { return path_; }
  const std::byte* data() const { return data_; }
  int64_t size() const { return size_; }

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  int64_t size_ = 0;
};

// What a JSON library says of a text, without the number of its exception.
std::string reason_of(const std::exception& json_exception);

// A small file's content. Errors: as InputFile.
std::string read_text(const std::string& path);

}  // namespace tc::train
