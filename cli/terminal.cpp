#include "cli/terminal.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>

namespace tc::cli {
namespace {

std::string painted(const char* colour, const std::string& text) {
  return is_terminal() ? fmt::format("\033[{}m{}\033[0m", colour, text) : text;
}

// Characters that show: bytes that are neither UTF-8 continuations nor part of an escape sequence.
size_t width_of(const std::string& s) {
  size_t width = 0;
  bool escape = false;
  for (const char c : s) {
    if (c == '\033')
      escape = true;
    else if (escape)
      escape = c != 'm';
    else
      width += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }
  return width;
}

}  // namespace

bool is_terminal() { return isatty(STDOUT_FILENO) != 0; }
std::string good(const std::string& text) { return painted("32", text); }
std::string bad(const std::string& text) { return painted("1;31", text); }
std::string faint(const std::string& text) { return painted("2", text); }

void Table::print() const {
  std::vector<size_t> widths;
  for (const auto& row : rows_)
    for (size_t i = 0; i < row.size(); ++i) {
      if (i == widths.size()) widths.push_back(0);
      widths[i] = std::max(widths[i], width_of(row[i]));
    }
  for (const auto& row : rows_) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i)
      line += row[i] + std::string(i + 1 < row.size() ? widths[i] - width_of(row[i]) + 2 : 0, ' ');
    fmt::print("{}\n", line);
  }
}

void Progress::show(int64_t done, int64_t total) {
  const auto now = std::chrono::steady_clock::now();
  if (!isatty(STDERR_FILENO) || now - start_ < std::chrono::seconds(2) || now - last_ < std::chrono::milliseconds(100))
    return;
  last_ = now;
  shown_ = true;
  constexpr int kWidth = 30;
  const int filled = total > 0 ? static_cast<int>(kWidth * done / total) : 0;
  fmt::print(stderr, "\r{} [{}{}] {}/{}\033[K", what_, std::string(filled, '#'), std::string(kWidth - filled, '.'),
             done, total);
  std::fflush(stderr);
}

void Progress::clear() {
  if (shown_) fmt::print(stderr, "\r\033[K");
  shown_ = false;
}

}  // namespace tc::cli
