// Bad arguments, made from the schema: each is refused with the right status and a sentence that names pass and
// argument, and not one byte changes.
#include <algorithm>
#include <cstring>

#include "traincore/core/fail.h"
#include "traincore/core/op.h"
#include "traincore/testing/check.h"

namespace tc::testing {
namespace {

constexpr int32_t kNoDtype = 77;

// A valid call, and one way at a time to spoil it.
class Refusals {
 public:
  Refusals(const OpCases& op, const PassCases& cases, const Case& c, const Report& report)
      : op_(op),
        pass_(find_pass(op.name, cases.pass)),
        case_(c),
        report_(report),
        inputs_(inputs_of(op, cases, c, TC_DTYPE_F32)) {}

  void run() {
    for (const Field& f : pass_.fields) {
      if (f.is_list())
        spoil_list(f);
      else if (f.is_tensor())
        spoil_tensor(f);
      else
        spoil_scalar(f);
    }
    spoil_frame();
  }

 private:
  using Spoil = std::function<void(std::byte* args, tc_exec& exec)>;

  // `spoil` changes args or exec of a fresh valid call; the sentence must contain `named`.
  void expect(tc_status_t status, std::string_view named, const std::string& what, const Spoil& spoil) {
    expect_one_of({status}, named, what, spoil);
  }
  // An absurd value that may be one the op can serve, or refuses.
  void expect_ok_or(tc_status_t status, std::string_view named, const std::string& what, const Spoil& spoil) {
    expect_one_of({TC_OK, status}, named, what, spoil);
  }
  void expect_one_of(std::vector<tc_status_t> allowed, std::string_view named, const std::string& what,
                     const Spoil& spoil) {
    Problem p(pass_, case_, TC_DTYPE_F32, Reals::storage);
    p.write_inputs(inputs_);
    p.take_snapshots();
    tc_exec exec = tc_exec_default();
    auto* args = static_cast<std::byte*>(p.args());
    spoil(args, exec);
    const tc_status_t got = call(pass_, args, &exec);
    const std::string sentence = got == TC_OK ? "" : tc_last_error();
    Outcome o{std::string(op_.name), std::string(pass_.name), "refusals", "f32", "cpu", what, std::string(named)};
    if (std::find(allowed.begin(), allowed.end(), got) == allowed.end())
      o.message =
          fmt::format("{} expected, got {} ({})", tc_status_string(allowed.back()), tc_status_string(got), sentence);
    else if (got != TC_OK && (sentence.find(pass_.name) == sentence.npos || sentence.find(named) == sentence.npos))
      o.message = fmt::format("the sentence does not name {} and {}: {}", pass_.name, named, sentence);
    else if (got != TC_OK && !p.unchanged())
      o.message = "memory was written";
    else if (got == TC_OK)
      o.message = p.written_out_of_place();
    report_(o);
  }

