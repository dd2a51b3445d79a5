#include "traincore/train/data.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "traincore/core/fail.h"
#include "traincore/train/random_use.h"

namespace tc::train {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian and are read as they are");

int token_width(const std::string& path) { return path.ends_with(".u32.bin") ? 4 : path.ends_with(".bin") ? 2 : 1; }

// Encodes a text file in pieces that end at line breaks, so that memory stays near the size of the result.
std::vector<int32_t> encode_file(const InputFile& file, const Tokenizer& tokenizer) {
  constexpr int64_t kPiece = 1 << 20, kLongestLine = 1 << 30;
  std::vector<int32_t> ids;
  std::string text;
  for (int64_t at = 0; at < file.size();) {
    const size_t kept = text.size();  // the beginning of a line that goes on in the next piece
    const int64_t bytes = std::min(kPiece, file.size() - at);
    text.resize(kept + static_cast<size_t>(bytes));
    file.read(at, text.data() + kept, bytes);
    at += bytes;
    const size_t line_break = std::string_view(text).substr(kept).find_last_of('\n');
    require(text.size() < kLongestLine, "{}: the line before byte {} is too long for a tokenizer; break it",
            file.path(), at);
    if (at < file.size() && line_break == std::string_view::npos) continue;
    const size_t end = at == file.size() ? text.size() : kept + line_break + 1;
    const std::vector<int32_t> piece = tokenizer.encode(std::string_view(text).substr(0, end));
    ids.insert(ids.end(), piece.begin(), piece.end());
    text.erase(0, end);
  }
  return ids;
}

template <class T>
void widen(const std::byte* from, int64_t count, int32_t* to) {
  for (int64_t i = 0; i < count; ++i) {
    T id;
    std::memcpy(&id, from + i * static_cast<int64_t>(sizeof id), sizeof id);
    to[i] = static_cast<int32_t>(id);
  }
}

// A pseudo-random permutation of [0, count): a Feistel network on the next even number of bits, walked until it lands
// inside. Black and Rogaway, "Ciphers with arbitrary finite domains", 2002. O(1) memory, so any number of windows.
uint64_t permuted(const Philox& random, uint64_t index, uint64_t count) {
  constexpr uint64_t kRounds = 8;
  const int half = std::max(1, (static_cast<int>(std::bit_width(count - 1)) + 1) / 2);
  const uint64_t mask = (uint64_t{1} << half) - 1;
  do {
    uint64_t left = index >> half, right = index & mask;
    for (uint64_t round = 0; round < kRounds; ++round) {
      const uint64_t mixed = left ^ (random(round << 32 | right).x & mask);
      left = right;
      right = mixed;
    }
    index = left << half | right;
  } while (index >= count);
  return index;
}

}  // namespace

TokenStream::TokenStream(std::span<const std::string> files, const Tokenizer& tokenizer, int64_t vocab) {
  require(!files.empty(), "no data: name at least one file with --data");
  require(tokenizer.vocab() <= vocab, "the tokenizer has {} tokens, but model.vocab is {}", tokenizer.vocab(), vocab);
  for (const std::string& path : files) {
    Segment segment = open_segment(path, tokenizer);
    segment.first = size_;
    size_ += segment.count;
    check_ids(segment, path, vocab);
    segments_.push_back(std::move(segment));
  }
}

TokenStream::Segment TokenStream::open_segment(const std::string& path, const Tokenizer& tokenizer) {
  Segment segment{};
  segment.width = token_width(path);
  segment.file = std::make_unique<InputFile>(path);
  const int64_t bytes = segment.file->size();
  require(bytes > 0, "{} is empty", path);
  require(bytes % segment.width == 0, "{}: {} bytes are not a whole number of uint{} tokens", path, bytes,
          8 * segment.width);
  segment.count = bytes / segment.width;
  if (segment.width > 1 || tokenizer.model().empty()) return segment;
  segment.ids = encode_file(*segment.file, tokenizer);
  segment.count = static_cast<int64_t>(segment.ids.size());
  segment.file.reset();
  return segment;
}

void TokenStream::read_segment(const Segment& segment, int64_t begin, int64_t count, int32_t* ids) {
  if (!segment.file) {
    std::copy_n(segment.ids.begin() + begin, count, ids);
    return;
  }
  std::vector<std::byte> raw(static_cast<size_t>(count * segment.width));
  segment.file->read(begin * segment.width, raw.data(), count * segment.width);
  if (segment.width == 1) widen<uint8_t>(raw.data(), count, ids);
  if (segment.width == 2) widen<uint16_t>(raw.data(), count, ids);
  if (segment.width == 4) widen<uint32_t>(raw.data(), count, ids);
}

