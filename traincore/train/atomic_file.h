// Writing that survives kill -9, a power cut and a full disk: a file or folder appears under its name complete and on
// the disk, or not at all, and what stood there before stays until then.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "traincore/train/file.h"
#include "traincore/train/hash.h"

namespace tc::train {

inline constexpr std::string_view kTemporary = ".tmp";  // ends the name of everything that is not complete

// A new file, written from front to back. Every failure (no space left, no permission) is one sentence.
class OutputFile {
 public:
  explicit OutputFile(std::string path);
  void write(const void* data, int64_t bytes);
  void write(std::string_view text) { write(text.data(), static_cast<int64_t>(text.size())); }
  // On the disk and closed; returns the SHA-256 of all that was written.
  std::string finish();
  int64_t size() const { return size_; }

 private:
  std::string path_;
  Descriptor fd_;
  int64_t size_ = 0;
  Sha256 hash_;
};

// The folder and those above it, if they are not there yet.
void create_folders(const std::string& path);

// The folder for this process alone, until the descriptor closes or the process ends. Error: another has it.
[[nodiscard]] Descriptor lock_folder(const std::string& path);

// `path` holds `content`, or what it held before: written as path.tmp, fsynced, renamed.
void write_file_atomically(const std::string& path, std::string_view content);

// A symbolic link `path` -> `target`, replaced in one step.
void link_atomically(const std::string& path, const std::string& target);

// A folder that appears whole. It is filled as path.tmp; commit() flushes and renames it to path, taking the place of a
// folder of that name in the same step. Without commit() it is removed. A path.tmp that a killed writer left is removed
// first.
class StagedFolder {
 public:
  explicit StagedFolder(std::string path);
  ~StagedFolder();
  StagedFolder(const StagedFolder&) = delete;
  StagedFolder& operator=(const StagedFolder&) = delete;
  std::string file(std::string_view name) const;  // the path of a file to be written into it
  void commit();

 private:
  std::string final_, staged_;
};

// Removes a folder so that a kill half-way leaves only path.tmp behind.
void remove_folder(const std::string& path);

}  // namespace tc::train
