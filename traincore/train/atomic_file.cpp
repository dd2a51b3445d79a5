#include "traincore/train/atomic_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "traincore/core/fail.h"

namespace tc::train {
namespace {

namespace fs = std::filesystem;

std::string temporary_of(const std::string& path) { return path + std::string(kTemporary); }

void sync_folder(const std::string& path) {
  const Descriptor folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() < 0 || fsync(folder.get()) != 0) fail_errno("flush the folder", path);
}

std::string folder_of(const std::string& path) {
  const fs::path parent = fs::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}

void rename_over(const std::string& from, const std::string& to) {
  if (rename(from.c_str(), to.c_str()) != 0) fail_errno("rename " + from + " to", to);
  sync_folder(folder_of(to));
}

void remove_tree(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) {
    errno = error.value();
    fail_errno("remove", path);
  }
}

}  // namespace

void create_folders(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) {
    errno = error.value();
    fail_errno("create the folder", path);
  }
}

Descriptor lock_folder(const std::string& path) {
  Descriptor folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() < 0) fail_errno("open the folder", path);
  require(flock(folder.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK, "{} is in use by another run", path);
  return folder;  // also where the file system has no locks
}

OutputFile::OutputFile(std::string path)
    : path_(std::move(path)), fd_(open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
  if (fd_.get() < 0) fail_errno("create", path_);
}

void OutputFile::write(const void* data, int64_t bytes) {
  constexpr int64_t kBlock = 1 << 20;  // hashed while it is still in the cache
  for (const char* at = static_cast<const char*>(data); bytes > 0;) {
    const ssize_t put = ::write(fd_.get(), at, static_cast<size_t>(std::min(bytes, kBlock)));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail_errno("write", path_);
    hash_.update(at, static_cast<size_t>(put));
    at += put, size_ += put, bytes -= put;
  }
}

std::string OutputFile::finish() {
  if (fsync(fd_.get()) != 0) fail_errno("flush", path_);
  fd_ = Descriptor();
  return hash_.finish();
}

void write_file_atomically(const std::string& path, std::string_view content) {
  const std::string temporary = temporary_of(path);
  try {
    OutputFile file(temporary);
    file.write(content);
    file.finish();
    rename_over(temporary, path);
  } catch (...) {
    unlink(temporary.c_str());
    throw;
  }
}

void link_atomically(const std::string& path, const std::string& target) {
  const std::string temporary = temporary_of(path);
  unlink(temporary.c_str());
  if (symlink(target.c_str(), temporary.c_str()) != 0) fail_errno("create the link", temporary);
  rename_over(temporary, path);
}

StagedFolder::StagedFolder(std::string path) : final_(std::move(path)), staged_(temporary_of(final_)) {
  remove_tree(staged_);
  create_folders(staged_);
}

StagedFolder::~StagedFolder() {
  std::error_code ignored;  // a left-over is removed by the next save
  if (!staged_.empty()) fs::remove_all(staged_, ignored);
}

std::string StagedFolder::file(std::string_view name) const { return (fs::path(staged_) / name).string(); }

void StagedFolder::commit() {
  sync_folder(staged_);
  const bool replaces = fs::exists(final_);
  if (replaces && renameat2(AT_FDCWD, staged_.c_str(), AT_FDCWD, final_.c_str(), RENAME_EXCHANGE) != 0)
    fail_errno("exchange " + staged_ + " with", final_);
  if (!replaces) rename_over(staged_, final_);
  sync_folder(folder_of(final_));
  if (replaces) remove_tree(staged_);
  staged_.clear();
}

void remove_folder(const std::string& path) {
  const std::string temporary = temporary_of(path);
  rename_over(path, temporary);
  remove_tree(temporary);
}

}  // namespace tc::train
