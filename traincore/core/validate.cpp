// Holds a call's arguments against its schema. Nothing is written before this has passed.
#include <algorithm>
#include <cmath>
#include <vector>

#include "traincore/core/fail.h"
#include "traincore/core/schema.h"
#include "traincore/core/view.h"

namespace tc {
namespace {

std::string dtype_names(DTypes d) {
  std::string names;
  for (int i = 0; i < 32; ++i)
    if (d.has(i)) names.append(names.empty() ? "" : ", ").append(tc_dtype_name(i));
  return names;
}

std::string shape_text(const tc_tensor& t) {
  std::string text = "[";
  for (int i = 0; i < t.rank; ++i) text.append(i ? ", " : "").append(std::to_string(t.shape[i]));
  return text + "]";
}

// The state of one validation: what names took which extents, and what the first tensors fixed for the rest.
class Validator {
 public:
  Validator(const Pass& pass, const void* args) : pass_(pass), args_(args) {}

  Dims run() {
    for (const Field& f : pass_.fields)
      if (!f.is_tensor()) check_scalar(f);
    for (const Field& f : pass_.fields)
      if (f.is_tensor() && !f.is_list()) check_field(f);
    for (const Field& f : pass_.fields)
      if (f.is_tensor() && f.is_written() && !f.is_list()) check_overlap(f);
    if (std::any_of(pass_.fields.begin(), pass_.fields.end(), [](const Field& f) { return f.is_list(); }))
      check_lists();
    return dims_;
  }

 private:
  template <class... A>
  [[noreturn]] void refuse(tc_status_t code, const Field& f, fmt::format_string<A...> format, A&&... a) const {
    const std::string element = list_index_ < 0 ? "" : fmt::format("[{}]", list_index_);
    fail(code, "{}: {}{} {}", pass_.name, f.name, element, fmt::format(format, std::forward<A>(a)...));
  }

  void check_scalar(const Field& f) {
    const double v = scalar_at(args_, f);
    if (f.name == "accumulate") accumulate_ = v != 0;
    if (f.role == Role::number && !std::isfinite(v)) refuse(TC_ERR_INVALID_ARG, f, "is {}, but must be finite", v);
    if (f.role == Role::flag && v != 0 && v != 1) refuse(TC_ERR_INVALID_ARG, f, "is {}, but must be 0 or 1", v);
    if (f.role == Role::choice && choice_name(f, static_cast<int64_t>(v)).empty()) {
      const bool unset = v == 0;
      refuse(TC_ERR_INVALID_ARG, f, "{} one of {}",
             unset ? std::string("is not set; choose") : fmt::format("is {}, but must be", v),
             f.choices.substr(f.choices[0] == '?' ? 2 : 0));
    }
  }

  void check_field(const Field& f) {
    const tc_tensor& t = tensor_at(args_, f);
    if (!given(t)) {
      if (!f.is_optional) refuse(TC_ERR_INVALID_ARG, f, "is missing; pass a tensor [{}]", f.shape.text());
      return;
    }
    check_tensor(f, t);
    bind_shape(f, t, dims_);
  }

  // Everything that can be said of a tensor without its shape's names.
  void check_tensor(const Field& f, const tc_tensor& t) {
    if (t.rank < 0 || t.rank > TC_MAX_RANK)
      refuse(TC_ERR_INVALID_SHAPE, f, "has rank {}, but a tensor has 0 to {} dimensions", t.rank, int{TC_MAX_RANK});
    if (!f.dtypes.has(t.dtype))
      refuse(TC_ERR_UNSUPPORTED_DTYPE, f, "has dtype {} ({}), expected {}", tc_dtype_name(t.dtype), t.dtype,
             dtype_names(f.dtypes));
    if (t.device != TC_CPU && t.device != TC_CUDA)
      refuse(TC_ERR_INVALID_ARG, f, "has device {}, expected {} (CPU) or {} (CUDA)", t.device, int{TC_CPU},
             int{TC_CUDA});
    check_extents(f, t);
    if (!first_) {
      first_ = &t;
      first_field_ = &f;
    }
    if (t.device != first_->device || t.device_index != first_->device_index)
      refuse(TC_ERR_INVALID_ARG, f, "is on another device than {}", first_field_->name);
    if (f.dtypes.shared && !storage_) {
      storage_ = &t;
      storage_field_ = &f;
    }
    if (f.dtypes.shared && t.dtype != storage_->dtype)
      refuse(TC_ERR_UNSUPPORTED_DTYPE, f,
             "has dtype {}, but {} has {}; the full-size tensors of a call share one dtype", tc_dtype_name(t.dtype),
             storage_field_->name, tc_dtype_name(storage_->dtype));
    if (f.accumulates && accumulate_ && t.dtype != TC_DTYPE_F32)
      refuse(TC_ERR_UNSUPPORTED_DTYPE, f, "has dtype {}, but accumulate adds to f32 gradients only",
             tc_dtype_name(t.dtype));
  }

