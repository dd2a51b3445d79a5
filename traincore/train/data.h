// Where tokens come from and in which order they are trained on.
//
// Files are read as one stream, in the order given. A name that ends in .u32.bin holds token ids as uint32, any other
// .bin as uint16, little-endian, without a header; every other file is text, for the tokenizer.
//
// A window is context + 1 consecutive tokens: inputs are its first `context`, targets its last. The windows of an epoch
// share only that one token; they start at an offset drawn for the epoch and come in a shuffled order, both pure
// functions of (seed, epoch). So a position in the data is two numbers, the same for any number of ranks, and resuming
// is exact.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "traincore/core/random.h"
#include "traincore/train/file.h"
#include "traincore/train/tokenizer.h"

namespace tc::train {

// The tokens of all files. Text on a byte tokenizer and .bin files stay on disk; other text is encoded once, in memory.
class TokenStream {
 public:
  // `vocab`: the model's. Errors: no file, missing, a directory, empty, half a token at the end, an id >= vocab.
  TokenStream(std::span<const std::string> files, const Tokenizer& tokenizer, int64_t vocab);
  int64_t size() const { return size_; }
  // Tokens [begin, begin + count), which must lie inside.
  void read(int64_t begin, int64_t count, int32_t* ids) const;

 private:
  struct Segment {
    int64_t first, count;
    int width;                        // bytes of one token in the file
    std::unique_ptr<InputFile> file;  // NULL: `ids` holds the tokens
    std::vector<int32_t> ids;
  };
  static Segment open_segment(const std::string& path, const Tokenizer& tokenizer);
  static void read_segment(const Segment& segment, int64_t begin, int64_t count, int32_t* ids);
  static void check_ids(const Segment& segment, const std::string& path, int64_t vocab);
  std::vector<Segment> segments_;
  int64_t size_ = 0;
};

struct TokenRange {
  int64_t begin = 0, size = 0;
};

struct Split {
  TokenRange train, validation;
  std::string note;  // one sentence where the validation part is not what the fraction asks for
};

// The last `val_fraction` of the stream is for validation: at least one window, or none, which the note explains.
// Errors: fewer than context + 1 tokens in all.
Split split_tokens(int64_t tokens, int64_t context, double val_fraction);

// The next window of the whole job, whatever the number of ranks.
struct Cursor {
  int64_t epoch = 0, index = 0;
  bool operator==(const Cursor&) const = default;
};

// Draws training windows. Ranks with the same seed see disjoint windows, and together every window of an epoch once.
class Sampler {
 public:
  Sampler(TokenRange range, int64_t context, uint64_t seed, int64_t rank = 0, int64_t world = 1);
  // This rank's next `rows` windows, each by its first token; the cursor moves on by rows * world.
  std::vector<int64_t> next(int64_t rows);
  const Cursor& cursor() const { return cursor_; }
  void seek(const Cursor& cursor);                   // Errors: a cursor outside its epoch
  int64_t windows(int64_t epoch) const;              // how many the epoch has, at least 1
  int64_t window_start(const Cursor& cursor) const;  // the first token of one

 private:
  Philox random(int64_t epoch) const;
  int64_t offset(int64_t epoch) const;
  TokenRange range_;
  int64_t context_, rank_, world_;
  uint64_t seed_;
  Cursor cursor_;
};

// The first tokens of up to `most` windows of a range, in order: what an evaluation reads, always the same.
std::vector<int64_t> evaluation_windows(TokenRange range, int64_t context, int64_t most);

// inputs and targets [rows, context]: row i is the window at starts[i].
void read_windows(const TokenStream& tokens, std::span<const int64_t> starts, int64_t context, int32_t* inputs,
                  int32_t* targets);

}  // namespace tc::train
