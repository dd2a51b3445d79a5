// A SentencePiece model of eight pieces, made in memory.
#pragma once
#include <string>

namespace tc::testing {

// A SentencePiece model, as protobuf: unigram pieces with scores, no normalisation, white space kept.
inline std::string sentencepiece_model() {
  const auto field = [](int number, const std::string& value) {  // length-delimited
    return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(value.size())} + value;
  };
  const auto piece = [&](const std::string& text, float score, char type) {
    return field(1, field(1, text) + "\x15" + std::string(reinterpret_cast<const char*>(&score), 4) + "\x18" + type);
  };
  constexpr char kNormal = 1, kUnknown = 2, kControl = 3;
  std::string model = piece("<unk>", 0, kUnknown) + piece("<s>", 0, kControl) + piece("</s>", 0, kControl);
  for (const char* text : {"\xe2\x96\x81", "\n", "a", "b"}) model += piece(text, -3, kNormal);
  model += piece("ab", -1, kNormal);
  const std::string trainer("\x18\x01", 2), normalizer("\x18\x00\x20\x00\x28\x01", 6);
  return model + field(2, trainer) + field(3, field(1, "identity") + normalizer);
}

}  // namespace tc::testing
