#include "traincore/testing/problem.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "traincore/core/fail.h"
#include "traincore/core/view.h"
#include "traincore/testing/values.h"

namespace tc::testing {
namespace {

constexpr int kPoison = 0xff;  // NaN in every float dtype, -1 in every integer one

std::byte* poisoned(size_t bytes) {
  void* p = ::operator new (bytes, std::align_val_t{64});
  return static_cast<std::byte*>(std::memset(p, kPoison, bytes));
}

std::byte* reserve(size_t bytes) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) fail(TC_ERR_ALLOC, "a tensor of {} bytes does not fit the address space", bytes);
  return static_cast<std::byte*>(p);
}

// No process can hold more: 47 bits of address space, less than half of it in one piece.
void refuse_unaddressable(std::string_view pass, std::string_view key, const std::vector<int64_t>& shape,
                          int64_t size) {
  constexpr int64_t kMost = int64_t{1} << 46;
  int64_t bytes = size;
  for (const int64_t extent : shape)
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(extent, 1), &bytes) || bytes > kMost)
      fail(TC_ERR_INVALID_SHAPE, "{}: {} has shape [{}], whose size in bytes passes 2^46, what a process can address",
           pass, key, fmt::join(shape, ", "));
}

}  // namespace

void GuardedBuffer::Free::operator()(std::byte* p) const {
  if (mapped)
    munmap(p, mapped);
  else
    ::operator delete (p, std::align_val_t{64});
}

GuardedBuffer::GuardedBuffer(size_t bytes, size_t offset, Memory memory)
    : size_(bytes + offset + 2 * kGuard),
      offset_(offset),
      bytes_(memory == Memory::reserved ? reserve(size_) : poisoned(size_),
             Free{memory == Memory::reserved ? size_ : 0}) {}
void GuardedBuffer::take_snapshot() { snapshot_.assign(bytes_.get(), bytes_.get() + size_); }
void GuardedBuffer::accept(const void* p, size_t size) {
  std::memcpy(snapshot_.data() + (static_cast<const std::byte*>(p) - bytes_.get()), p, size);
}
bool GuardedBuffer::unchanged() const { return std::memcmp(snapshot_.data(), bytes_.get(), size_) == 0; }

Problem::Problem(const Pass& pass, const Case& c, int32_t storage_dtype, Reals reals, Memory memory)
    : pass_(pass), case_(c), reals_(reals), memory_(memory), args_(new std::byte[pass.args_size]) {
  set_defaults(pass, args_.get());
  for (const Field& f : pass.fields)
    if (const auto found = c.scalars.find(f.name); !f.is_tensor() && found != c.scalars.end())
      set_scalar(args_.get(), f, found->second);
  for (const Field& f : pass.fields)  // whose shapes may depend on the scalars
    if (f.is_tensor() && (!f.is_optional || c.given.contains(f.name))) add_field(f, storage_dtype);
}

bool Problem::has(const Field& f) const {
  return std::any_of(tensors_.begin(), tensors_.end(), [&](const Tensor& t) { return t.field == &f; });
}

std::vector<int64_t> Problem::shape_of(const Field& f) const {
  const auto alternative = case_.alternatives.find(f.name);
  int chosen = alternative == case_.alternatives.end() ? 0 : alternative->second;
  if (alternative == case_.alternatives.end())
    while (chosen + 1 < f.shape.count() && !applies(pass_, args_.get(), f.shape[chosen])) ++chosen;
  const ShapeAlternative& s = f.shape[chosen];
  std::vector<int64_t> shape;
  for (int i = 0; i < s.count; ++i) {
    const Term& term = s.terms[i];
    if (term.name.empty()) {
      shape.push_back(term.add);
      continue;
    }
    const auto found = case_.dims.find(term.name);
    if (found == case_.dims.end())
      fail(TC_ERR_INTERNAL, "{}: the case does not say how large {} is", pass_.name, term.name);
    if (term.variadic)
      shape.insert(shape.end(), found->second.begin(), found->second.end());
    else
      shape.push_back(found->second.at(0) * term.multiply + term.add);
  }
  return shape;
}

