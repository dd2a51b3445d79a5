// traincore ops: what there is, straight from the schema.
#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

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

using nlohmann::json;

std::string words(const json& list) { return joined(list.get<std::vector<std::string>>(), " "); }

std::string replaced(std::string text, char from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) text.replace(at, 1, to);
  return text;
}

bool is_tensor(const json& field) { return field.contains("dtypes"); }

// The names of a choice, by value; "?" stands for 0 where 0 means not set, which is refused.
std::vector<std::string> choices(const json& field) {
  std::vector<std::string> names;
  std::istringstream text(field.value("choices", ""));
  for (std::string name; std::getline(text, name, '|');) names.push_back(name);
  return names;
}

std::string values_text(const json& field) {
  if (is_tensor(field)) return words(field["dtypes"]);
  auto names = choices(field);
  std::erase(names, "?");
  return joined(names, " ");
}

std::string default_text(const json& field) {
  if (is_tensor(field)) return field["optional"] ? "absent" : "required";
  const auto names = choices(field);
  const json& value = field["default"];
  if (names.empty()) return value.is_number_integer() ? value.dump() : fmt::format("{:g}", value.get<double>());
  const std::string& name = names.at(value.get<size_t>());
  return name == "?" ? "required" : name;
}

std::string notes_text(const json& field) {
  std::vector<std::string> notes;
  if (field.value("list", false)) notes.emplace_back("a list of tensors");
  if (const std::string alias = field.value("may_be", ""); !alias.empty())
    notes.push_back("may be " + replaced(alias, '|', " or "));
  if (field.value("accumulates", false)) notes.emplace_back("added to with accumulate (f32)");
  if (field.value("any_stride", false)) notes.emplace_back("any strides");
  if (const std::string doc = field.value("doc", ""); !doc.empty()) notes.push_back(doc);
  return joined(notes, "; ");
}

void print_table(const json& ops) {
  Table table({"op", "pass", "dtypes", "devices", "determinism", "precision"});
  for (const json& op : ops)
    for (const json& pass : op["passes"])
      table.add({op["op"], pass["name"], words(pass["dtypes"]), words(pass["devices"]), words(pass["determinism"]),
                 words(pass["precision"])});
  table.print();
}

void print_fields(const json& pass) {
  fmt::print("\n{}: {}\n", pass["name"].get<std::string>(), pass["formula"].get<std::string>());
  Table table({"field", "role", "shape", "dtypes or values", "default", "notes"});
  for (const json& field : pass["fields"])
    table.add({field["name"], field["role"],
               is_tensor(field) ? fmt::format("[{}]", field["shape"].get<std::string>()) : "", values_text(field),
               default_text(field), notes_text(field)});
  table.print();
}

void run_ops(const OpsFlags& flags) {
  const json schema = json::parse(tc_schema());
  json ops = json::array();
  for (const OpEntry& entry : select_entries("ops", flags.ops))
    std::copy_if(schema.begin(), schema.end(), std::back_inserter(ops),
                 [&](const json& op) { return op["op"] == entry.name; });
  if (flags.json) {
    print_json(ops);
    return;
  }
  print_table(ops);
  if (flags.ops.empty()) return;
  for (const json& op : ops)
    for (const json& pass : op["passes"]) print_fields(pass);
}

}  // namespace

void add_ops(Command& tool) {
  Command command = tool.subcommand("ops", "The table of operations; with names, every field of theirs");
  auto flags = std::make_shared<OpsFlags>();
  command.words("op", flags->ops, "ops to describe (default: the table of all)");
  command.flag("--json", flags->json, "for machines: every field of every op");
  command.action([flags] { run_ops(*flags); });
}

}  // namespace tc::cli
