// traincore ops: what there is, straight from the schema.
#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/select.h"
#include "cli/terminal.h"
#include "traincore/core/interop.h"

namespace tc::cli {
namespace {

struct OpsFlags {
  std::vector<std::string> ops;
  bool json = false;
};
using Words = std::vector<std::string>;

Words dtype_names(DTypes dtypes) {
  Words names;
  for (int32_t d = 0; d < 32; ++d)
    if (dtypes.has(d)) names.emplace_back(tc_dtype_name(d));
  return names;
}

// Those of the full-size tensors; of a pass without any, those of its first floating-point tensor.
Words storage_names(const Pass& pass) {
  for (const bool full_size : {true, false})
    for (const Field& f : pass.fields)
      if (f.is_tensor() && f.dtypes.full_size == full_size && f.dtypes.has(TC_DTYPE_F32)) return dtype_names(f.dtypes);
  return {};
}

Words devices(const Pass& pass) {
  Words names;
  if (pass.cpu) names.emplace_back("cpu");
  if (pass.cuda) names.emplace_back("cuda");
  return names;
}

Words offered(const Pass& pass, uint32_t first_bit, const char* const (&names)[3]) {
  Words words;
  for (int i = 0; i < 3; ++i)
    if (pass.offers >> i & first_bit) words.emplace_back(names[i]);
  return words;
}
Words determinism(const Pass& pass) { return offered(pass, kRunToRun, {"run_to_run", "batch_invariant", "unordered"}); }
Words precision(const Pass& pass) { return offered(pass, kStandard, {"standard", "strict", "fast"}); }

const char* role_name(const Field& f) {
  static const char* const names[] = {"in", "out", "saved", "state", "number", "integer", "flag", "choice"};
  return names[static_cast<int>(f.role)];
}

std::string replaced(std::string_view text, char from, std::string_view to) {
  std::string out;
  for (const char c : text) c == from ? out.append(to) : out.append(1, c);
  return out;
}

std::string values_text(const Field& f) {
  if (f.is_tensor()) return joined(dtype_names(f.dtypes), " ");
  if (f.role == Role::choice) return replaced(f.choices.substr(f.choices.starts_with("?|") ? 2 : 0), '|', " ");
  return "";
}

std::string default_text(const Field& f) {
  if (f.is_tensor()) return f.is_optional ? "absent" : "required";
  if (f.role != Role::choice) return fmt::format("{:g}", f.default_value);
  const std::string_view name = choice_name(f, static_cast<int64_t>(f.default_value));
  return name.empty() ? "required" : std::string(name);
}

std::string notes_text(const Field& f) {
  Words notes;
  if (f.is_list()) notes.emplace_back("a list of tensors");
  if (!f.alias.empty()) notes.push_back("may be " + replaced(f.alias, '|', " or "));
  if (f.accumulates) notes.emplace_back("added to with accumulate (f32)");
  if (f.any_stride) notes.emplace_back("any strides");
  if (!f.doc.empty()) notes.emplace_back(f.doc);
  return joined(notes, "; ");
}

void print_table(const std::vector<OpEntry>& ops) {
  Table table({"op", "pass", "dtypes", "devices", "determinism", "precision"});
  for (const OpEntry& op : ops)
    for (const Pass& pass : op.passes)
      table.add({std::string(op.name), std::string(pass.name), joined(storage_names(pass), " "),
                 joined(devices(pass), " "), joined(determinism(pass), " "), joined(precision(pass), " ")});
  table.print();
}

void print_fields(const Pass& pass) {
  fmt::print("\n{}: {}\n", pass.name, pass.formula);
  Table table({"field", "role", "shape", "dtypes or values", "default", "notes"});
  for (const Field& f : pass.fields)
    table.add({std::string(f.name), role_name(f), f.is_tensor() ? fmt::format("[{}]", f.shape.text()) : "",
               values_text(f), default_text(f), notes_text(f)});
  table.print();
}

void run_ops(const OpsFlags& flags) {
  const std::vector<OpEntry> ops = select_entries("ops", flags.ops);
  if (!flags.json) {
    print_table(ops);
    for (const OpEntry& op : ops)
      for (const Pass& pass : op.passes)
        if (!flags.ops.empty()) print_fields(pass);
    return;
  }
  nlohmann::json chosen = nlohmann::json::array();
  for (const nlohmann::json& op : nlohmann::json::parse(tc_schema()))
    if (std::any_of(ops.begin(), ops.end(), [&](const OpEntry& e) { return op["op"] == e.name; })) chosen.push_back(op);
  fmt::print("{}\n", chosen.dump(2));
}

}  // namespace

void add_ops(CLI::App& app) {
  auto* command = app.add_subcommand("ops", "The table of operations; with names, every field of theirs");
  auto flags = std::make_shared<OpsFlags>();
  command->add_option("op", flags->ops, "ops to describe (default: the table of all)");
  command->add_flag("--json", flags->json, "for machines: every field of every op");
  command->callback([flags] { run_ops(*flags); });
}

}  // namespace tc::cli