int32_t Problem::dtype_of(const Field& f, const std::string& key, int32_t storage_dtype) const {
  int32_t d = f.dtypes.full_size ? storage_dtype : -1;
  auto found = case_.dtypes.find(key);
  if (found == case_.dtypes.end()) found = case_.dtypes.find(f.name);
  if (found != case_.dtypes.end()) d = found->second;
  if (d < 0 && f.dtypes.has(storage_dtype) && f.role == Role::in) d = storage_dtype;
  if (d < 0)
    d = f.dtypes.has(TC_DTYPE_F32) ? int32_t{TC_DTYPE_F32} : f.dtypes.has(TC_DTYPE_I64) ? int32_t{TC_DTYPE_I64} : -1;
  for (int32_t i = 0; d < 0; ++i)
    if (f.dtypes.has(i)) d = i;
  if (reals_ == Reals::storage || !is_float(d)) return d;
  return reals_ == Reals::f64 ? TC_DTYPE_F64 : TC_DTYPE_F32;
}

Problem::Tensor Problem::make(const Field& f, const std::string& key, const std::vector<int64_t>& shape, int32_t dtype,
                              Layout layout) {
  tc_tensor t = tc_tensor_dense(nullptr, dtype, static_cast<int32_t>(shape.size()), shape.data());
  const auto size = static_cast<int64_t>(tc_dtype_size(dtype));
  refuse_unaddressable(pass_.name, key, shape, size);
  int64_t pad = layout == Layout::padded_rows ? 13 : 0, stride = 1, first = layout == Layout::offset_by_one ? 1 : 0;
  for (int step = 0; step < t.rank; ++step) {
    const int i = layout == Layout::transposed ? step : t.rank - 1 - step;
    const bool inner = i == t.rank - 1;
    t.stride[i] = stride;
    stride = std::max<int64_t>(stride * t.shape[i], 1) + (inner ? pad : pad / 4);
    if (inner && t.rank > 1) continue;
    if (layout == Layout::expanded) t.stride[i] = 0;
    if (layout == Layout::reversed)
      first += std::max<int64_t>(t.shape[i] - 1, 0) * t.stride[i], t.stride[i] = -t.stride[i];
  }
  auto buffer = std::make_shared<GuardedBuffer>(static_cast<size_t>((stride + first) * size), 0, memory_);
  t.data = buffer->data() + first * size;
  return {&f, key, t, std::move(buffer)};
}

void Problem::add_field(const Field& f, int32_t storage_dtype) {
  const auto found = case_.layouts.find(f.name);
  const Layout layout = reals_ == Reals::storage && found != case_.layouts.end() ? found->second : Layout::dense;
  if (f.is_list()) {
    auto& views = *lists_.emplace_back(std::make_unique<std::vector<tc_tensor>>());
    for (size_t i = 0; i < case_.list_shapes.size(); ++i) {
      const std::string key = fmt::format("{}[{}]", f.name, i);
      tensors_.push_back(make(f, key, case_.list_shapes[i], dtype_of(f, key, storage_dtype), layout));
      views.push_back(tensors_.back().view);
    }
    const tc_tensor* data = views.data();
    const auto count = static_cast<int64_t>(views.size());
    std::memcpy(args_.get() + f.offset, &data, sizeof(void*));
    std::memcpy(args_.get() + f.count_offset, &count, sizeof count);
    return;
  }
  const std::string key(f.name);
  Tensor t = make(f, key, shape_of(f), dtype_of(f, key, storage_dtype), layout);
  if (const auto alias = case_.in_place.find(f.name); reals_ == Reals::storage && alias != case_.in_place.end())
    for (const Tensor& input : tensors_)
      if (input.field->name == alias->second) t.view = input.view, t.buffer = input.buffer;
  std::memcpy(args_.get() + f.offset, &t.view, sizeof t.view);
  tensors_.push_back(std::move(t));
}

void Problem::for_each(const std::function<void(const Field&, const std::string&, const tc_tensor&)>& visit) const {
  for (const Tensor& t : tensors_) visit(*t.field, t.key, t.view);
}

void Problem::for_each_buffer(const std::function<void(GuardedBuffer&)>& visit) const {
  std::set<const GuardedBuffer*> seen;
  for (const Tensor& t : tensors_)
    if (seen.insert(t.buffer.get()).second) visit(*t.buffer);
}

