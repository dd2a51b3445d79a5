// The safetensors format: u64 little-endian header length, a JSON header {name: {dtype, shape, data_offsets},
// "__metadata__": {string: string}}, then the tensors' bytes, row-major, without gaps.
// https://github.com/huggingface/safetensors
#pragma once
#include <deque>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "traincore/core/types.h"
#include "traincore/train/atomic_file.h"
#include "traincore/train/file.h"

namespace tc::train {

struct NamedTensor {
  std::string name;
  tc_tensor tensor;
};
using Metadata = std::map<std::string, std::string>;

// A safetensors file seen as tensors. The views point into the mapped file and live as long as this object; never write
// to them. Errors, each naming the file: anything that is not a complete, consistent file of the dtypes of tc_dtype_t.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);
  const std::string& path() const { return file_.path(); }
  std::span<const NamedTensor> tensors() const { return tensors_; }  // sorted by name
  const Metadata& metadata() const { return metadata_; }
  const tc_tensor* find(std::string_view name) const;  // NULL if there is none

 private:
  MappedFile file_;
  std::vector<NamedTensor> tensors_;
  Metadata metadata_;
  std::deque<std::vector<std::byte>> aligned_;  // the tensors whose offset in the file does not suit their dtype
};

// Writes dense CPU tensors, streaming: nothing is copied. Wider dtypes come first, so every offset suits its dtype.
// Errors: a name twice, a tensor that is not dense, a dtype that the format lacks, a failing disk.
void write_safetensors(OutputFile& file, std::span<const NamedTensor> tensors, const Metadata& metadata = {});

}  // namespace tc::train