// Reads the whole segment, unless its width alone keeps every id inside the vocabulary.
void TokenStream::check_ids(const Segment& segment, const std::string& path, int64_t vocab) {
  constexpr int64_t kBlock = 1 << 18;
  if (!segment.file || vocab >= int64_t{1} << (8 * segment.width)) return;
  std::vector<int32_t> ids(kBlock);
  for (int64_t at = 0; at < segment.count; at += kBlock) {
    const int64_t count = std::min(kBlock, segment.count - at);
    read_segment(segment, at, count, ids.data());
    for (int64_t i = 0; i < count; ++i)
      require(static_cast<uint32_t>(ids[i]) < vocab, "{}: token {} has id {}, but the vocabulary has {}", path, at + i,
              static_cast<uint32_t>(ids[i]), vocab);
  }
}

void TokenStream::read(int64_t begin, int64_t count, int32_t* ids) const {
  require(begin >= 0 && count >= 0 && begin <= size_ - count,
          "{} tokens from token {} are not inside the {} of the data", count, begin, size_);
  const auto after = [](int64_t at, const Segment& segment) { return at < segment.first; };
  auto segment = std::upper_bound(segments_.begin(), segments_.end(), begin, after) - 1;
  while (count > 0) {
    const int64_t part = std::min(count, segment->first + segment->count - begin);
    read_segment(*segment, begin - segment->first, part, ids);
    begin += part, count -= part, ids += part, ++segment;
  }
}

Split split_tokens(int64_t tokens, int64_t context, double val_fraction) {
  const int64_t window = context + 1;
  require(tokens >= window, "the data has {} tokens, but one window of model.context = {} needs {}", tokens, context,
          window);
  if (val_fraction <= 0) return {{0, tokens}, {tokens, 0}, "There is no validation part, as data.val_fraction is 0."};
  if (tokens < 2 * window)
    return {{0, tokens},
            {tokens, 0},
            fmt::format(
                "There is no validation part: {} tokens are too few for a training and a validation window of {} each.",
                tokens, window)};
  const auto wanted = static_cast<int64_t>(static_cast<double>(tokens) * val_fraction);
  const int64_t validation = std::clamp(wanted, window, tokens - window);
  std::string note;
  if (validation != wanted)
    note = fmt::format("The validation part has {} tokens instead of {}, so that both parts hold a window.", validation,
                       wanted);
  return {{0, tokens - validation}, {tokens - validation, validation}, note};
}

Sampler::Sampler(TokenRange range, int64_t context, uint64_t seed, int64_t rank, int64_t world)
    : range_(range), context_(context), rank_(rank), world_(world), seed_(seed) {
  require(context > 0 && range.size > context, "a sampler over {} tokens has no window of {} + 1", range.size, context);
  require(world > 0 && rank >= 0 && rank < world, "rank {} is not one of {}", rank, world);
}

Philox Sampler::random(int64_t epoch) const { return random_for(seed_, RandomUse::shuffle, epoch); }

// Less than a window, and small enough to leave one.
int64_t Sampler::offset(int64_t epoch) const {
  const int64_t choices = std::min(context_, range_.size - context_);
  const uint64_t word = random(epoch)(~uint64_t{0}).x;
  return static_cast<int64_t>(word * static_cast<uint64_t>(choices) >> 32);
}

int64_t Sampler::windows(int64_t epoch) const { return (range_.size - 1 - offset(epoch)) / context_; }

int64_t Sampler::window_start(const Cursor& cursor) const {
  const auto count = static_cast<uint64_t>(windows(cursor.epoch));
  const uint64_t window = permuted(random(cursor.epoch), static_cast<uint64_t>(cursor.index), count);
  return range_.begin + offset(cursor.epoch) + static_cast<int64_t>(window) * context_;
}

void Sampler::seek(const Cursor& cursor) {
  require(cursor.epoch >= 0 && cursor.index >= 0 && cursor.index < windows(cursor.epoch),
          "window {} of epoch {} does not exist in this data", cursor.index, cursor.epoch);
  cursor_ = cursor;
}

std::vector<int64_t> Sampler::next(int64_t rows) {
  std::vector<int64_t> starts;
  for (int64_t i = 0; i < rows * world_; ++i) {
    if (i / rows == rank_) starts.push_back(window_start(cursor_));
    if (++cursor_.index == windows(cursor_.epoch)) cursor_ = {cursor_.epoch + 1, 0};
  }
  return starts;
}

std::vector<int64_t> evaluation_windows(TokenRange range, int64_t context, int64_t most) {
  std::vector<int64_t> starts;
  const int64_t count = range.size > context ? std::min(most, (range.size - 1) / context) : 0;
  for (int64_t i = 0; i < count; ++i) starts.push_back(range.begin + i * context);
  return starts;
}

void read_windows(const TokenStream& tokens, std::span<const int64_t> starts, int64_t context, int32_t* inputs,
                  int32_t* targets) {
  std::vector<int32_t> window(static_cast<size_t>(context) + 1);
  for (const int64_t start : starts) {
    tokens.read(start, context + 1, window.data());
    inputs = std::copy_n(window.begin(), context, inputs);
    targets = std::copy_n(window.begin() + 1, context, targets);
  }
}

}  // namespace tc::train