  void check_extents(const Field& f, const tc_tensor& t) const {
    const auto size = static_cast<int64_t>(tc_dtype_size(t.dtype));
    constexpr int64_t kLargest = int64_t{1} << 62;  // an address plus this still fits
    int64_t count = size, span = size, step = 0;
    bool overflow = false, empty = false;
    for (int i = 0; i < t.rank; ++i) {
      if (t.shape[i] < 0) refuse(TC_ERR_INVALID_SHAPE, f, "has a negative extent: {}", shape_text(t));
      empty |= t.shape[i] == 0;
      overflow |= __builtin_mul_overflow(count, std::max<int64_t>(t.shape[i], 1), &count);
      if (t.shape[i] <= 1) continue;
      overflow |= t.stride[i] == INT64_MIN || __builtin_mul_overflow(std::abs(t.stride[i]), size, &step);
      overflow |= __builtin_mul_overflow(step, t.shape[i] - 1, &step) || __builtin_add_overflow(span, step, &span);
    }
    if (overflow || count > kLargest || span > kLargest)
      refuse(TC_ERR_INVALID_SHAPE, f, "has shape {}, whose size in bytes passes 2^62", shape_text(t));
    if (!t.data && !empty) refuse(TC_ERR_INVALID_ARG, f, "has NULL data, but shape {} is not empty", shape_text(t));
    if (reinterpret_cast<uintptr_t>(t.data) % static_cast<uintptr_t>(size))
      refuse(TC_ERR_INVALID_ARG, f, "is not aligned to its element size of {} bytes", size);
  }

  void bind_shape(const Field& f, const tc_tensor& t, Dims& dims) const {
    for (int i = 0; i < f.shape.count(); ++i)
      if (f.shape[i].fits(t.rank) && applies(pass_, args_, f.shape[i])) return bind_terms(f, t, f.shape[i], dims);
    refuse(TC_ERR_INVALID_SHAPE, f, "has rank {} (shape {}), expected [{}]", t.rank, shape_text(t), f.shape.text());
  }

  void bind_terms(const Field& f, const tc_tensor& t, const ShapeAlternative& shape, Dims& dims) const {
    int axis = 0;
    for (int i = 0; i < shape.count; ++i) {
      const Term& term = shape.terms[i];
      if (term.variadic) {
        const int leading = t.rank - (shape.count - 1);
        bind(f, t, term, -1, leading, dims);
        for (; axis < leading; ++axis) bind(f, t, term, axis, t.shape[axis], dims);
      } else {
        bind(f, t, term, 0, t.shape[axis++], dims);
      }
    }
    const bool row = shape.count && !shape.terms[shape.count - 1].variadic && !f.any_stride;
    if (row && t.shape[t.rank - 1] > 1 && t.stride[t.rank - 1] != 1)
      refuse(TC_ERR_INVALID_ARG, f, "has stride {} in its last dimension, but that must be contiguous (stride 1)",
             t.stride[t.rank - 1]);
  }

  void bind(const Field& f, const tc_tensor& t, const Term& term, int part, int64_t extent, Dims& dims) const {
    if (term.name.empty()) {
      if (extent != term.add)
        refuse(TC_ERR_INVALID_SHAPE, f, "has an extent of {} where {} is expected: shape {} is not [{}]", extent,
               term.add, shape_text(t), f.shape.text());
      return;
    }
    const int64_t rest = part < 0 ? extent : extent - term.add;
    if (rest % term.multiply || rest < 0)
      refuse(TC_ERR_INVALID_SHAPE, f, "has shape {}, expected [{}]: {} is not {} * {} + {}", shape_text(t),
             f.shape.text(), extent, term.multiply, term.name, term.add);
    const int64_t value = rest / term.multiply;
    if (const auto* seen = dims.find(term.hash, part)) {
      if (seen->value == value) return;
      const std::string what = part < 0 ? fmt::format("{} dimensions", term.name) : std::string(term.name);
      refuse(TC_ERR_INVALID_SHAPE, f, "has {} = {}, but {} = {} elsewhere (shape {}, expected [{}])", what, value, what,
             seen->value, shape_text(t), f.shape.text());
    }
    if (dims.full()) fail(TC_ERR_INTERNAL, "{}: the schema names too many dimensions", pass_.name);
    dims.bind({term.name, term.hash, part, value});
  }

  static bool alias_allows(std::string_view allowed, std::string_view name) {
    while (!allowed.empty()) {
      const auto bar = allowed.find('|');
      if (allowed.substr(0, bar) == name) return true;
      allowed = bar == allowed.npos ? std::string_view{} : allowed.substr(bar + 1);
    }
    return false;
  }

  void refuse_self_overlap(const Field& f, const tc_tensor& t) const {
    if (may_overlap_itself(t))
      refuse(TC_ERR_INVALID_ARG, f, "is an output that overlaps itself (shape {}): two of its elements share memory",
             shape_text(t));
  }