  void spoil_tensor(const Field& f) {
    Problem probe(pass_, case_, TC_DTYPE_F32, Reals::storage);
    if (!probe.has(f)) return;
    const tc_tensor t = tensor_at(probe.args(), f);
    const auto edit = [&](tc_status_t status, const std::string& what, const std::function<void(tc_tensor&)>& change) {
      expect(status, f.name, what,
             [&](std::byte* args, tc_exec&) { change(*reinterpret_cast<tc_tensor*>(args + f.offset)); });
    };
    if (!f.is_optional) edit(TC_ERR_INVALID_ARG, "missing", [](tc_tensor& x) { x = tc_tensor{}; });
    edit(TC_ERR_UNSUPPORTED_DTYPE, "unknown dtype", [](tc_tensor& x) { x.dtype = kNoDtype; });
    edit(TC_ERR_UNSUPPORTED_DTYPE, "negative dtype", [](tc_tensor& x) { x.dtype = -1; });
    edit(TC_ERR_INVALID_SHAPE, "rank 9", [](tc_tensor& x) { x.rank = TC_MAX_RANK + 1; });
    edit(TC_ERR_INVALID_SHAPE, "rank -1", [](tc_tensor& x) { x.rank = -1; });
    edit(TC_ERR_INVALID_ARG, "device 7", [](tc_tensor& x) { x.device = 7; });
    const bool absent_without_data = t.rank == 0 && f.is_optional;
    if (element_count(t) > 0 && !absent_without_data)
      edit(TC_ERR_INVALID_ARG, "NULL data", [](tc_tensor& x) { x.data = nullptr; });
    if (tc_dtype_size(t.dtype) > 1)
      edit(TC_ERR_INVALID_ARG, "misaligned", [](tc_tensor& x) { x.data = static_cast<std::byte*>(x.data) + 1; });
    if (t.rank == 0) return;
    edit(TC_ERR_INVALID_SHAPE, "negative extent", [](tc_tensor& x) { x.shape[0] = -3; });
    edit(TC_ERR_INVALID_SHAPE, "2^62 elements of 4 bytes", [](tc_tensor& x) { x.shape[0] = int64_t{1} << 62; });
    const int last = t.rank - 1;
    if (t.shape[last] > 1 && !f.any_stride && !f.shape[0].terms[f.shape[0].count - 1].variadic)
      edit(TC_ERR_INVALID_ARG, "inner stride 2", [&](tc_tensor& x) { x.stride[last] = 2; });
    for (int i = 0; i < t.rank && f.is_written(); ++i)
      if (t.shape[i] > 1) edit(TC_ERR_INVALID_ARG, "output stride 0", [&](tc_tensor& x) { x.stride[i] = 0; });
    for (int i = 0; i < last; ++i)
      for (const int64_t stride : {INT64_MIN, INT64_MAX, int64_t{1} << 62})
        if (t.shape[i] > 1)
          edit(TC_ERR_INVALID_SHAPE, fmt::format("stride {}", stride), [&](tc_tensor& x) { x.stride[i] = stride; });
    for (const int rank : {t.rank - 1, t.rank + 1})
      if (rank > 0 && rank <= TC_MAX_RANK && !some_shape_fits(f, rank))
        edit(TC_ERR_INVALID_SHAPE, fmt::format("rank {}", rank), [&](tc_tensor& x) {
          if (rank > t.rank) x.shape[t.rank] = x.stride[t.rank] = 1;
          x.rank = rank;
        });
    spoil_agreement(f, t);
    if (f.is_written()) spoil_apartness(f, t);
  }

  static bool some_shape_fits(const Field& f, int rank) {
    for (int i = 0; i < f.shape.count(); ++i)
      if (f.shape[i].fits(rank)) return true;
    return false;
  }

  // An output that begins one element into each other tensor of the call.
  void spoil_apartness(const Field& f, const tc_tensor& t) {
    Problem probe(pass_, case_, TC_DTYPE_F32, Reals::storage);
    for (const Field& other : pass_.fields) {
      if (&other == &f || !other.is_tensor() || other.is_list() || !probe.has(other)) continue;
      const tc_tensor& o = tensor_at(probe.args(), other);
      const size_t size = std::max(tc_dtype_size(t.dtype), tc_dtype_size(o.dtype));
      if (element_count(t) == 0 || byte_range(o).end - byte_range(o).begin <= static_cast<int64_t>(size)) continue;
      expect(TC_ERR_INVALID_ARG, f.name, fmt::format("begins inside {}", other.name), [&](std::byte* args, tc_exec&) {
        auto& x = *reinterpret_cast<tc_tensor*>(args + f.offset);
        x.data = static_cast<std::byte*>(tensor_at(args, other).data) + size;
      });
    }
  }

  // The alternative of its shape that a valid call's tensor has.
  const ShapeAlternative& shape_of(const Problem& valid, const Field& f, const tc_tensor& t) const {
    for (int i = 0; i < f.shape.count(); ++i)
      if (f.shape[i].fits(t.rank) && applies(pass_, valid.args(), f.shape[i])) return f.shape[i];
    fail(TC_ERR_INTERNAL, "{}: no alternative of {} fits a valid call", pass_.name, f.name);
  }

