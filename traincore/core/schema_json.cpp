// The schema for other languages and for tools.
#include <nlohmann/json.hpp>

#include "traincore/core/interop.h"
#include "traincore/core/schema.h"

namespace tc {
namespace {

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

nlohmann::json default_of(const Field& f) {
  if (f.role == Role::number) return f.default_value;
  return static_cast<int64_t>(f.default_value);
}

nlohmann::json to_json(const Field& f) {
  static const char* const roles[] = {"in", "out", "saved", "state", "number", "integer", "flag", "choice"};
  nlohmann::json j{{"name", f.name}, {"role", roles[static_cast<int>(f.role)]}, {"doc", f.doc}, {"offset", f.offset}};
  if (!f.is_tensor()) {
    j["default"] = default_of(f);
    if (f.role == Role::choice) j["choices"] = f.choices;
    return j;
  }
  j.update({{"shape", f.shape.text()},
            {"dtypes", dtype_names(f.dtypes)},
            {"shares_dtype", f.dtypes.shared},
            {"optional", f.is_optional},
            {"list", f.is_list()},
            {"accumulates", f.accumulates},
            {"any_stride", f.any_stride},
            {"may_be", f.alias}});
  if (f.is_list()) j["count_offset"] = f.count_offset;
  return j;
}

nlohmann::json to_json(const Pass& pass) {
  nlohmann::json j{{"name", pass.name},
                   {"formula", pass.formula},
                   {"args_size", pass.args_size},
                   {"dtypes", storage_names(pass)},
                   {"devices", devices(pass)},
                   {"determinism", offered(pass, kRunToRun, {"run_to_run", "batch_invariant", "unordered"})},
                   {"precision", offered(pass, kStandard, {"standard", "strict", "fast"})},
                   {"workspace", pass.workspace != nullptr},
                   {"cuda_workspace", pass.cuda_workspace != nullptr},
                   {"fields", nlohmann::json::array()}};
  for (const Field& f : pass.fields) j["fields"].push_back(to_json(f));
  return j;
}

std::string schema_text() {
  nlohmann::json all = nlohmann::json::array();
  for (const OpEntry& op : all_ops()) {
    nlohmann::json passes = nlohmann::json::array();
    for (const Pass& pass : op.passes) passes.push_back(to_json(pass));
    all.push_back({{"op", op.name}, {"passes", passes}});
  }
  return all.dump();
}

}  // namespace
}  // namespace tc

const char* tc_schema(void) {
  const char* text = nullptr;
  const tc_status_t status = tc::guard([&] {
    static const std::string made = tc::schema_text();
    text = made.c_str();
  });
  return status == TC_OK ? text : nullptr;
}
