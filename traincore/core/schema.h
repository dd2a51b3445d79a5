// One table describes a pass's arguments. Validation, defaults, the command line, Python, check, bench, explain and the
// documentation all read it, and nothing else describes them.
#pragma once
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "traincore/core/error.h"
#include "traincore/core/numeric.h"
#include "traincore/core/shape.h"

namespace tc::cuda {
struct DeviceInfo;
}

namespace tc {

enum class Role : uint8_t {
  in,       // tensor, read
  out,      // tensor, overwritten
  saved,    // tensor, written by forward for backward; may be absent in inference
  state,    // tensor, read and written (parameters, moments, a scaled gradient)
  number,   // double
  integer,  // int64_t
  flag,     // int32_t, 0 or 1
  choice,   // int32_t, one of named values
};

// Which dtypes a tensor may have. Full-size tensors are the rows that a call moves: `storage` fields of one call share
// one dtype, `mixed_storage` fields should on the fast path but need not. The others are independent.
struct DTypes {
  uint32_t mask = 0;
  bool shared = false;
  bool full_size = shared;
  constexpr bool has(int32_t d) const { return d >= 0 && d < 32 && (mask >> d & 1); }
};
constexpr DTypes dtypes(std::initializer_list<int32_t> list, bool shared = false) {
  DTypes d{.mask = 0, .shared = shared};
  for (const int32_t t : list) d.mask |= 1u << t;
  return d;
}
inline constexpr DTypes storage = dtypes({TC_DTYPE_F32, TC_DTYPE_BF16, TC_DTYPE_F16}, true);  // full-size tensors
inline constexpr DTypes mixed_storage{.mask = storage.mask, .full_size = true};
inline constexpr DTypes any_float = dtypes({TC_DTYPE_F32, TC_DTYPE_BF16, TC_DTYPE_F16});  // [cols] vectors, gradients
inline constexpr DTypes f32 = dtypes({TC_DTYPE_F32});
inline constexpr DTypes indices = dtypes({TC_DTYPE_I32, TC_DTYPE_I64});
inline constexpr DTypes i64 = dtypes({TC_DTYPE_I64});
inline constexpr DTypes booleans = dtypes({TC_DTYPE_BOOL, TC_DTYPE_U8});

struct Field {
  std::string_view name;
  Role role = Role::in;
  uint16_t offset = 0;
  uint16_t count_offset = 0;  // a list: where its int64_t count is; the field is then a const tc_tensor*
  bool is_optional = false;
  bool accumulates = false;  // an f32 parameter gradient, added to when the pass's `accumulate` flag is set
  bool any_stride = false;   // the last dimension need not be contiguous (one value per row)
  DTypes dtypes{};
  Shape shape{};
  std::string_view alias{};      // outputs: "a|b" names the inputs whose very memory this output may be
  std::string_view read_when{};  // outputs: the scalar that makes the old value count when it is not 0
  std::string_view choices{};    // choice: "none|sum|mean" are 0, 1, 2; a leading "?" is "0 = not set, refused"
  double default_value = 0;      // scalars
  std::string_view doc{};

  constexpr bool is_tensor() const { return role <= Role::state; }
  constexpr bool is_list() const { return count_offset != 0; }
  constexpr bool is_written() const { return role == Role::out || role == Role::saved || role == Role::state; }
  constexpr bool is_read() const { return role == Role::in || role == Role::state; }