  // A dimension that another tensor also has, one longer or 0 here only.
  void spoil_agreement(const Field& f, const tc_tensor& t) {
    Problem probe(pass_, case_, TC_DTYPE_F32, Reals::storage);
    const auto uses = [&](std::string_view name) {
      return std::count_if(pass_.fields.begin(), pass_.fields.end(), [&](const Field& g) {
        if (!g.is_tensor() || g.is_list() || !probe.has(g)) return false;
        const auto& s = shape_of(probe, g, tensor_at(probe.args(), g));
        return std::any_of(s.terms.begin(), s.terms.begin() + s.count,
                           [&](const Term& term) { return term.name == name; });
      });
    };
    const ShapeAlternative& s = shape_of(probe, f, t);
    for (int i = 0; i < s.count; ++i) {
      if (s.terms[i].name.empty() || uses(s.terms[i].name) < 2) continue;
      const int axis = s.terms[i].variadic || !s.variadic ? i : t.rank - (s.count - i);
      if (axis >= t.rank || (s.terms[i].variadic && t.rank == s.count - 1)) continue;
      // Which of the two tensors is blamed depends on their order, so only the dimension must be named.
      for (const int64_t extent : {t.shape[axis] + 1, int64_t{0}})
        expect(TC_ERR_INVALID_SHAPE, s.terms[i].name, fmt::format("{} = {}", s.terms[i].name, extent),
               [&](std::byte* args, tc_exec&) { reinterpret_cast<tc_tensor*>(args + f.offset)->shape[axis] = extent; });
    }
  }

  void spoil_scalar(const Field& f) {
    const auto edit = [&](const std::string& what, double value) {
      expect(TC_ERR_INVALID_ARG, f.name, what, [&](std::byte* args, tc_exec&) { set_scalar(args, f, value); });
    };
    if (f.role == Role::number) {
      edit("NaN", std::numeric_limits<double>::quiet_NaN());
      edit("Inf", std::numeric_limits<double>::infinity());
    }
    const auto try_value = [&](double value) {
      expect_ok_or(TC_ERR_INVALID_ARG, f.name, fmt::format("{:g}", value),
                   [&](std::byte* args, tc_exec&) { set_scalar(args, f, value); });
    };
    if (f.role == Role::number)
      for (const double value : {0.0, -1.0, 1e300, -1e300, 1e-300, 5e-324}) try_value(value);
    if (f.role == Role::integer)
      for (const double value : {0.0, -1.0, -7.0, 0x1p31, -0x1p31, 0x1p62, -0x1p62, -0x1p63}) try_value(value);
    if (f.role == Role::flag) edit("2", 2);
    if (f.role == Role::choice) {
      edit("99", 99);
      edit("-1", -1);
      if (f.choices.starts_with("?")) edit("not set", 0);
    }
  }

  void spoil_list(const Field& f) {
    Problem probe(pass_, case_, TC_DTYPE_F32, Reals::storage);
    if (list_at(probe.args(), f).count == 0) return;
    const auto count = [&](std::byte* args) -> int64_t& { return *reinterpret_cast<int64_t*>(args + f.count_offset); };
    expect(TC_ERR_INVALID_ARG, f.name, "negative count", [&](std::byte* args, tc_exec&) { count(args) = -1; });
    const auto spoil_first = [&](tc_status_t status, const std::string& what,
                                 const std::function<void(tc_tensor&)>& change) {
      std::vector<tc_tensor> copy;
      expect(status, f.name, what, [&](std::byte* args, tc_exec&) {
        const TensorList list = list_at(args, f);
        copy.assign(list.data, list.data + list.count);
        change(copy[0]);
        const tc_tensor* data = copy.data();
        std::memcpy(args + f.offset, &data, sizeof(void*));
      });
    };
    spoil_first(TC_ERR_INVALID_ARG, "element missing", [](tc_tensor& t) { t = tc_tensor{}; });
    spoil_first(TC_ERR_UNSUPPORTED_DTYPE, "element of unknown dtype", [](tc_tensor& t) { t.dtype = kNoDtype; });
    spoil_first(TC_ERR_INVALID_SHAPE, "element with negative extent", [](tc_tensor& t) {
      t.rank = 1;
      t.shape[0] = -1;
    });
  }

