// traincore explain: what one call would do, without its memory and without running it.
#include "traincore/testing/explain.h"

#include <fmt/core.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/select.h"
#include "cli/terminal.h"
#include "traincore/core/fail.h"
#include "traincore/cuda/known_devices.h"
#include "traincore/testing/gpu.h"

namespace tc::cli {
namespace {

struct ExplainFlags {
  std::string op;
  std::vector<std::string> shape, scalars, with, tensors, dtypes;
  std::string determinism = "run_to_run", precision = "standard", device = "cpu", gpu;
  int threads = 0;
  bool json = false;
};

using Passes = std::vector<const Pass*>;

std::pair<std::string, std::string> split(const char* option, const std::string& text) {
  const auto equals = text.find('=');
  require(equals != text.npos && equals > 0, "explain: {} {}: write name=value", option, text);
  return {text.substr(0, equals), text.substr(equals + 1)};
}

// "32x1024": the extents of a tensor, or of a dimension like rows...; "scalar": none.
std::vector<int64_t> parse_extents(const char* option, const std::string& text) {
  constexpr int64_t kLargest = int64_t{1} << 56;
  std::vector<int64_t> extents;
  if (text == "scalar") return extents;
  for (const char *p = text.data(), *end = p + text.size(); p <= end; ++p) {
    int64_t n = -1;
    const auto [next, error] = std::from_chars(p, end, n);
    require(error == std::errc{} && n >= 0 && n <= kLargest && (next == end || *next == 'x'),
            "explain: {} {}: write extents from 0 to 2^56 with x between them, as in 32x1024", option, text);
    extents.push_back(n);
    p = next;
  }
  return extents;
}

double parse_scalar(const Field& f, const std::string& text) {
  for (int v = 0; f.role == Role::choice && v < 32; ++v)
    if (choice_name(f, v) == text) return v;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc{} && end == text.data() + text.size();
  require(whole, "explain: --set {}={}: {}", f.name, text,
          f.role == Role::choice ? fmt::format("choose from {}", f.choices) : std::string("a number is expected"));
  return value;
}

const Pass* find_pass(std::string_view name) {
  for (const OpEntry& op : all_ops())
    for (const Pass& pass : op.passes)
      if (pass.name == name) return &pass;
  return nullptr;
}

// The passes that `name` means: those of an op, or one by its own name.
Passes select_passes(const std::string& name) {
  Passes passes;
  for (const OpEntry& op : all_ops())
    for (const Pass& pass : op.passes)
      if (op.name == name || pass.name == name) passes.push_back(&pass);
  if (passes.empty()) select_entries("explain", {name});
  return passes;
}

template <class Keep>
std::vector<const Field*> fields_of(const Passes& passes, Keep keep) {
  std::vector<const Field*> fields;
  for (const Pass* pass : passes)
    for (const Field& f : pass->fields)
      if (keep(f)) fields.push_back(&f);
  return fields;
}

const Field& find_field(const Passes& passes, const char* option, const std::string& name, auto keep) {
  std::vector<std::string> known;
  for (const Field* f : fields_of(passes, keep)) {
    if (f->name == name) return *f;
    if (std::find(known.begin(), known.end(), f->name) == known.end()) known.emplace_back(f->name);
  }
  fail(TC_ERR_INVALID_ARG, "explain: {} {}: there is no such field; these are: {}", option, name, joined(known));
}

// The first shape of the field whose dimensions are all given.
int alternative_of(const Field& f, const testing::Case& c) {
  for (int i = 0; i < f.shape.count(); ++i) {
    const ShapeAlternative& s = f.shape[i];
    if (std::all_of(s.terms.begin(), s.terms.begin() + s.count,
                    [&](const Term& t) { return t.name.empty() || c.dims.contains(t.name); }))
      return i;
  }
  fail(TC_ERR_INVALID_SHAPE, "explain: --shape does not give every dimension of {} [{}]", f.name, f.shape.text());
}

void read_shape(const ExplainFlags& flags, const Passes& passes, testing::Case& c) {
  std::vector<std::string> known;
  for (const Field* f : fields_of(passes, [](const Field& g) { return g.is_tensor() && !g.is_list(); }))
    for (int i = 0; i < f->shape.count(); ++i)
      for (const Term& term : std::span(f->shape[i].terms).first(static_cast<size_t>(f->shape[i].count)))
        if (!term.name.empty() && std::find(known.begin(), known.end(), term.name) == known.end())
          known.emplace_back(term.name);
  for (const std::string& word : flags.shape) {
    const auto [name, extents] = split("--shape", word);
    require(std::find(known.begin(), known.end(), name) != known.end(),
            "explain: --shape {}: there is no dimension {}; these are: {}", word, name, joined(known));
    c.dim(name, parse_extents("--shape", extents));
  }
  for (const std::string& text : flags.tensors) c.list_shapes.push_back(parse_extents("--tensors", text));
}

void read_options(const ExplainFlags& flags, const Passes& passes, testing::Case& c) {
  for (const std::string& word : flags.scalars) {
    const auto [name, text] = split("--set", word);
    c.set(name, parse_scalar(find_field(passes, "--set", name, [](const Field& f) { return !f.is_tensor(); }), text));
  }
  for (const std::string& name : flags.with) {
    find_field(passes, "--with", name, [](const Field& f) { return f.is_tensor() && f.is_optional; });
    c.given.insert(name);
  }
}

int32_t read_dtypes(const ExplainFlags& flags, const Passes& passes, testing::Case& c) {
  int32_t storage = TC_DTYPE_F32;
  for (const std::string& word : flags.dtypes) {
    if (word.find('=') == word.npos) {
      storage = select_dtype("explain", word);
      continue;
    }
    const auto [name, dtype] = split("--dtype", word);
    find_field(passes, "--dtype", name, [](const Field& f) { return f.is_tensor(); });
    c.dtype(name, select_dtype("explain", dtype));
  }
  return storage;
}

bool must_be_given(const Pass& pass, std::string_view name) {
  return std::any_of(pass.fields.begin(), pass.fields.end(),
                     [&](const Field& f) { return f.name == name && f.role == Role::in && !f.is_optional; });
}

// A backward that is not told what to compute computes the gradient of every input that is there: those that are named,
// and those that no forward does without.
testing::Case with_gradients(const Pass& pass, testing::Case c) {
  const auto named = [&](const Field& f) { return f.role == Role::out && c.given.contains(f.name); };
  if (!pass.name.ends_with("_backward") || std::any_of(pass.fields.begin(), pass.fields.end(), named)) return c;
  const Pass* forward = find_pass(std::string(pass.name.substr(0, pass.name.rfind('_'))) + "_forward");
  for (const Field& input : pass.fields) {
    if (input.role != Role::in) continue;
    const bool is_there = must_be_given(pass, input.name) || (forward && must_be_given(*forward, input.name));
    const auto gradient = std::find_if(pass.fields.begin(), pass.fields.end(), [&](const Field& f) {
      return f.role == Role::out && f.is_optional && f.name.starts_with('d') && f.name.substr(1) == input.name;
    });
    if (gradient == pass.fields.end() || !(is_there || c.given.contains(input.name))) continue;
    c.given.insert(std::string(gradient->name));
    if (input.is_optional) c.given.insert(std::string(input.name));
  }
  return c;
}

testing::Explanation explain_pass(const Pass& pass, const testing::Case& options, int32_t storage, const tc_exec& exec,
                                  const testing::Gpu* gpu) {
  testing::Case c = with_gradients(pass, options);
  for (const Field& f : pass.fields)  // "batch..." that is not given: none
    for (int i = 0; i < f.shape.count(); ++i)
      if (f.shape[i].variadic) c.dims.try_emplace(std::string(f.shape[i].terms[0].name));
  for (const Field& f : pass.fields)
    if (f.is_tensor() && !f.is_list() && (!f.is_optional || c.given.contains(f.name)) && f.shape[0].when_field.empty())
      c.alternative(std::string(f.name), alternative_of(f, c));
  return testing::explain(pass, c, storage, exec, gpu);
}

int32_t choose(const char* option, const std::string& text, std::initializer_list<const char*> names) {
  int32_t value = 0;
  for (const char* name : names) {
    if (text == name) return value;
    ++value;
  }
  fail(TC_ERR_INVALID_ARG, "explain: {} {}: choose from {}", option, text,
       joined(std::vector<std::string>(names.begin(), names.end())));
}

tc_exec read_exec(const ExplainFlags& flags) {
  tc_exec exec = tc_exec_default();
  exec.determinism = choose("--determinism", flags.determinism, {"run_to_run", "batch_invariant", "unordered"});
  exec.precision = choose("--precision", flags.precision, {"standard", "strict", "fast"});
  exec.threads = flags.threads;
  return exec;
}

// One by name, or this machine's own, or where it has none an H200; nothing: the CPU.
std::optional<testing::Gpu> read_gpu(const ExplainFlags& flags) {
  const int index = select_gpu("explain", flags.device);
  require(index >= 0 || flags.gpu.empty(), "explain: --gpu {}: it says which GPU, so --device must be cuda", flags.gpu);
  if (index < 0) return std::nullopt;
  std::vector<std::string> known;
  for (const cuda::KnownDevice& device : cuda::kKnownDevices) {
    if (flags.gpu == device.word) return testing::Gpu{device.info};
    known.emplace_back(device.word);
  }
  require(flags.gpu.empty(), "explain: --gpu {}: choose from {}", flags.gpu, joined(known));
  if (testing::gpu_count() == 0) return testing::Gpu{cuda::kKnownDevices[0].info};
  return testing::Gpu{testing::gpu_info(index), index};
}

// "24.6 M": three digits and a prefix of 1000s.
std::string scaled(double n) {
  const char* const prefixes[] = {"", "k", "M", "G", "T", "P"};
  size_t i = 0;
  for (; n >= 999.5 && i + 1 < std::size(prefixes); ++i) n /= 1000;
  return fmt::format("{:.3g} {}", n, prefixes[i]);
}

void print(const Pass& pass, const testing::Explanation& e) {
  fmt::print("{}: {}\n", pass.name, pass.formula);
  if (e.status != TC_OK) {
    fmt::print("  {}  {}\n", bad("refused"), e.refusal);
    return;
  }
  fmt::print("  kernel     {}\n  runs on    {}\n", e.kernel, e.target);
  if (e.workspace) fmt::print("  workspace  {}B\n", scaled(static_cast<double>(*e.workspace)));
  fmt::print("  moves      {}B\n", scaled(e.bytes));
  if (e.flops > 0) fmt::print("  computes   {}flop, {:.1f} a byte\n", scaled(e.flops), e.flops / e.bytes);
}

nlohmann::json to_json(const Pass& pass, const testing::Explanation& e) {
  nlohmann::json j{{"pass", pass.name}, {"status", tc_status_string(e.status)}};
  if (e.status != TC_OK)
    j["refusal"] = e.refusal;
  else
    j.update({{"kernel", e.kernel}, {"target", e.target}, {"bytes", e.bytes}, {"flops", e.flops}});
  if (e.workspace) j["workspace_bytes"] = *e.workspace;
  return j;
}

void run_explain(const ExplainFlags& flags) {
  const Passes passes = select_passes(flags.op);
  testing::Case c;
  read_shape(flags, passes, c);
  read_options(flags, passes, c);
  const int32_t storage = read_dtypes(flags, passes, c);
  const tc_exec exec = read_exec(flags);
  const std::optional<testing::Gpu> gpu = read_gpu(flags);
  nlohmann::json all = nlohmann::json::array();
  bool refused = false;
  for (const Pass* pass : passes) {
    const testing::Explanation e = explain_pass(*pass, c, storage, exec, gpu ? &*gpu : nullptr);
    refused |= e.status != TC_OK;
    if (flags.json)
      all.push_back(to_json(*pass, e));
    else
      print(*pass, e);
  }
  if (flags.json) print_json(all);
  if (refused) throw Exit{kRefused};
}

}  // namespace

void add_explain(Command& tool) {
  Command command = tool.subcommand(
      "explain", "Say which kernel a call would run and why, or how it is refused; nothing is computed");
  auto flags = std::make_shared<ExplainFlags>();
  command.text("op", flags->op, "an op, or one of its passes", Need::required);
  command.list("--shape", flags->shape, "dimensions, as in rows=8x512,cols=4096");
  command.list("--set", flags->scalars, "options, as in eps=1e-5");
  command.list("--with", flags->with, "the optional tensors that are there, as in weight,rstd");
  command.list("--dtype", flags->dtypes, "of the full-size tensors, then of single ones: bf16,weight=f32");
  command.list("--tensors", flags->tensors, "shapes of the tensors of a list, as in 4096x4096,4096");
  command.text("--determinism", flags->determinism, "run_to_run, batch_invariant, unordered");
  command.text("--precision", flags->precision, "standard, strict, fast");
  command.text("--device", flags->device, "cpu, cuda or cuda:N; where there is no GPU, one is described");
  command.text("--gpu", flags->gpu, "describe this one: h200, a100, rtx4090");
  command.number("--threads", flags->threads, "0: all cores", Rule::not_negative);
  command.flag("--json", flags->json, "for machines");
  command.action([flags] { run_explain(*flags); });
}

}  // namespace tc::cli
