// A run of a model of a few hundred parameters, to save and to open.
#pragma once
#include <cstring>
#include <memory>
#include <numeric>

#include "scratch.h"
#include "traincore/core/view.h"
#include "traincore/train/checkpoint.h"

namespace tc::testing {

// A small model with memory behind every tensor; each value differs.
class TinyRun {
 public:
  explicit TinyRun(const std::string& out, bool tied = true) {
    state.config = train::resolve_config("tiny", "", {});
    state.config.model = {.dim = 6,
                          .layers = 2,
                          .heads = 4,
                          .kv_heads = 2,
                          .head_dim = 8,
                          .ffn = 10,
                          .vocab = 11,
                          .context = 5,
                          .tied = tied};
    state.config.train.out = out;
    for (const train::TensorSpec& spec : train::llama_tensors(state.config.model)) {
      add(weights, spec.name, spec.shape);
      for (const char* prefix : {"m.", "v."}) add(optimizer, prefix + spec.name, spec.shape);
    }
  }
  std::string save(int64_t step) {
    state.step = step;
    values[0][0] = static_cast<float>(step);
    return train::save_checkpoint({state, weights, optimizer, *tokenizer});
  }
  void write_weights(const std::string& path, std::span<const train::NamedTensor> tensors) const {
    train::OutputFile file(path);
    train::write_safetensors(file, tensors);
    file.finish();
  }

  train::TrainState state;
  std::unique_ptr<train::Tokenizer> tokenizer = train::make_tokenizer("");
  std::vector<train::NamedTensor> weights, optimizer;
  std::vector<std::vector<float>> values;

 private:
  void add(std::vector<train::NamedTensor>& to, const std::string& name, const std::vector<int64_t>& shape) {
    const auto count = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
    std::vector<float>& memory = values.emplace_back(static_cast<size_t>(count));
    std::iota(memory.begin(), memory.end(), static_cast<float>(1000 * values.size()));
    to.push_back(
        {name, tc_tensor_dense(memory.data(), TC_DTYPE_F32, static_cast<int32_t>(shape.size()), shape.data())});
  }
};

inline void expect_same_values(const tc_tensor& got, const tc_tensor& expected) {
  ASSERT_EQ(element_count(got), element_count(expected));
  EXPECT_EQ(std::memcmp(got.data, expected.data, sizeof(float) * static_cast<size_t>(element_count(got))), 0);
}

}  // namespace tc::testing