  void spoil_frame() {
    const auto size = [](std::byte* args) -> uint32_t& { return *reinterpret_cast<uint32_t*>(args); };
    expect(TC_ERR_INVALID_ARG, "size", "size 0", [&](std::byte* args, tc_exec&) { size(args) = 0; });
    expect(TC_ERR_INVALID_ARG, "size", "size 3", [&](std::byte* args, tc_exec&) { size(args) = 3; });
    expect(TC_ERR_INVALID_ARG, "determinism", "determinism 3", [](std::byte*, tc_exec& e) { e.determinism = 3; });
    expect(TC_ERR_INVALID_ARG, "precision", "precision -1", [](std::byte*, tc_exec& e) { e.precision = -1; });
    expect(TC_ERR_INVALID_ARG, "threads", "threads -1", [](std::byte*, tc_exec& e) { e.threads = -1; });
    expect(TC_ERR_INVALID_ARG, "size", "exec.size 0", [](std::byte*, tc_exec& e) { e.size = 0; });
    if (!(pass_.offers & kBatchInvariant))
      expect(TC_ERR_KERNEL_NOT_FOUND, "TC_BATCH_INVARIANT", "batch invariance",
             [](std::byte*, tc_exec& e) { e.determinism = TC_BATCH_INVARIANT; });
    expect(TC_ERR_NO_DEVICE, "GPU", "tensors on a GPU that is not there",
           [&](std::byte* args, tc_exec&) { move_to_gpu(args); });
    size_t needed = 0;
    Problem probe(pass_, case_, TC_DTYPE_F32, Reals::storage);
    call_workspace(pass_, probe.args(), nullptr, &needed);
    alignas(64) static std::byte small[64];
    if (needed > 0)
      expect(TC_ERR_INVALID_ARG, "workspace", "workspace too small",
             [&](std::byte*, tc_exec& e) { e.workspace = small, e.workspace_bytes = needed - 1; });
    if (needed > 0)
      expect(TC_ERR_INVALID_ARG, "workspace", "workspace misaligned",
             [&](std::byte*, tc_exec& e) { e.workspace = small + 1, e.workspace_bytes = needed; });
  }

  void move_to_gpu(std::byte* args) {
    for (const Field& f : pass_.fields) {
      if (!f.is_tensor()) continue;
      if (!f.is_list()) {
        reinterpret_cast<tc_tensor*>(args + f.offset)->device = TC_CUDA;
        continue;
      }
      const TensorList list = list_at(args, f);
      auto& copy = gpu_lists_.emplace_back(list.data, list.data + list.count);
      for (tc_tensor& t : copy) t.device = TC_CUDA;
      const tc_tensor* data = copy.data();
      std::memcpy(args + f.offset, &data, sizeof(void*));
    }
  }

  const OpCases& op_;
  const Pass& pass_;
  const Case& case_;
  const Report& report_;
  const Values inputs_;
  std::vector<std::vector<tc_tensor>> gpu_lists_;
};

}  // namespace

void check_refusals(const OpCases& op, const CheckOptions& options, const Report& report) {
  const std::vector<Case> list = op.list(Effort::quick);
  // A handful of cases, so that most optional tensors are there once; empty ones cannot be spoiled in every way.
  std::set<std::string> seen;
  for (const PassCases& pass : op.passes) {
    seen.clear();
    for (const Case& c : list) {
      std::string key;
      for (const auto& name : c.given) key += name + " ";
      const bool tiny = std::any_of(c.dims.begin(), c.dims.end(),
                                    [](const auto& d) { return !d.second.empty() && d.second.back() < 2; });
      if (c.is_empty() || tiny || !c.layouts.empty() || !c.in_place.empty() || !c.dtypes.empty() ||
          !seen.insert(key).second)
        continue;
      Refusals(op, pass, c, report).run();
      if (options.progress) options.progress(static_cast<int64_t>(seen.size()), static_cast<int64_t>(seen.size()));
    }
  }
}

}  // namespace tc::testing
