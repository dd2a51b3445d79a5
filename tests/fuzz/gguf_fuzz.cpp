// libFuzzer: any bytes either are a GGUF file, all of whose data can be read, or are refused with INTERNAL (the
// metadata of another architecture: INVALID_ARG) and a sentence. Build with clang++ and -DTC_BUILD_FUZZERS=ON:
//   build/clang/tests/gguf_fuzz -max_total_time=60
#include <cstdlib>
#include <cstring>

#include "traincore/core/error.h"
#include "traincore/kit/gguf_file.h"

namespace {

void must(bool ok) {
  if (!ok) std::abort();
}

void read_everything(const tc::kit::GgufFile& file, std::span<const std::byte> bytes) {
  unsigned sum = 0;
  for (const auto& tensor : file.tensors()) {
    must(file.tensor(tensor.name) == &tensor);
    must(!tensor.data || (tensor.data >= bytes.data() && tensor.data + tensor.bytes <= bytes.data() + bytes.size()));
    for (uint64_t i = 0; i < tensor.bytes; ++i) sum += static_cast<unsigned>(tensor.data[i]);
  }
  static volatile unsigned sink;
  sink = sink + sum;  // so that the reads are not optimised away
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  try {
    const tc::kit::GgufFile file(bytes);
    read_everything(file, bytes);
    const tc_gguf_llama_config config = tc::kit::llama_config(file);
    must(config.block_count >= 0 && config.rope_freq_scale > 0);
  } catch (const tc::Error& e) {
    must(e.code == TC_ERR_INTERNAL || e.code == TC_ERR_INVALID_ARG);
    must(std::strlen(e.what()) > 0);
  }
  return 0;
}