Moved Problem::moved(const std::function<tc_tensor(const tc_tensor&, const GuardedBuffer&)>& place) const {
  Moved m;
  m.args_.reset(new std::byte[pass_.args_size]);
  std::memcpy(m.args_.get(), args_.get(), pass_.args_size);
  m.lists_.reserve(pass_.fields.size());
  for (const Field& f : pass_.fields) {
    std::vector<tc_tensor> placed;
    for (const Tensor& t : tensors_)
      if (t.field == &f) placed.push_back(place(t.view, *t.buffer));
    if (placed.empty()) continue;
    if (!f.is_list()) {
      std::memcpy(m.args_.get() + f.offset, placed.data(), sizeof(tc_tensor));
      continue;
    }
    const tc_tensor* data = m.lists_.emplace_back(std::move(placed)).data();
    std::memcpy(m.args_.get() + f.offset, &data, sizeof(void*));
  }
  return m;
}

bool Problem::reads(const Field& f) const {
  if (f.is_read()) return true;
  const auto found = case_.scalars.find(f.read_when);
  return found != case_.scalars.end() && found->second != 0;
}

void Problem::write_inputs(const Values& values) {
  for (const Tensor& t : tensors_)
    if (reads(*t.field)) write_all(t.view, values.at(t.key));
}

Values Problem::outputs() const {
  Values v;
  for (const Tensor& t : tensors_)
    if (t.field->is_written()) v[t.key] = read_all(t.view);
  return v;
}

void Problem::take_snapshots() {
  for (Tensor& t : tensors_) t.buffer->take_snapshot();
}

bool Problem::unchanged() const {
  return std::all_of(tensors_.begin(), tensors_.end(), [](const Tensor& t) { return t.buffer->unchanged(); });
}

namespace {

void accept_elements(GuardedBuffer& buffer, const tc_tensor& t) {
  const size_t size = tc_dtype_size(t.dtype);
  for_each_row(t, [&](const std::byte* p, int64_t count, int64_t step) {
    if (step == static_cast<int64_t>(size)) return buffer.accept(p, static_cast<size_t>(count) * size);
    for (int64_t i = 0; i < count; ++i) buffer.accept(p + i * step, size);
  });
}

}  // namespace

std::string Problem::written_out_of_place() {
  for (Tensor& t : tensors_)
    if (t.field->is_written()) accept_elements(*t.buffer, t.view);
  for (Tensor& t : tensors_)
    if (!t.buffer->unchanged())
      return fmt::format("bytes of {}, or around it, were written that are not an output's", t.key);
  return {};
}

Fill fill_of(const Pass& pass, const Case& c, const Field& f, int32_t dtype) {
  if (const auto found = c.fills.find(f.name); found != c.fills.end()) return found->second;
  if (!is_float(dtype)) fail(TC_ERR_INTERNAL, "{}: the case gives no fill for {}", pass.name, f.name);
  return normal();
}

Case with_saved(const Case& c, const Pass& forward, const Problem& backward) {
  Case full = c;
  backward.for_each([&](const Field& f, const std::string&, const tc_tensor&) {
    for (const Field& made : forward.fields)
      if (made.name == f.name && made.is_tensor() && made.is_written() && backward.reads(f))
        full.given.insert(std::string(f.name));
  });
  return full;
}

Values random_inputs(const Pass& pass, const Case& c, int32_t storage_dtype, const Values& known) {
  const Problem shapes(pass, c, storage_dtype, Reals::storage, Memory::reserved);
  Values all;
  shapes.for_each([&](const Field& f, const std::string& key, const tc_tensor& t) {
    if (!shapes.reads(f)) return;
    std::vector<double>& list = all[key];
    if (const auto found = known.find(key); found != known.end()) {
      list = found->second;
      for (double& value : list) value = rounded(value, t.dtype);
      return;
    }
    Random random(name_hash(key));
    const Fill fill = fill_of(pass, c, f, t.dtype);
    const auto layout = c.layouts.find(f.name);
    const bool repeated = layout != c.layouts.end() && layout->second == Layout::expanded;
    list.resize(static_cast<size_t>(element_count(t)));
    const int64_t period = !repeated ? element_count(t) : t.rank > 1 ? t.shape[t.rank - 1] : 1;
    for (int64_t i = 0; i < element_count(t); ++i)
      list[static_cast<size_t>(i)] =
          i < period ? rounded(fill(c, random, i), t.dtype) : list[static_cast<size_t>(i % period)];
  });
  return all;
}

}  // namespace tc::testing
