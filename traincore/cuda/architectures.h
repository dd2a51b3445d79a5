// Which of a build's architectures a GPU runs. Pure.
#pragma once
#include <algorithm>
#include <cstdint>
#include <string_view>

namespace tc::cuda {

// The architecture whose code a GPU of compute capability `sm` runs, of those that CMAKE_CUDA_ARCHITECTURES names, with
// commas: "80,90-real". Machine code serves later minor versions, PTX ("80", "80-virtual") all later GPUs, "90a" one alone.
// 0 if none does; sm where a word like "native" stands there.
inline int32_t code_for(int32_t sm, std::string_view architectures) {
  int32_t best = 0;
  while (!architectures.empty()) {
    const std::string_view word = architectures.substr(0, architectures.find(','));
    architectures.remove_prefix(std::min(word.size() + 1, architectures.size()));
    const size_t digits = std::min(word.find_first_not_of("0123456789"), word.size());
    if (digits == 0) return sm;
    int32_t version = 0;
    for (const char digit : word.substr(0, digits)) version = version * 10 + (digit - '0');
    const std::string_view rest = word.substr(digits);
    const bool is_exact = !rest.empty() && rest[0] != '-', is_real = rest.ends_with("-real");
    if (is_exact ? sm == version : sm >= version && (!is_real || sm / 10 == version / 10))
      best = std::max(best, version);
  }
  return best;
}

}  // namespace tc::cuda
