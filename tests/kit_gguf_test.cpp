// GGUF files: what they hold, and what is refused in them.
#include <functional>

#include "kit_test.h"
#include "scratch.h"
#include "traincore/kit/gguf_file.h"

namespace tc::testing {
namespace {

// A GGUF file, field by field.
class Writer {
 public:
  template <class T>
  Writer& number(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Writer& text(const std::string& s) {
    number<uint64_t>(s.size());
    bytes_ += s;
    return *this;
  }
  Writer& header(uint64_t tensors, uint64_t entries, uint32_t version = 3) {
    bytes_ += "GGUF";
    return number(version).number(tensors).number(entries);
  }
  Writer& entry(const std::string& key, const std::string& value) { return text(key).number<uint32_t>(8).text(value); }
  Writer& entry(const std::string& key, const char* value) { return entry(key, std::string(value)); }
  Writer& entry(const std::string& key, uint32_t value) { return text(key).number<uint32_t>(4).number(value); }
  Writer& entry(const std::string& key, int64_t value) { return text(key).number<uint32_t>(11).number(value); }
  Writer& entry(const std::string& key, float value) { return text(key).number<uint32_t>(6).number(value); }
  Writer& entry(const std::string& key, const std::vector<std::string>& values) {
    text(key).number<uint32_t>(9).number<uint32_t>(8).number<uint64_t>(values.size());
    for (const auto& v : values) text(v);
    return *this;
  }
  Writer& tensor(const std::string& name, const std::vector<uint64_t>& dims, uint32_t type, uint64_t offset) {
    text(name).number(static_cast<uint32_t>(dims.size()));
    for (const uint64_t d : dims) number(d);
    return number(type).number(offset);
  }
  Writer& align(size_t to) {
    bytes_.resize((bytes_.size() + to - 1) / to * to);
    return *this;
  }
  Writer& raw(const std::string& bytes) {
    bytes_ += bytes;
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

kit::GgufFile parse(const std::string& bytes) {
  return kit::GgufFile({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()});
}
void expect_broken(const std::string& bytes, const std::string& word) {
  try {
    parse(bytes);
    ADD_FAILURE() << "was read, but should not: " << word;
  } catch (const Error& e) {
    EXPECT_EQ(e.code, TC_ERR_INTERNAL);
    EXPECT_NE(std::string(e.what()).find(word), std::string::npos) << e.what();
  }
}

std::string model() {
  Writer w;
  w.header(4, 14)
      .entry("general.architecture", "llama")
      .entry("llama.context_length", uint32_t{2048})
      .entry("llama.embedding_length", uint32_t{4})
      .entry("llama.feed_forward_length", int64_t{11})
      .entry("llama.block_count", uint32_t{2})
      .entry("llama.attention.head_count", uint32_t{2})
      .entry("llama.rope.dimension_count", uint32_t{2})
      .entry("llama.rope.freq_base", 500000.0f)
      .entry("llama.rope.scaling.type", "linear")
      .entry("llama.rope.scaling.factor", 8.0f)
      .entry("llama.attention.layer_norm_rms_epsilon", 1e-6f)
      .entry("tokenizer.ggml.tokens", std::vector<std::string>{"<s>", "a", "\xff"})
      .text("some.flag")
      .number<uint32_t>(7)
      .number<uint8_t>(1)
      .text("nested")
      .number<uint32_t>(9)
      .number<uint32_t>(9)
      .number<uint64_t>(1)
      .number<uint32_t>(5)
      .number<uint64_t>(2)
      .number<int32_t>(1)
      .number<int32_t>(2)
      .tensor("norm.weight", {4}, 0, 0)
      .tensor("embed", {4, 3}, 1, 32)
      .tensor("bf", {2, 1, 1, 3}, 30, 64)
      .tensor("quantized", {32}, 2, 96)
      .align(32)
      .number(1.0f)
      .number(2.0f)
      .number(3.0f)
      .number(4.0f)
      .align(32);
  for (int i = 0; i < 12; ++i) w.number(f16(static_cast<float>(i)));
  w.align(32);
  for (int i = 0; i < 6; ++i) w.number(bf16(static_cast<float>(-i)));
  return w.align(32).raw(std::string(18, '\1')).bytes();
}

class KitGguf : public Kit {
 protected:
  std::string write(const std::string& bytes) { return scratch_.write("model.gguf", bytes); }
  ScratchFolder scratch_;
};

TEST_F(KitGguf, ReadsMetadataAndTensors) {
  tc_gguf_file* f = nullptr;
  ASSERT_EQ(tc_gguf_open(write(model()).c_str(), &f), TC_OK) << tc_last_error();
  EXPECT_STREQ(tc_gguf_meta_get_str(f, "general.architecture"), "llama");
  EXPECT_EQ(tc_gguf_meta_get_str(f, "llama.block_count"), nullptr);
  EXPECT_EQ(tc_gguf_meta_get_str(f, "missing"), nullptr);
  EXPECT_EQ(tc_gguf_meta_get_i64(f, "llama.block_count", -1), 2);
  EXPECT_EQ(tc_gguf_meta_get_i64(f, "some.flag", -1), 1);
  EXPECT_EQ(tc_gguf_meta_get_i64(f, "general.architecture", -1), -1);
  EXPECT_EQ(tc_gguf_meta_get_f64(f, "llama.rope.freq_base", 0), 500000);
  EXPECT_EQ(tc_gguf_meta_get_f64(f, "llama.block_count", 0), 2);
  EXPECT_EQ(tc_gguf_meta_get_f64(f, "missing", 0.5), 0.5);
  EXPECT_EQ(tc_gguf_tensor_count(f), 4u);
  tc_gguf_tensor_info info{};
  ASSERT_EQ(tc_gguf_tensor_at(f, 1, &info), TC_OK);
  EXPECT_STREQ(info.name, "embed");
  EXPECT_EQ(info.n_dims, 2);
  EXPECT_EQ(info.dims[0], 4u);
  EXPECT_EQ(info.dims[1], 3u);
  EXPECT_EQ(info.type, TC_GGUF_TYPE_F16);
  EXPECT_EQ(info.n_bytes, 24u);
  EXPECT_EQ(static_cast<float>(static_cast<const f16*>(info.data)[11]), 11.0f);
  ASSERT_EQ(tc_gguf_get_tensor(f, "bf", &info), TC_OK);
  EXPECT_EQ(info.type, TC_GGUF_TYPE_BF16);
  EXPECT_EQ(info.n_bytes, 12u);
  ASSERT_EQ(tc_gguf_get_tensor(f, "quantized", &info), TC_OK);
  EXPECT_EQ(info.type, TC_GGUF_TYPE_UNSUPPORTED);
  EXPECT_EQ(info.data, nullptr);
  tc_buffer* b = nullptr;
  ASSERT_EQ(tc_gguf_tensor_to_buffer(ctx, f, "norm.weight", &b), TC_OK) << tc_last_error();
  EXPECT_EQ(tc_buffer_size(b), 16u);
  EXPECT_EQ(read<float>(b, 4), (std::vector<double>{1, 2, 3, 4}));
  expect_refused(TC_ERR_UNSUPPORTED_DTYPE, tc_gguf_tensor_to_buffer(ctx, f, "quantized", &b), "quantized");
  expect_refused(TC_ERR_INVALID_ARG, tc_gguf_tensor_to_buffer(ctx, f, "missing", &b), "no tensor missing");
  expect_refused(TC_ERR_NOT_INITIALIZED, tc_gguf_tensor_to_buffer(nullptr, f, "norm.weight", &b), "ctx");
  expect_refused(TC_ERR_INVALID_ARG, tc_gguf_get_tensor(f, "missing", &info), "missing");
  expect_refused(TC_ERR_INVALID_ARG, tc_gguf_get_tensor(f, nullptr, &info), "name");
  expect_refused(TC_ERR_INVALID_ARG, tc_gguf_tensor_at(f, 4, &info), "index is 4");
  expect_refused(TC_ERR_INVALID_ARG, tc_gguf_tensor_at(f, 0, nullptr), "info");
  EXPECT_EQ(tc_gguf_close(f), TC_OK);
  expect_refused(TC_ERR_INVALID_ARG, tc_gguf_close(f), "not an open file");
  expect_refused(TC_ERR_INVALID_ARG, tc_gguf_tensor_at(f, 0, &info), "not an open file");
  EXPECT_EQ(tc_gguf_tensor_count(f), 0u);
  EXPECT_EQ(tc_gguf_meta_get_str(f, "general.architecture"), nullptr);
  EXPECT_EQ(tc_gguf_meta_get_i64(nullptr, nullptr, 7), 7);
}

TEST_F(KitGguf, LlamaConfigOfAFile) {
  tc_gguf_file* f = nullptr;
  ASSERT_EQ(tc_gguf_open(write(model()).c_str(), &f), TC_OK) << tc_last_error();
  tc_gguf_llama_config c{};
  ASSERT_EQ(tc_gguf_get_llama_config(f, &c), TC_OK) << tc_last_error();
  EXPECT_EQ(c.context_length, 2048);
  EXPECT_EQ(c.embedding_length, 4);
  EXPECT_EQ(c.feed_forward_length, 11);
  EXPECT_EQ(c.block_count, 2);
  EXPECT_EQ(c.attention_head_count, 2);
  EXPECT_EQ(c.attention_head_count_kv, 2) << "as many as heads";
  EXPECT_EQ(c.rope_dimension_count, 2);
  EXPECT_EQ(c.vocab_size, 3) << "as many as tokens";
  EXPECT_EQ(c.rms_norm_epsilon, static_cast<double>(1e-6f));
  EXPECT_EQ(c.rope_freq_base, 500000);
  EXPECT_EQ(c.rope_freq_scale, 0.125);
  expect_refused(TC_ERR_INVALID_ARG, tc_gguf_get_llama_config(f, nullptr), "config");
  EXPECT_EQ(tc_gguf_close(f), TC_OK);
}

tc_gguf_llama_config config_of(const std::function<Writer&(Writer&)>& more, uint64_t entries) {
  Writer w;
  w.header(0, entries + 1).entry("general.architecture", "llama");
  return kit::llama_config(parse(more(w).bytes()));
}

TEST(KitGgufConfig, DefaultsAndScales) {
  const auto c = config_of([](Writer& w) -> Writer& { return w; }, 0);
  EXPECT_EQ(c.context_length + c.embedding_length + c.feed_forward_length + c.block_count + c.attention_head_count +
                c.attention_head_count_kv + c.rope_dimension_count + c.vocab_size,
            0);
  EXPECT_EQ(c.rms_norm_epsilon, 1e-5);
  EXPECT_EQ(c.rope_freq_base, 10000);
  EXPECT_EQ(c.rope_freq_scale, 1);
  const auto scale = [](const char* key, float value, const char* type) {
    return config_of([&](Writer& w) -> Writer& { return w.entry(key, value).entry("llama.rope.scaling.type", type); },
                     2)
        .rope_freq_scale;
  };
  EXPECT_EQ(scale("llama.rope.scaling.factor", 4, "yarn"), 0.25);
  EXPECT_EQ(scale("llama.rope.scaling.factor", 4, "none"), 1);
  EXPECT_EQ(scale("llama.rope.scale_linear", 2, "linear"), 0.5);
  EXPECT_EQ(scale("llama.rope.freq_scale", 0.75f, "linear"), 0.75);
  const auto vocab = config_of([](Writer& w) -> Writer& { return w.entry("llama.vocab_size", uint32_t{9}); }, 1);
  EXPECT_EQ(vocab.vocab_size, 9);
}

TEST(KitGgufConfig, NonsenseIsRefused) {
  const auto refused = [](tc_status_t code, const std::string& word, const std::function<Writer&(Writer&)>& more) {
    try {
      config_of(more, 1);
      ADD_FAILURE() << word;
    } catch (const Error& e) {
      EXPECT_EQ(e.code, code) << e.what();
      EXPECT_NE(std::string(e.what()).find(word), std::string::npos) << e.what();
    }
  };
  refused(TC_ERR_INTERNAL, "block_count",
          [](Writer& w) -> Writer& { return w.entry("llama.block_count", int64_t{-1}); });
  refused(TC_ERR_INTERNAL, "block_count", [](Writer& w) -> Writer& { return w.entry("llama.block_count", "two"); });
  refused(TC_ERR_INTERNAL, "context_length",
          [](Writer& w) -> Writer& { return w.text("llama.context_length").number<uint32_t>(10).number(UINT64_MAX); });
  refused(TC_ERR_INTERNAL, "freq_base", [](Writer& w) -> Writer& { return w.entry("llama.rope.freq_base", -1.0f); });
  refused(TC_ERR_INTERNAL, "factor", [](Writer& w) -> Writer& { return w.entry("llama.rope.scaling.factor", 0.0f); });
  Writer gpt;
  EXPECT_THROW(kit::llama_config(parse(gpt.header(0, 1).entry("general.architecture", "gpt2").bytes())), Error);
  Writer none;
  EXPECT_THROW(kit::llama_config(parse(none.header(0, 0).bytes())), Error);
}

TEST(KitGgufFormat, BrokenFilesAreRefused) {
  expect_broken("", "magic");
  expect_broken("GGUX" + std::string(20, '\0'), "no GGUF file");
  expect_broken(Writer().header(0, 0, 2).bytes(), "version 2");
  expect_broken(Writer().header(UINT64_MAX, 0).bytes(), "tensors");
  expect_broken(Writer().header(0, UINT64_MAX).bytes(), "metadata");
  expect_broken(Writer().header(0, 1).raw(std::string(8, '\xff')).raw("key").bytes(), "a key");
  expect_broken(Writer().header(0, 1).entry("n\xc3\xb6n", uint32_t{1}).bytes(), "printable");
  expect_broken(Writer().header(0, 1).entry("\xff\xfe", uint32_t{1}).bytes(), "printable");
  expect_broken(Writer().header(0, 1).entry("", uint32_t{1}).bytes(), "printable");
  expect_broken(Writer().header(0, 2).entry("a", uint32_t{1}).entry("a", uint32_t{1}).bytes(), "twice");
  expect_broken(Writer().header(0, 1).text("a").number<uint32_t>(13).number(uint64_t{0}).bytes(), "no type");
  expect_broken(Writer().header(0, 1).text("a").number<uint32_t>(7).number<uint8_t>(2).bytes(), "boolean");
  const auto array = [](uint32_t type, uint64_t count) {
    return Writer().header(0, 1).text("a").number<uint32_t>(9).number(type).number(count).raw("12345678").bytes();
  };
  expect_broken(array(4, 3), "an array");
  expect_broken(array(4, UINT64_MAX / 2), "elements of an array");
  expect_broken(array(8, 8), "a string");
  expect_broken(array(77, 1), "no type");
  Writer deep;
  deep.header(0, 1).text("a").number<uint32_t>(9);
  for (int i = 0; i < 100000; ++i) deep.number<uint32_t>(9).number<uint64_t>(1);
  expect_broken(deep.bytes(), "nested");
}

TEST(KitGgufFormat, BrokenTensorsAreRefused) {
  const auto one = [](const std::vector<uint64_t>& dims, uint64_t offset, uint32_t type = 0) {
    return Writer().header(1, 0).tensor("t", dims, type, offset).align(32).raw(std::string(64, '\0')).bytes();
  };
  EXPECT_EQ(parse(one({16}, 0)).tensors()[0].bytes, 64u);
  EXPECT_EQ(parse(one({8}, 32)).tensors()[0].bytes, 32u);
  EXPECT_EQ(parse(one({0, 7}, 0)).tensors()[0].bytes, 0u);
  expect_broken(one({17}, 0), "68 bytes from offset 0");
  expect_broken(one({9}, 32), "36 bytes from offset 32");
  expect_broken(one({1}, 16), "alignment");
  expect_broken(one({1}, UINT64_MAX - 31), "offset");
  expect_broken(one({1}, 96, 2), "offset");
  expect_broken(one({UINT64_MAX, 2}, 0), "64 bits");
  expect_broken(one({uint64_t{1} << 32, uint64_t{1} << 32}, 0), "64 bits");
  expect_broken(one({1, 1, 1, 1, 1}, 0), "5 dimensions");
  const auto two = [](uint64_t offset, const std::string& name) {
    return Writer()
        .header(2, 0)
        .tensor("t", {9}, 0, 0)
        .tensor(name, {1}, 0, offset)
        .align(32)
        .raw(std::string(96, '\0'))
        .bytes();
  };
  EXPECT_EQ(parse(two(64, "u")).tensors().size(), 2u);
  expect_broken(two(32, "u"), "overlap");
  expect_broken(two(64, "t"), "twice");
  expect_broken(two(64, ""), "empty");
  expect_broken(two(64, std::string("a\0b", 3)), "NUL");
  for (const uint32_t alignment : {0u, 1u, 4u, 24u, 0x80000001u})
    expect_broken(Writer().header(0, 1).entry("general.alignment", alignment).bytes(), "general.alignment");
  expect_broken(Writer().header(0, 1).entry("general.alignment", "32").bytes(), "general.alignment");
  const std::string wide = Writer()
                               .header(1, 1)
                               .entry("general.alignment", uint32_t{128})
                               .tensor("t", {1}, 0, 128)
                               .align(128)
                               .raw(std::string(132, '\0'))
                               .bytes();
  EXPECT_EQ(parse(wide).tensors()[0].bytes, 4u);
}

TEST(KitGgufFormat, NoTruncationOrFlippedByteCrashes) {
  const std::string good = model();
  for (size_t n = 0; n + 18 < good.size(); ++n) {
    std::string cut = good.substr(0, n);
    EXPECT_THROW(parse(cut), Error) << n;
  }
  for (size_t i = 0; i < good.size(); ++i)
    for (const int flip : {0x01, 0x80, 0xff}) {
      std::string bent = good;
      bent[i] = static_cast<char>(bent[i] ^ flip);
      try {
        kit::llama_config(parse(bent));
      } catch (const Error& e) {
        EXPECT_TRUE(e.code == TC_ERR_INTERNAL || e.code == TC_ERR_INVALID_ARG) << e.what();
      }
    }
}

TEST_F(KitGguf, FilesThatCannotBeReadAreRefused) {
  tc_gguf_file* f = nullptr;
  expect_refused(TC_ERR_INTERNAL, tc_gguf_open((scratch_ / "none").c_str(), &f), "cannot read");
  expect_refused(TC_ERR_INTERNAL, tc_gguf_open(scratch_.path().c_str(), &f), scratch_.path());
  expect_refused(TC_ERR_INTERNAL, tc_gguf_open(write("").c_str(), &f), "magic");
  expect_refused(TC_ERR_INTERNAL, tc_gguf_open(write(model().substr(0, 300)).c_str(), &f), "gguf");
  expect_refused(TC_ERR_INVALID_ARG, tc_gguf_open(nullptr, &f), "path");
  expect_refused(TC_ERR_INVALID_ARG, tc_gguf_open("x", nullptr), "file is NULL");
  EXPECT_EQ(f, nullptr);
}

}  // namespace
}  // namespace tc::testing
