// A folder that lives as long as a test, and the sentence of an error.
#pragma once
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "traincore/core/error.h"

namespace tc::testing {

class ScratchFolder {
 public:
  ScratchFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "traincore-test-XXXXXX").string();
    if (!mkdtemp(name.data())) throw std::runtime_error("mkdtemp failed");
    path_ = name;
  }
  ~ScratchFolder() { std::filesystem::remove_all(path_); }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(std::string_view name) const { return (std::filesystem::path(path_) / name).string(); }
  std::string write(std::string_view name, std::string_view content) const {
    std::filesystem::remove(*this / name);
    std::ofstream(*this / name, std::ios::binary) << content;
    return *this / name;
  }

 private:
  std::string path_;
};

inline std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// What tc::Error says when `body` runs; "" if nothing is thrown. Any other exception leaves, so the test fails.
template <class F>
std::string error_of(F&& body) {
  try {
    body();
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

inline ::testing::AssertionResult mentions(const std::string& text, std::string_view part) {
  if (text.find(part) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "\"" << text << "\" does not mention \"" << part << "\"";
}

}  // namespace tc::testing
