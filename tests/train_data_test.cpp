// Tokenizers, token files, the split and the sampler.
#include "traincore/train/data.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "scratch.h"
#include "tiny_tokenizer.h"

namespace {

using namespace tc::train;
using tc::testing::error_of;
using tc::testing::mentions;
using tc::testing::ScratchFolder;
using tc::testing::sentencepiece_model;
using Files = std::vector<std::string>;

std::vector<int32_t> read_all(const TokenStream& tokens) {
  std::vector<int32_t> ids(static_cast<size_t>(tokens.size()));
  tokens.read(0, tokens.size(), ids.data());
  return ids;
}

template <class T>
std::string raw(std::vector<T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

TEST(Tokenizer, bytes_are_bytes) {
  const auto bytes = make_tokenizer("");
  std::string all;
  for (int i = 0; i < 256; ++i) all.push_back(static_cast<char>(i));
  const std::vector<int32_t> ids = bytes->encode(all);
  EXPECT_EQ(ids.size(), 256u);
  EXPECT_EQ(ids[255], 255);
  EXPECT_EQ(bytes->decode(ids), all);
  EXPECT_EQ(bytes->decode(std::vector<int32_t>{-1, 65, 256}), "A");
  EXPECT_FALSE(bytes->special_tokens().bos);
}

TEST(Tokenizer, sentencepiece_model) {
  const ScratchFolder folder;
  const std::string path = folder.write("tokens.model", sentencepiece_model());
  std::unique_ptr<Tokenizer> tokenizer;
  const std::string refusal = error_of([&] { tokenizer = make_tokenizer(path); });
  if (!tokenizer) {
    EXPECT_TRUE(mentions(refusal, "built without SentencePiece"));
    GTEST_SKIP();
  }
  EXPECT_EQ(tokenizer->vocab(), 8);
  EXPECT_EQ(tokenizer->encode("ab a\n"), (std::vector<int32_t>{7, 3, 5, 4}));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("ab a\nb")), "ab a\nb");
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{5, 8, -1}), "a");
  EXPECT_EQ(tokenizer->special_tokens().eos, 2);
  EXPECT_TRUE(
      mentions(error_of([&] { make_tokenizer(folder.write("bad", "no model")); }), "bad is not a SentencePiece model"));

  std::string text;  // longer than one piece of the reader, so the cut must not show
  for (int i = 0; i < 400000; ++i) text += i % 7 ? "ab " : "b\n";
  const Files files{folder.write("text", text)};
  EXPECT_EQ(read_all(TokenStream(files, *tokenizer, 8)), tokenizer->encode(text));
  EXPECT_TRUE(mentions(error_of([&] { TokenStream(files, *tokenizer, 7); }), "model.vocab is 7"));
}

TEST(Tokens, files_follow_each_other) {
  const ScratchFolder folder;
  const auto bytes = make_tokenizer("");
  const Files files{folder.write("a.txt", std::string("h\xff\0", 3)),
                    folder.write("b.bin", raw<uint16_t>({300, 65535})), folder.write("c.u16.bin", raw<uint16_t>({7})),
                    folder.write("d.u32.bin", raw<uint32_t>({70000, 1}))};
  const TokenStream tokens(files, *bytes, 70001);
  const std::vector<int32_t> expected{'h', 255, 0, 300, 65535, 7, 70000, 1};
  EXPECT_EQ(read_all(tokens), expected);
  for (int64_t begin = 0; begin <= tokens.size(); ++begin)
    for (int64_t count = 0; begin + count <= tokens.size(); ++count) {
      std::vector<int32_t> ids(static_cast<size_t>(count));
      tokens.read(begin, count, ids.data());
      EXPECT_TRUE(std::equal(ids.begin(), ids.end(), expected.begin() + begin));
    }
  int32_t none = 0;
  EXPECT_NE(error_of([&] { tokens.read(7, 2, &none); }), "");
  EXPECT_NE(error_of([&] { tokens.read(-1, 1, &none); }), "");
  EXPECT_NE(error_of([&] { tokens.read(INT64_MAX, 2, &none); }), "");
}

TEST(Tokens, bad_files_are_refused_by_name) {
  const ScratchFolder folder;
  const auto bytes = make_tokenizer("");
  const auto refusal = [&](const Files& files, int64_t vocab = 256) {
    return error_of([&] { TokenStream(files, *bytes, vocab); });
  };
  EXPECT_TRUE(mentions(refusal({}), "--data"));
  EXPECT_TRUE(mentions(refusal({folder / "absent"}), "absent: No such file"));
  EXPECT_TRUE(mentions(refusal({folder.path()}), "is a directory"));
  EXPECT_TRUE(mentions(refusal({"/dev/null"}), "not a regular file"));
  EXPECT_TRUE(mentions(refusal({folder.write("empty", "")}), "empty is empty"));
  EXPECT_TRUE(mentions(refusal({folder.write("x.bin", "abc")}), "3 bytes are not a whole number of uint16"));
  EXPECT_TRUE(mentions(refusal({folder.write("x.u32.bin", "abcdef")}), "uint32"));
  EXPECT_TRUE(mentions(refusal({folder.write("y.bin", raw<uint16_t>({1, 255, 256}))}),
                       "token 2 has id 256, but the vocabulary has 256"));
  EXPECT_TRUE(mentions(refusal({folder.write("y.u32.bin", raw<uint32_t>({4294967295}))}), "id 4294967295"));
  EXPECT_TRUE(mentions(refusal({folder.write("t", "text")}, 255), "model.vocab is 255"));
}

