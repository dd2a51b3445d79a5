// What the human output shares: colour only on a terminal, aligned tables, a progress bar on anything over two seconds.
#pragma once
#include <chrono>
#include <string>
#include <vector>

namespace tc::cli {

bool is_terminal();  // stdout
std::string good(const std::string& text);
std::string bad(const std::string& text);
std::string faint(const std::string& text);

// Columns as wide as their widest cell; the first column is left-aligned, numbers are right-aligned by the caller.
class Table {
 public:
  explicit Table(std::vector<std::string> head) : rows_{std::move(head)} {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  void print() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// One line on stderr, rewritten in place; silent off a terminal and for the first two seconds.
class Progress {
 public:
  explicit Progress(std::string what) : what_(std::move(what)) {}
  ~Progress() { clear(); }
  void show(int64_t done, int64_t total);
  void clear();

 private:
  std::string what_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now(), last_{};
  bool shown_ = false;
};

}  // namespace tc::cli
