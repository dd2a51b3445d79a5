// The GGUF format, from bytes that nobody has checked.
#pragma once
#include <map>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "traincore/gguf.h"

namespace tc::kit {

struct GgufArray {
  uint64_t count;
};
using GgufValue = std::variant<uint64_t, int64_t, double, bool, std::string, GgufArray>;

struct GgufTensor {
  std::string name;
  int32_t n_dims = 0;
  uint64_t dims[4] = {1, 1, 1, 1};
  tc_gguf_type_t type = TC_GGUF_TYPE_UNSUPPORTED;
  uint64_t offset = 0, bytes = 0;
  const std::byte* data = nullptr;
};

class GgufFile {
 public:
  // `bytes` must outlive the file. Throws INTERNAL with a sentence for whatever is wrong with them.
  explicit GgufFile(std::span<const std::byte> bytes);

  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const GgufTensor* tensor(const std::string& name) const;  // NULL: there is none of that name
  const GgufValue* value(const std::string& key) const;

 private:
  void place_tensors(std::span<const std::byte> data, uint64_t alignment);
  void refuse_overlaps() const;

  std::map<std::string, GgufValue, std::less<>> metadata_;
  std::vector<GgufTensor> tensors_;
  std::map<std::string, size_t, std::less<>> by_name_;
};

// Throws as tc_gguf_get_llama_config refuses.
tc_gguf_llama_config llama_config(const GgufFile& file);

}  // namespace tc::kit
