// Text to token ids and back: bytes, or a SentencePiece model.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "traincore/train/llama_files.h"

namespace tc::train {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual int64_t vocab() const = 0;
  virtual const std::string& model() const = 0;  // the SentencePiece model; empty: ids are the bytes themselves
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  virtual std::string decode(std::span<const int32_t> ids) const = 0;  // ids outside the vocabulary are left out
  virtual SpecialTokens special_tokens() const = 0;
};

// `model`: the path of a SentencePiece model; empty: bytes, of which every sequence is valid, whatever its encoding.
// Errors: a missing or malformed model, a build without SentencePiece.
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& model);

}  // namespace tc::train
