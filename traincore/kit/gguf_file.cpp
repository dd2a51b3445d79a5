#include "traincore/kit/gguf_file.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>

#include "traincore/core/fail.h"

namespace tc::kit {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF files are little-endian");

// Value types, as numbered by the format.
enum class Type : uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };

class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> bytes) : bytes_(bytes) {}
  uint64_t at() const { return at_; }
  uint64_t left() const { return bytes_.size() - at_; }

  void skip(uint64_t count, uint64_t size, const char* what) {
    if (count > left() / size) refuse_end(what);
    at_ += count * size;
  }
  template <class T>
  T number(const char* what) {
    T value;
    const std::byte* const from = bytes_.data() + at_;
    skip(1, sizeof value, what);
    std::memcpy(&value, from, sizeof value);
    return value;
  }
  std::string_view text(const char* what) {
    const auto length = number<uint64_t>(what);
    const auto* const from = reinterpret_cast<const char*>(bytes_.data() + at_);
    skip(length, 1, what);
    return {from, length};
  }
  // How many things follow; each takes at least a byte.
  uint64_t count(const char* what) {
    const auto n = number<uint64_t>(what);
    if (n > left()) fail(TC_ERR_INTERNAL, "gguf: the file claims {} {}, but has only {} bytes left", n, what, left());
    return n;
  }

 private:
  [[noreturn]] void refuse_end(const char* what) const {
    fail(TC_ERR_INTERNAL, "gguf: the file ends inside {}, after byte {} of {}", what, at_, bytes_.size());
  }
  std::span<const std::byte> bytes_;
  uint64_t at_ = 0;
};

uint64_t size_of(Type type) {
  switch (type) {
    case Type::u8:
    case Type::i8:
    case Type::boolean:
      return 1;
    case Type::u16:
    case Type::i16:
      return 2;
    case Type::u32:
    case Type::i32:
    case Type::f32:
      return 4;
    case Type::u64:
    case Type::i64:
    case Type::f64:
      return 8;
    default:
      fail(TC_ERR_INTERNAL, "gguf: {} is no type of a value", static_cast<uint32_t>(type));
  }
}

// Elements are counted, not kept: of arrays the kit uses the tokenizer's length alone.
GgufArray skip_array(Cursor& cursor, int depth) {
  constexpr int kDeepest = 8;
  if (depth > kDeepest) fail(TC_ERR_INTERNAL, "gguf: arrays are nested more than {} deep", kDeepest);
  const auto type = Type{cursor.number<uint32_t>("the type of an array")};
  const uint64_t count = cursor.count("elements of an array");
  if (type == Type::string)
    for (uint64_t i = 0; i < count; ++i) cursor.text("a string of an array");
  else if (type == Type::array)
    for (uint64_t i = 0; i < count; ++i) skip_array(cursor, depth + 1);
  else
    cursor.skip(count, size_of(type), "an array");
  return {count};
}

bool read_bool(Cursor& cursor) {
  const auto value = cursor.number<uint8_t>("a value");
  if (value > 1) fail(TC_ERR_INTERNAL, "gguf: a boolean is {}, but must be 0 or 1", value);
  return value == 1;
}

GgufValue read_value(Cursor& cursor) {
  const auto type = Type{cursor.number<uint32_t>("the type of a value")};
  const char* const what = "a value";
  switch (type) {
    case Type::u8:
      return uint64_t{cursor.number<uint8_t>(what)};
    case Type::u16:
      return uint64_t{cursor.number<uint16_t>(what)};
    case Type::u32:
      return uint64_t{cursor.number<uint32_t>(what)};
    case Type::u64:
      return cursor.number<uint64_t>(what);
    case Type::i8:
      return int64_t{cursor.number<int8_t>(what)};
    case Type::i16:
      return int64_t{cursor.number<int16_t>(what)};
    case Type::i32:
      return int64_t{cursor.number<int32_t>(what)};
    case Type::i64:
      return cursor.number<int64_t>(what);
    case Type::f32:
      return double{cursor.number<float>(what)};
    case Type::f64:
      return cursor.number<double>(what);
    case Type::boolean:
      return read_bool(cursor);
    case Type::string:
      return std::string(cursor.text(what));
    case Type::array:
      return skip_array(cursor, 1);
  }
  fail(TC_ERR_INTERNAL, "gguf: {} is no type of a value", static_cast<uint32_t>(type));
}

// The format's rule: keys are printable ASCII.
std::string read_key(Cursor& cursor) {
  const std::string_view key = cursor.text("a key");
  const bool printable = std::all_of(key.begin(), key.end(), [](char c) { return c > ' ' && c <= '~'; });
  if (key.empty() || key.size() > 65535 || !printable)
    fail(TC_ERR_INTERNAL, "gguf: the key that ends at byte {} is not 1 to 65535 printable ASCII characters",
         cursor.at());
  return std::string(key);
}

