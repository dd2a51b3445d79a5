#include "traincore/train/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "traincore/core/fail.h"
#include "traincore/core/view.h"

namespace tc::train {
namespace {

using nlohmann::json;
static_assert(std::endian::native == std::endian::little, "the format is little-endian, and so are the views into it");

constexpr int64_t kPrefix = 8;                   // the header's length
constexpr int64_t kLongestHeader = 100'000'000;  // the format's own limit
constexpr std::string_view kMetadata = "__metadata__";

struct DTypeName {
  std::string_view name;
  int32_t dtype;
};
constexpr DTypeName kDTypes[] = {{"F64", TC_DTYPE_F64},   {"F32", TC_DTYPE_F32}, {"F16", TC_DTYPE_F16},
                                 {"BF16", TC_DTYPE_BF16}, {"I64", TC_DTYPE_I64}, {"I32", TC_DTYPE_I32},
                                 {"I16", TC_DTYPE_I16},   {"I8", TC_DTYPE_I8},   {"U8", TC_DTYPE_U8},
                                 {"BOOL", TC_DTYPE_BOOL}};

// What one entry of the header says; `begin` and `end` count from the first byte after the header.
struct Entry {
  std::string name;
  int32_t dtype;
  std::vector<int64_t> shape;
  int64_t begin, end;
};

// Parses, refusing a key that an object holds twice (the JSON library would keep the last one).
json parse_header(const std::string& path, std::string_view text) {
  std::vector<std::set<std::string>> keys;
  const auto refuse_duplicates = [&](int, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key)
      require(keys.back().insert(parsed.get<std::string>()).second, "{}: the header holds the name \"{}\" twice", path,
              parsed.get<std::string>());
    return true;
  };
  try {
    json header = json::parse(text, refuse_duplicates);
    require(header.is_object(), "{}: the header is not a JSON object", path);
    return header;
  } catch (const json::exception& e) {
    fail(TC_ERR_INVALID_ARG, "{}: the header is not valid JSON: {}", path, reason_of(e));
  }
}

json read_header(const MappedFile& file, int64_t& data_begin) {
  require(file.size() >= kPrefix, "{}: {} bytes are too few for a safetensors file; it was cut short", file.path(),
          file.size());
  uint64_t length;
  std::memcpy(&length, file.data(), sizeof length);
  require(length >= 2 && length <= kLongestHeader,
          "{}: a header of {} bytes is not plausible (2 to {}); this is no safetensors file", file.path(), length,
          kLongestHeader);
  data_begin = kPrefix + static_cast<int64_t>(length);
  require(data_begin <= file.size(),
          "{}: the header should have {} bytes, but the file ends after {}; it was cut short", file.path(), length,
          file.size() - kPrefix);
  return parse_header(file.path(), {reinterpret_cast<const char*>(file.data()) + kPrefix, static_cast<size_t>(length)});
}

int32_t dtype_named(const std::string& path, const std::string& tensor, const json& name) {
  for (const DTypeName& known : kDTypes)
    if (name.is_string() && name.get_ref<const std::string&>() == known.name) return known.dtype;
  fail(TC_ERR_UNSUPPORTED_DTYPE,
       "{}: tensor {} has dtype {}, which is not supported (F64, F32, F16, BF16, I64, I32, I16, I8, U8, BOOL are)",
       path, tensor, name.dump());
}

// A list of whole numbers from 0 up to 2^63 - 1.
std::vector<int64_t> whole_numbers(const std::string& path, const std::string& tensor, const json& entry,
                                   const char* key) {
  const auto list = entry.find(key);
  require(list != entry.end() && list->is_array(), "{}: tensor {} has no list \"{}\"", path, tensor, key);
  std::vector<int64_t> numbers;
  for (const json& number : *list) {
    require(number.is_number_unsigned() && number.get<uint64_t>() <= INT64_MAX,
            "{}: tensor {}: {} in \"{}\" is not a size", path, tensor, number.dump(), key);
    numbers.push_back(number.get<int64_t>());
  }
  return numbers;
}

int64_t bytes_of(const std::string& path, const Entry& entry) {
  int64_t bytes = static_cast<int64_t>(tc_dtype_size(entry.dtype));
  bool overflow = false;
  for (const int64_t extent : entry.shape) overflow |= __builtin_mul_overflow(bytes, extent, &bytes);
  require(!overflow, "{}: tensor {} is larger than 2^63 bytes", path, entry.name);
  return bytes;
}

Entry read_entry(const std::string& path, const std::string& name, const json& value) {
  require(value.is_object() && value.contains("dtype"), "{}: tensor {} has no \"dtype\"", path, name);
  const std::vector<int64_t> offsets = whole_numbers(path, name, value, "data_offsets");
  require(offsets.size() == 2, "{}: tensor {} has {} data_offsets instead of a begin and an end", path, name,
          offsets.size());
  Entry entry{name, dtype_named(path, name, value.at("dtype")), whole_numbers(path, name, value, "shape"), offsets[0],
              offsets[1]};
  require(entry.shape.size() <= TC_MAX_RANK, "{}: tensor {} has {} dimensions; at most {} are supported", path, name,
          entry.shape.size(), int(TC_MAX_RANK));
  require(entry.begin <= entry.end, "{}: tensor {} begins at {} and ends before, at {}", path, name, entry.begin,
          entry.end);
  const int64_t bytes = bytes_of(path, entry);
  require(entry.end - entry.begin == bytes, "{}: tensor {} has {} bytes of data, but its dtype and shape need {}", path,
          name, entry.end - entry.begin, bytes);
  return entry;
}

// The data must be the tensors one after the other and nothing else.
void check_layout(const std::string& path, std::vector<Entry> entries, int64_t data_bytes) {
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  int64_t at = 0;
  for (const Entry& entry : entries) {
    require(entry.end <= data_bytes,
            "{}: tensor {} ends at byte {} of the data, but the file holds {}; it was cut short", path, entry.name,
            entry.end, data_bytes);
    require(entry.begin >= at, "{}: tensor {} overlaps another one", path, entry.name);
    require(entry.begin == at, "{}: {} bytes before tensor {} belong to no tensor", path, entry.begin - at, entry.name);
    at = entry.end;
  }
  require(at == data_bytes, "{}: the last {} bytes belong to no tensor", path, data_bytes - at);
}

Metadata read_metadata(const std::string& path, const json& value) {
  require(value.is_object(), "{}: {} is not a JSON object", path, kMetadata);
  Metadata metadata;
  for (const auto& [key, text] : value.items()) {
    require(text.is_string(), "{}: {} of {} is not a string", path, key, kMetadata);
    metadata[key] = text.get<std::string>();
  }
  return metadata;
}

const char* format_name(int32_t dtype) {
  for (const DTypeName& known : kDTypes)
    if (known.dtype == dtype) return known.name.data();
  fail(TC_ERR_UNSUPPORTED_DTYPE, "write_safetensors: dtype {} is not one of the format", dtype);
}

int64_t dense_bytes(const std::string& name, const tc_tensor& tensor) {
  const tc_tensor dense = tc_tensor_dense(tensor.data, tensor.dtype, tensor.rank, tensor.shape);
  require(tensor.device == TC_CPU, "write_safetensors: tensor {} is not in CPU memory", name);
  for (int i = 0; i < tensor.rank; ++i)
    require(tensor.shape[i] <= 1 || tensor.stride[i] == dense.stride[i], "write_safetensors: tensor {} is not dense",
            name);
  return element_count(tensor) * static_cast<int64_t>(tc_dtype_size(tensor.dtype));
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path) : file_(path) {
  int64_t data_begin = 0;
  const json header = read_header(file_, data_begin);
  std::vector<Entry> entries;
  for (const auto& [name, value] : header.items()) {
    if (name == kMetadata)
      metadata_ = read_metadata(path, value);
    else
      entries.push_back(read_entry(path, name, value));
  }
  check_layout(path, entries, file_.size() - data_begin);
  for (const Entry& entry : entries) {
    const std::byte* data = file_.data() + data_begin + entry.begin;
    if (reinterpret_cast<uintptr_t>(data) % tc_dtype_size(entry.dtype) != 0)
      data = aligned_.emplace_back(data, data + (entry.end - entry.begin)).data();
    tensors_.push_back({entry.name, tc_tensor_dense(const_cast<std::byte*>(data), entry.dtype,
                                                    static_cast<int32_t>(entry.shape.size()), entry.shape.data())});
  }
}

const tc_tensor* SafetensorsFile::find(std::string_view name) const {
  const auto at = std::lower_bound(tensors_.begin(), tensors_.end(), name,
                                   [](const NamedTensor& t, std::string_view wanted) { return t.name < wanted; });
  return at != tensors_.end() && at->name == name ? &at->tensor : nullptr;
}

void write_safetensors(OutputFile& file, std::span<const NamedTensor> tensors, const Metadata& metadata) {
  std::vector<const NamedTensor*> order;
  for (const NamedTensor& t : tensors) order.push_back(&t);
  std::stable_sort(order.begin(), order.end(), [](const NamedTensor* a, const NamedTensor* b) {
    return tc_dtype_size(a->tensor.dtype) > tc_dtype_size(b->tensor.dtype);
  });
  json header = json::object();
  if (!metadata.empty()) header[std::string(kMetadata)] = metadata;
  int64_t at = 0;
  for (const NamedTensor* t : order) {
    require(!header.contains(t->name), "write_safetensors: the name {} is given twice", t->name);
    const int64_t begin = at;
    at += dense_bytes(t->name, t->tensor);
    const std::vector<int64_t> shape(t->tensor.shape, t->tensor.shape + t->tensor.rank);
    header[t->name] = {{"dtype", format_name(t->tensor.dtype)}, {"shape", shape}, {"data_offsets", {begin, at}}};
  }
  std::string text = header.dump();
  text.append((kPrefix - text.size() % kPrefix) % kPrefix, ' ');
  const uint64_t length = text.size();
  file.write(&length, sizeof length);
  file.write(text);
  for (const NamedTensor* t : order) file.write(t->tensor.data, dense_bytes(t->name, t->tensor));
}

}  // namespace tc::train