TEST(Tokens, positions_beyond_two_to_the_31) {
  const ScratchFolder folder;
  const std::string path = folder.write("big.bin", "");
  constexpr int64_t kTokens = 2'500'000'000;
  const uint16_t value = 4242;
  const Descriptor file(open(path.c_str(), O_WRONLY));
  ASSERT_EQ(ftruncate(file.get(), kTokens * 2), 0);
  ASSERT_EQ(pwrite(file.get(), &value, 2, (kTokens - 1) * 2), 2);
  const TokenStream tokens(Files{path}, *make_tokenizer(""), 65536);
  EXPECT_EQ(tokens.size(), kTokens);
  int32_t ids[3]{};
  tokens.read(kTokens - 3, 3, ids);
  EXPECT_EQ(ids[1], 0);
  EXPECT_EQ(ids[2], 4242);
  const Sampler sampler({0, kTokens}, 100, 1);
  EXPECT_GT(sampler.windows(0), 24'999'990);
  int64_t highest = 0;
  for (int64_t i = 0; i < 100; ++i) highest = std::max(highest, sampler.window_start({0, i}));
  EXPECT_GT(highest, int64_t{1} << 31);
}

TEST(Split, short_data_never_underflows) {
  constexpr int64_t kContext = 8;
  for (int64_t tokens = 0; tokens <= kContext; ++tokens)
    EXPECT_TRUE(mentions(error_of([&] { split_tokens(tokens, kContext, 0.05); }), "needs 9"));
  for (int64_t tokens = kContext + 1; tokens < 100; ++tokens) {
    const Split split = split_tokens(tokens, kContext, 0.05);
    EXPECT_EQ(split.train.begin, 0);
    EXPECT_GT(split.train.size, kContext);
    EXPECT_EQ(split.validation.begin, split.train.size);
    EXPECT_EQ(split.train.size + split.validation.size, tokens);
    EXPECT_TRUE(split.validation.size == 0 || split.validation.size > kContext);
    EXPECT_EQ(split.validation.size == 0, tokens < 18);
    EXPECT_NE(split.note, "");
  }
  EXPECT_EQ(split_tokens(1000, 8, 0.05).validation.size, 50);
  EXPECT_EQ(split_tokens(1000, 8, 0.05).note, "");
  EXPECT_EQ(split_tokens(1000, 8, 0).validation.size, 0);
}

TEST(Sampler, an_epoch_is_every_window_once) {
  for (const int64_t context : {1, 3, 16})
    for (const int64_t size : {17, 18, 33, 100, 1001}) {
      if (size <= context) continue;
      const TokenRange range{1000, size};
      const Sampler sampler(range, context, 7);
      for (int64_t epoch = 0; epoch < 4; ++epoch) {
        std::set<int64_t> starts;
        for (int64_t i = 0; i < sampler.windows(epoch); ++i) starts.insert(sampler.window_start({epoch, i}));
        ASSERT_EQ(static_cast<int64_t>(starts.size()), sampler.windows(epoch));
        EXPECT_GE(*starts.begin(), range.begin);
        EXPECT_LE(*starts.rbegin() + context + 1, range.begin + size);
        EXPECT_LT(*starts.begin(), range.begin + context);
        EXPECT_EQ(*starts.rbegin() - *starts.begin(), (sampler.windows(epoch) - 1) * context);
        EXPECT_GT(*starts.rbegin() + 2 * context + 1, range.begin + size);
      }
    }
}

TEST(Sampler, the_smallest_data_has_one_window) {
  Sampler sampler({0, 9}, 8, 1);
  EXPECT_EQ(sampler.next(3), (std::vector<int64_t>{0, 0, 0}));
  EXPECT_EQ(sampler.cursor(), (Cursor{3, 0}));
  EXPECT_NE(error_of([] { Sampler({0, 8}, 8, 1); }), "");
  EXPECT_NE(error_of([] { Sampler({0, 0}, 8, 1); }), "");
}

