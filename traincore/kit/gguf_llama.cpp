// The shape of a Llama-style model, from a file's metadata.
#include <cmath>
#include <optional>

#include "traincore/core/fail.h"
#include "traincore/kit/gguf_file.h"

namespace tc::kit {
namespace {

// A count that the file gives: an integer from 0 on that fits 64 signed bits.
std::optional<int64_t> count_of(const GgufFile& file, const std::string& key) {
  const GgufValue* const value = file.value(key);
  if (!value) return std::nullopt;
  if (const auto* u = std::get_if<uint64_t>(value); u && *u <= INT64_MAX) return static_cast<int64_t>(*u);
  if (const auto* i = std::get_if<int64_t>(value); i && *i >= 0) return *i;
  fail(TC_ERR_INTERNAL, "gguf: {} must be an integer >= 0 that fits 63 bits", key);
}

std::optional<double> positive_of(const GgufFile& file, const std::string& key) {
  const GgufValue* const value = file.value(key);
  if (!value) return std::nullopt;
  const auto count = std::holds_alternative<double>(*value) ? std::nullopt : count_of(file, key);
  const double number = count ? static_cast<double>(*count) : std::get<double>(*value);
  if (!std::isfinite(number) || number <= 0)
    fail(TC_ERR_INTERNAL, "gguf: {} is {}, but must be finite and > 0", key, number);
  return number;
}

bool is_text(const GgufFile& file, const std::string& key, std::string_view wanted) {
  const GgufValue* const value = file.value(key);
  const auto* const text = value ? std::get_if<std::string>(value) : nullptr;
  return text && *text == wanted;
}

int64_t token_count(const GgufFile& file) {
  const GgufValue* const tokens = file.value("tokenizer.ggml.tokens");
  const auto* const array = tokens ? std::get_if<GgufArray>(tokens) : nullptr;
  return array ? static_cast<int64_t>(array->count) : 0;  // a count never passes the bytes of a file
}

double rope_scale(const GgufFile& file) {
  if (const auto scale = positive_of(file, "llama.rope.freq_scale")) return *scale;
  if (is_text(file, "llama.rope.scaling.type", "none")) return 1;
  if (const auto factor = positive_of(file, "llama.rope.scaling.factor")) return 1 / *factor;
  if (const auto factor = positive_of(file, "llama.rope.scale_linear")) return 1 / *factor;
  return 1;
}

}  // namespace

tc_gguf_llama_config llama_config(const GgufFile& file) {
  require(is_text(file, "general.architecture", "llama"),
          "tc_gguf_get_llama_config: general.architecture is not llama, which is what this call reads");
  const auto count = [&](const char* key, int64_t otherwise = 0) {
    return count_of(file, std::string("llama.") + key).value_or(otherwise);
  };
  tc_gguf_llama_config c{};
  c.context_length = count("context_length");
  c.embedding_length = count("embedding_length");
  c.feed_forward_length = count("feed_forward_length");
  c.block_count = count("block_count");
  c.attention_head_count = count("attention.head_count");
  c.attention_head_count_kv = count("attention.head_count_kv", c.attention_head_count);
  c.rope_dimension_count = count("rope.dimension_count");
  c.vocab_size = count("vocab_size", token_count(file));
  c.rms_norm_epsilon = positive_of(file, "llama.attention.layer_norm_rms_epsilon").value_or(1e-5);
  c.rope_freq_base = positive_of(file, "llama.rope.freq_base").value_or(10000);
  c.rope_freq_scale = rope_scale(file);
  return c;
}

}  // namespace tc::kit