tc_gguf_type_t type_of(uint32_t number) {
  for (const tc_gguf_type_t known : {TC_GGUF_TYPE_F32, TC_GGUF_TYPE_F16, TC_GGUF_TYPE_BF16})
    if (number == static_cast<uint32_t>(known)) return known;
  return TC_GGUF_TYPE_UNSUPPORTED;
}

GgufTensor read_tensor(Cursor& cursor) {
  GgufTensor t;
  t.name = cursor.text("a tensor's name");
  if (t.name.empty() || t.name.find('\0') != t.name.npos)
    fail(TC_ERR_INTERNAL, "gguf: the tensor name that ends at byte {} is empty or holds a NUL", cursor.at());
  const auto n_dims = cursor.number<uint32_t>("a tensor's dimensions");
  if (n_dims > 4) fail(TC_ERR_INTERNAL, "gguf: tensor {} has {} dimensions, but at most 4 are allowed", t.name, n_dims);
  t.n_dims = static_cast<int32_t>(n_dims);
  for (uint32_t i = 0; i < n_dims; ++i) t.dims[i] = cursor.number<uint64_t>("a tensor's dimensions");
  t.type = type_of(cursor.number<uint32_t>("a tensor's type"));
  t.offset = cursor.number<uint64_t>("a tensor's offset");
  if (t.type == TC_GGUF_TYPE_UNSUPPORTED) return t;
  t.bytes = t.type == TC_GGUF_TYPE_F32 ? 4 : 2;
  for (const uint64_t dim : t.dims)
    if (__builtin_mul_overflow(t.bytes, dim, &t.bytes))
      fail(TC_ERR_INTERNAL, "gguf: the size of tensor {} passes 64 bits", t.name);
  return t;
}

}  // namespace

GgufFile::GgufFile(std::span<const std::byte> bytes) {
  Cursor cursor(bytes);
  constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
  if (cursor.number<uint32_t>("the magic number") != kMagic)
    fail(TC_ERR_INTERNAL, "gguf: the file does not begin with GGUF, so it is no GGUF file");
  if (const auto version = cursor.number<uint32_t>("the version"); version != 3)
    fail(TC_ERR_INTERNAL, "gguf: the file has version {}, but 3 is what is read", version);
  const uint64_t tensors = cursor.count("tensors"), entries = cursor.count("metadata entries");
  for (uint64_t i = 0; i < entries; ++i) {
    std::string key = read_key(cursor);
    GgufValue value = read_value(cursor);
    if (!metadata_.emplace(key, std::move(value)).second) fail(TC_ERR_INTERNAL, "gguf: the key {} is there twice", key);
  }
  for (uint64_t i = 0; i < tensors; ++i) {
    tensors_.push_back(read_tensor(cursor));
    if (!by_name_.emplace(tensors_.back().name, i).second)
      fail(TC_ERR_INTERNAL, "gguf: tensor {} is there twice", tensors_.back().name);
  }
  uint64_t alignment = 32;
  if (const GgufValue* given = value("general.alignment")) {
    const auto* const number = std::get_if<uint64_t>(given);
    if (!number || *number < 8 || *number > UINT32_MAX || !std::has_single_bit(*number))
      fail(TC_ERR_INTERNAL, "gguf: general.alignment must be a power of two, 8 or more, as an unsigned integer");
    alignment = *number;
  }
  const uint64_t start = (cursor.at() + alignment - 1) / alignment * alignment;
  place_tensors(bytes.subspan(std::min<uint64_t>(start, bytes.size())), alignment);
  refuse_overlaps();
}

void GgufFile::place_tensors(std::span<const std::byte> data, uint64_t alignment) {
  for (GgufTensor& t : tensors_) {
    if (t.offset % alignment)
      fail(TC_ERR_INTERNAL, "gguf: tensor {} has offset {}, which is no multiple of the alignment, {}", t.name,
           t.offset, alignment);
    if (t.offset > data.size() || t.bytes > data.size() - t.offset)
      fail(TC_ERR_INTERNAL, "gguf: tensor {} has {} bytes from offset {} on, but the file has {} bytes of data", t.name,
           t.bytes, t.offset, data.size());
    if (t.type != TC_GGUF_TYPE_UNSUPPORTED) t.data = data.data() + t.offset;
  }
}

void GgufFile::refuse_overlaps() const {
  std::vector<const GgufTensor*> sorted;
  for (const GgufTensor& t : tensors_)
    if (t.bytes) sorted.push_back(&t);
  std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < sorted.size(); ++i)
    if (sorted[i]->offset < sorted[i - 1]->offset + sorted[i - 1]->bytes)
      fail(TC_ERR_INTERNAL, "gguf: tensors {} and {} overlap", sorted[i - 1]->name, sorted[i]->name);
}

const GgufTensor* GgufFile::tensor(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

const GgufValue* GgufFile::value(const std::string& key) const {
  const auto found = metadata_.find(key);
  return found == metadata_.end() ? nullptr : &found->second;
}

}  // namespace tc::kit