  void check_overlap(const Field& written) const {
    const tc_tensor& w = tensor_at(args_, written);
    if (!given(w)) return;
    refuse_self_overlap(written, w);
    for (const Field& f : pass_.fields) {
      if (!f.is_tensor() || f.is_list() || &f == &written) continue;
      const tc_tensor& t = tensor_at(args_, f);
      if (!given(t) || !may_overlap(w, t)) continue;
      if (alias_allows(written.alias, f.name) || alias_allows(f.alias, written.name)) {
        if (same_memory(w, t)) continue;
        refuse(TC_ERR_INVALID_ARG, written, "overlaps {} in part; it may be exactly {} or apart from it", f.name,
               f.name);
      }
      refuse(TC_ERR_INVALID_ARG, written, "overlaps {}; they must be apart", f.name);
    }
  }

  struct Range {
    ByteRange bytes;
    const Field* field;
    int64_t index;  // in its list; -1: no list
    std::string name() const {
      return index < 0 ? std::string(field->name) : fmt::format("{}[{}]", field->name, index);
    }
  };

  struct List {
    const Field* field;
    const tc_tensor* data;
  };

  void check_lists() {
    int64_t count = -1;
    std::vector<List> lists;
    std::vector<Range> ranges;
    for (const Field& f : pass_.fields) {
      if (!f.is_tensor()) continue;
      if (!f.is_list()) {
        add_range(ranges, f, tensor_at(args_, f), -1);
        continue;
      }
      const TensorList list = list_at(args_, f);
      if (!list.data && list.count == 0 && f.is_optional) continue;
      if (list.count < 0) refuse(TC_ERR_INVALID_ARG, f, "has a negative count: {}", list.count);
      if (!list.data && list.count) refuse(TC_ERR_INVALID_ARG, f, "is NULL, but its count is {}", list.count);
      if (count < 0) count = list.count;
      if (list.count != count)
        refuse(TC_ERR_INVALID_SHAPE, f, "has {} tensors, but {} has {}", list.count, lists[0].field->name, count);
      lists.push_back({&f, list.data});
    }
    constexpr int64_t kTrusted = 8192;  // a count may be wrong, and its tensors say so only one by one
    ranges.reserve(ranges.size() + lists.size() * static_cast<size_t>(std::clamp<int64_t>(count, 0, kTrusted)));
    Dims dims;  // of one element of every list
    for (list_index_ = 0; list_index_ < count; ++list_index_) {
      dims.clear();
      for (const List& list : lists) check_element(*list.field, list.data[list_index_], dims, ranges);
    }
    list_index_ = -1;
    check_ranges(ranges);
  }

  // One tensor of a list: as any other, and dense.
  void check_element(const Field& f, const tc_tensor& t, Dims& dims, std::vector<Range>& ranges) {
    if (!given(t)) refuse(TC_ERR_INVALID_ARG, f, "is missing");
    check_tensor(f, t);
    bind_shape(f, t, dims);
    if (!is_dense(t) && element_count(t) > 0)
      refuse(TC_ERR_INVALID_ARG, f, "must be dense in memory, got strides that are not row-major for shape {}",
             shape_text(t));
    add_range(ranges, f, t, list_index_);
  }

  static void add_range(std::vector<Range>& ranges, const Field& f, const tc_tensor& t, int64_t index) {
    if (given(t) && element_count(t) > 0) ranges.push_back({byte_range(t), &f, index});
  }

  // Sorted by address, a range overlaps an earlier one exactly if it begins before the furthest end seen so far. Two
  // tensors outside lists were held against each other before. The addresses of a list mostly ascend, and a stable sort
  // merges such runs quickly.
  void check_ranges(std::vector<Range>& ranges) const {
    std::stable_sort(ranges.begin(), ranges.end(),
                     [](const Range& a, const Range& b) { return a.bytes.begin < b.bytes.begin; });
    const Range* furthest[2][2] = {};  // [in a list][written]
    for (const Range& r : ranges) {
      const bool listed = r.index >= 0, written = r.field->is_written();
      for (int l = listed ? 0 : 1; l < 2; ++l)
        for (int w = written ? 0 : 1; w < 2; ++w)
          if (const Range* hit = furthest[l][w]; hit && r.bytes.begin < hit->bytes.end)
            fail(TC_ERR_INVALID_ARG, "{}: {} overlaps {}; they must be apart", pass_.name, r.name(), hit->name());
      const Range*& mine = furthest[listed][written];
      if (!mine || r.bytes.end > mine->bytes.end) mine = &r;
    }
  }

  const Pass& pass_;
  const void* args_;
  Dims dims_;
  const tc_tensor* first_ = nullptr;
  const Field* first_field_ = nullptr;
  const tc_tensor* storage_ = nullptr;
  const Field* storage_field_ = nullptr;
  int64_t list_index_ = -1;
  bool accumulate_ = false;
};

}  // namespace

bool applies(const Pass& pass, const void* args, const ShapeAlternative& shape) {
  if (shape.when_field.empty()) return true;
  for (const Field& f : pass.fields)
    if (f.name == shape.when_field) return scalar_at(args, f) == shape.when_value;
  return false;
}

Dims validate(const Pass& pass, const void* args) { return Validator(pass, args).run(); }

}  // namespace tc
