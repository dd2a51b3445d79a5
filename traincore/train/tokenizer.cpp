#include "traincore/train/tokenizer.h"

#ifdef TC_WITH_SENTENCEPIECE
#include <sentencepiece_processor.h>
#endif

#include "traincore/core/fail.h"

namespace tc::train {
namespace {

class ByteTokenizer final : public Tokenizer {
 public:
  int64_t vocab() const override { return 256; }
  const std::string& model() const override { return no_model_; }
  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int32_t> ids;
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }
  std::string decode(std::span<const int32_t> ids) const override {
    std::string text;
    for (const int32_t id : ids)
      if (id >= 0 && id < vocab()) text.push_back(static_cast<char>(id));
    return text;
  }
  SpecialTokens special_tokens() const override { return {}; }

 private:
  std::string no_model_;
};

#ifdef TC_WITH_SENTENCEPIECE
class SentencePieceTokenizer final : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(const std::string& path) : model_(read_text(path)) {
    const auto status = processor_.LoadFromSerializedProto(model_);
    require(status.ok() && processor_.GetPieceSize() > 0, "{} is not a SentencePiece model: {}", path,
            status.message());
  }
  int64_t vocab() const override { return processor_.GetPieceSize(); }
  const std::string& model() const override { return model_; }
  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int> ids;
    check(processor_.Encode(text, &ids));
    return ids;
  }
  std::string decode(std::span<const int32_t> ids) const override {
    std::vector<int> known;
    for (const int32_t id : ids)
      if (id >= 0 && id < vocab()) known.push_back(id);
    std::string text;
    check(processor_.Decode(known, &text));
    return text;
  }
  SpecialTokens special_tokens() const override {
    const auto known = [](int id) { return id < 0 ? std::optional<int32_t>() : id; };
    return {known(processor_.bos_id()), known(processor_.eos_id())};
  }

 private:
  static void check(const sentencepiece::util::Status& status) {
    if (!status.ok()) fail(TC_ERR_INTERNAL, "SentencePiece: {}", status.message());
  }
  std::string model_;
  sentencepiece::SentencePieceProcessor processor_;
};
#endif

}  // namespace

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& model) {
  if (model.empty()) return std::make_unique<ByteTokenizer>();
#ifdef TC_WITH_SENTENCEPIECE
  return std::make_unique<SentencePieceTokenizer>(model);
#else
  fail(TC_ERR_KERNEL_NOT_FOUND,
       "--tokenizer {}: this program was built without SentencePiece; install libsentencepiece-dev and build again",
       model);
#endif
}

}  // namespace tc::train