TEST(Sampler, order_and_offset_depend_on_seed_and_epoch_alone) {
  const TokenRange range{0, 64 * 100};
  const auto order = [&](uint64_t seed, int64_t epoch) {
    const Sampler sampler(range, 64, seed);
    std::vector<int64_t> starts;
    for (int64_t i = 0; i < sampler.windows(epoch); ++i) starts.push_back(sampler.window_start({epoch, i}));
    return starts;
  };
  EXPECT_EQ(order(1, 0), order(1, 0));
  EXPECT_NE(order(1, 0), order(2, 0));
  EXPECT_NE(order(1, 0), order(1, 1));
  EXPECT_FALSE(std::is_sorted(order(1, 0).begin(), order(1, 0).end()));
  std::set<int64_t> offsets;
  for (int64_t epoch = 0; epoch < 50; ++epoch) offsets.insert(order(1, epoch)[0] % 64);
  EXPECT_GT(offsets.size(), 20u);
}

// Where the first window of the file comes in the order, over many epochs: uniform, by Pearson's chi-squared (5
// windows, 4 degrees of freedom, far beyond the 1e-6 quantile of 33).
TEST(Sampler, every_place_in_the_order_is_as_likely) {
  const Sampler sampler({0, 6}, 1, 11);
  constexpr int kEpochs = 20000;
  ASSERT_EQ(sampler.windows(0), 5);
  std::map<int64_t, std::map<int64_t, int>> counts;
  for (int64_t epoch = 0; epoch < kEpochs; ++epoch)
    for (int64_t i = 0; i < 5; ++i) ++counts[i][sampler.window_start({epoch, i})];
  for (const auto& [place, by_window] : counts) {
    double chi_squared = 0;
    for (const auto& [window, count] : by_window) chi_squared += std::pow(count - kEpochs / 5.0, 2) / (kEpochs / 5.0);
    EXPECT_EQ(by_window.size(), 5u);
    EXPECT_LT(chi_squared, 33) << "place " << place;
  }
}

// What all ranks see together is what one rank alone sees, whatever their number; an epoch's windows are distinct
// (above), so ranks never overlap.
TEST(Sampler, ranks_share_the_windows_without_overlap) {
  const TokenRange range{0, 16 * 24 + 1};
  constexpr int64_t kWindows = 48, kRows = 2;
  Sampler one(range, 16, 3);
  const std::vector<int64_t> drawn = one.next(kWindows);
  const std::multiset<int64_t> expected(drawn.begin(), drawn.end());
  ASSERT_GE(one.cursor().epoch, 1);
  for (const int64_t world : {1, 2, 3, 4}) {
    std::multiset<int64_t> seen;
    for (int64_t rank = 0; rank < world; ++rank) {
      Sampler sampler(range, 16, 3, rank, world);
      for (int64_t step = 0; step < kWindows / (kRows * world); ++step) {
        const std::vector<int64_t> starts = sampler.next(kRows);
        ASSERT_EQ(starts.size(), static_cast<size_t>(kRows));
        seen.insert(starts.begin(), starts.end());
      }
      EXPECT_EQ(sampler.cursor(), one.cursor());
    }
    EXPECT_EQ(seen, expected) << world << " ranks";
  }
  EXPECT_NE(error_of([&] { Sampler(range, 16, 3, 2, 2); }), "");
}

TEST(Sampler, resuming_at_the_cursor_continues_the_order) {
  const TokenRange range{5, 777};
  Sampler whole(range, 10, 9);
  for (int i = 0; i < 100; ++i) {  // several epochs
    Sampler resumed(range, 10, 9);
    resumed.seek(whole.cursor());
    Sampler copy = whole;
    EXPECT_EQ(resumed.next(7), copy.next(7));
    EXPECT_EQ(resumed.cursor(), copy.cursor());
    whole.next(3);
  }
  EXPECT_GT(whole.cursor().epoch, 2);
  EXPECT_NE(error_of([&] { whole.seek({0, whole.windows(0)}); }), "");
  EXPECT_NE(error_of([&] { whole.seek({-1, 0}); }), "");
}

TEST(Windows, targets_are_the_next_tokens) {
  const ScratchFolder folder;
  const TokenStream tokens(Files{folder.write("t", "0123456789")}, *make_tokenizer(""), 256);
  const std::vector<int64_t> starts = evaluation_windows({0, tokens.size()}, 4, 100);
  EXPECT_EQ(starts, (std::vector<int64_t>{0, 4}));
  std::vector<int32_t> inputs(8), targets(8);
  read_windows(tokens, starts, 4, inputs.data(), targets.data());
  EXPECT_EQ(inputs, (std::vector<int32_t>{'0', '1', '2', '3', '4', '5', '6', '7'}));
  EXPECT_EQ(targets, (std::vector<int32_t>{'1', '2', '3', '4', '5', '6', '7', '8'}));
  EXPECT_TRUE(evaluation_windows({0, 4}, 4, 100).empty());
  EXPECT_EQ(evaluation_windows({0, 10}, 4, 1).size(), 1u);
}

}  // namespace