  constexpr Field optional() const {
    Field f = *this;
    f.is_optional = true;
    return f;
  }
  constexpr Field may_be(std::string_view inputs) const {
    Field f = *this;
    f.alias = inputs;
    return f;
  }
  constexpr Field accumulated() const {
    Field f = *this;
    f.accumulates = true;
    return f.reads_when("accumulate");
  }
  constexpr Field reads_when(std::string_view scalar) const {
    Field f = *this;
    f.read_when = scalar;
    return f;
  }
  constexpr Field strided() const {
    Field f = *this;
    f.any_stride = true;
    return f;
  }
  constexpr Field help(std::string_view text) const {
    Field f = *this;
    f.doc = text;
    return f;
  }
  constexpr Field defaults(double value) const {
    Field f = *this;
    f.default_value = value;
    return f;
  }
};

constexpr Field tensor(Role role, std::string_view name, size_t offset, Shape shape, DTypes d) {
  Field f;
  f.name = name, f.role = role, f.offset = static_cast<uint16_t>(offset), f.shape = shape, f.dtypes = d;
  return f;
}
constexpr Field in(std::string_view name, size_t offset, Shape shape, DTypes d = storage) {
  return tensor(Role::in, name, offset, shape, d);
}
constexpr Field out(std::string_view name, size_t offset, Shape shape, DTypes d = storage) {
  return tensor(Role::out, name, offset, shape, d);
}
constexpr Field state(std::string_view name, size_t offset, Shape shape, DTypes d = storage) {
  return tensor(Role::state, name, offset, shape, d);
}
// One f32 per row, any strides, absent in inference.
constexpr Field saved(std::string_view name, size_t offset, Shape shape, DTypes d = f32) {
  return tensor(Role::saved, name, offset, shape, d).optional().strided();
}
// Many tensors: `const tc_tensor*` at offset, its int64_t count at count_offset. Element i of every list has one shape.
constexpr Field list(Field f, size_t count_offset) {
  f.count_offset = static_cast<uint16_t>(count_offset);
  return f;
}
constexpr Field scalar(Role role, std::string_view name, size_t offset, double default_value) {
  Field f;
  f.name = name, f.role = role, f.offset = static_cast<uint16_t>(offset), f.default_value = default_value;
  return f;
}
constexpr Field number(std::string_view name, size_t offset, double default_value = 0) {
  return scalar(Role::number, name, offset, default_value);
}
constexpr Field integer(std::string_view name, size_t offset, int64_t default_value = 0) {
  return scalar(Role::integer, name, offset, static_cast<double>(default_value));
}
constexpr Field flag(std::string_view name, size_t offset) { return scalar(Role::flag, name, offset, 0); }
constexpr Field choice(std::string_view name, size_t offset, std::string_view names) {
  Field f = scalar(Role::choice, name, offset, 0);
  f.choices = names;
  return f;
}

// What a pass can promise besides the defaults (tc_exec.determinism, tc_exec.precision); a bit per value.
enum Offers : uint32_t { kRunToRun = 1, kBatchInvariant = 2, kUnordered = 4, kStandard = 8, kStrict = 16, kFast = 32 };
// A row kernel on the CPU: fixed order, no approximate instruction; asked for less, it still gives this.
inline constexpr uint32_t kOffersAll = kRunToRun | kBatchInvariant | kUnordered | kStandard | kStrict | kFast;

// One exported call, e.g. tcx_rmsnorm_forward.
// How many values of functions a pass needs that take a processor many operations. erf counts as tanh.
struct Evaluations {
  double exp = 0, tanh = 0;
};

struct Pass {
  std::string_view name;     // "rmsnorm_forward"
  std::string_view formula;  // one line
  std::span<const Field> fields;
  size_t args_size = 0;
  uint32_t offers = kOffersAll;
  void (*check)(const void* args, const tc_exec& exec, const Dims& dims) = nullptr;  // what the schema cannot say
  size_t (*workspace)(const void* args, const tc_exec& exec) = nullptr;              // bytes on the CPU; none if NULL
  size_t (*cuda_workspace)(const void* args, const tc_exec& exec) = nullptr;         // bytes on a GPU; none if NULL
  void (*cpu)(const void* args, const tc_exec& exec) = nullptr;
  void (*cuda)(const void* args, const tc_exec& exec) = nullptr;
  double (*flops)(const void* args, const Dims& dims) = nullptr;             // for bench; none if NULL
  Evaluations (*evaluations)(const void* args, const Dims& dims) = nullptr;  // likewise
  double (*bytes)(const void* args, const Dims& dims) = nullptr;  // moved at least, if not every tensor just once
  std::string (*explain)(const void* args, const tc_exec& exec, const Dims& dims) = nullptr;  // which variant and why
  // The same on a GPU, which need not be here, and in a build without CUDA: one line, or the refusal of the launch.
  std::string (*cuda_explain)(const void* args, const tc_exec& exec, const cuda::DeviceInfo& device) = nullptr;
};

// Every pass of every folder in traincore/ops, grouped by folder in alphabetical order. For tools: no call looks here.
struct OpEntry {
  std::string_view name;
  std::span<const Pass> passes;
};
TC_TOOL_API std::span<const OpEntry> all_ops();

inline const tc_tensor& tensor_at(const void* args, const Field& f) {
  return *reinterpret_cast<const tc_tensor*>(static_cast<const std::byte*>(args) + f.offset);
}
struct TensorList {
  const tc_tensor* data;
  int64_t count;
};
inline TensorList list_at(const void* args, const Field& f) {
  const auto* base = static_cast<const std::byte*>(args);
  return {*reinterpret_cast<const tc_tensor* const*>(base + f.offset),
          *reinterpret_cast<const int64_t*>(base + f.count_offset)};
}
TC_TOOL_API double scalar_at(const void* args, const Field& f);
TC_TOOL_API void set_scalar(void* args, const Field& f, double value);
TC_TOOL_API size_t field_size(const Field& f);
// Name of value v of a choice field; empty if it has none.
TC_TOOL_API std::string_view choice_name(const Field& f, int64_t v);
// Fills the size and every scalar's default: what tcx_<pass>_args_default() gives.
TC_TOOL_API void set_defaults(const Pass& pass, void* args);

// Whether the condition of a shape, when(field=value), holds for these arguments; true if it has none.
TC_TOOL_API bool applies(const Pass& pass, const void* args, const ShapeAlternative& shape);

// Checks args against the schema and throws one sentence, or returns what the dimension names took. Writes nothing.
TC_TOOL_API Dims validate(const Pass& pass, const void* args);

// Where two tensors may overlap. Both answers are proofs: "no" is certain, "yes" means no proof was found.
bool may_overlap(const tc_tensor& a, const tc_tensor& b);
bool may_overlap_itself(const tc_tensor& t);
struct ByteRange {
  int64_t begin, end;  // addresses
};
ByteRange byte_range(const tc_tensor& t);                  // all that a tensor spans, gaps included; t is not empty
bool same_memory(const tc_tensor& a, const tc_tensor& b);  // same address, extents and strides

}  // namespace tc
