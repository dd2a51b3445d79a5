#include "traincore/train/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "traincore/core/fail.h"

namespace tc::train {

void fail_errno(std::string_view action, const std::string& path) {
  fail(TC_ERR_INVALID_ARG, "cannot {} {}: {}", action, path, std::strerror(errno));
}

Descriptor::~Descriptor() {
  if (fd_ >= 0) close(fd_);
}

InputFile::InputFile(std::string path)
    : path_(std::move(path)), fd_(open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  struct stat status {};
  if (fd_.get() < 0 || fstat(fd_.get(), &status) != 0) fail_errno("open", path_);
  require(!S_ISDIR(status.st_mode), "{} is a directory; name a file", path_);
  require(S_ISREG(status.st_mode), "{} is not a regular file; copy its content to one", path_);
  size_ = status.st_size;
}

void InputFile::read(int64_t offset, void* to, int64_t bytes) const {
  constexpr int64_t kLargestRead = 1 << 30;  // Linux itself stops a little below 2 GiB
  for (char* at = static_cast<char*>(to); bytes > 0;) {
    const ssize_t got = pread(fd_.get(), at, static_cast<size_t>(std::min(bytes, kLargestRead)), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_errno("read", path_);
    require(got > 0, "{} ends at byte {}, but {} more bytes were expected", path_, offset, bytes);
    at += got, offset += got, bytes -= got;
  }
}

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const InputFile file(path);
  size_ = file.size();
  if (size_ == 0) return;
  void* memory = mmap(nullptr, static_cast<size_t>(size_), PROT_READ, MAP_PRIVATE, file.descriptor(), 0);
  if (memory == MAP_FAILED) fail_errno("map", path_);
  data_ = static_cast<const std::byte*>(memory);
}

MappedFile::~MappedFile() {
  if (data_) munmap(const_cast<std::byte*>(data_), static_cast<size_t>(size_));
}

std::string reason_of(const std::exception& json_exception) {
  const std::string_view text = json_exception.what();  // "[json.exception.kind.101] reason"
  const size_t number = text.starts_with('[') ? text.find("] ") : text.npos;
  return std::string(number == text.npos ? text : text.substr(number + 2));
}

std::string read_text(const std::string& path) {
  const InputFile file(path);
  std::string text(static_cast<size_t>(file.size()), '\0');
  file.read(0, text.data(), file.size());
  return text;
}

}  // namespace tc::train
