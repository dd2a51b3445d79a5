#include "traincore/train/config.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>

#include "traincore/core/fail.h"
#include "traincore/train/file.h"

namespace tc::train {
namespace {

using nlohmann::json;

struct Preset {
  std::string_view name;
  ModelConfig model;
  std::string_view dtype;
  int64_t batch, micro_batch, steps, warmup;
  double lr;
};
const Preset kPresets[] = {
    {"tiny",  // 2.4 M parameters on bytes: two minutes on two cores
     {.dim = 256, .layers = 4, .heads = 8, .kv_heads = 4, .head_dim = 32, .ffn = 512, .context = 256},
     "f32",
     4,
     4,
     700,
     40,
     2e-3},
    {"small",  // 13 M
     {.dim = 384, .layers = 8, .heads = 6, .kv_heads = 2, .head_dim = 64, .ffn = 1024, .context = 512},
     "f32",
     16,
     8,
     5000,
     200,
     1e-3},
    {"124m",  // the size of GPT-2, in Llama's shape
     {.dim = 768,
      .layers = 12,
      .heads = 12,
      .kv_heads = 12,
      .head_dim = 64,
      .ffn = 2048,
      .vocab = 50304,
      .context = 1024},
     "bf16",
     512,
     16,
     20000,
     700,
     6e-4},
    {"1b",  // the shape of Llama 3.2 1B
     {.dim = 2048,
      .layers = 16,
      .heads = 32,
      .kv_heads = 8,
      .head_dim = 64,
      .ffn = 8192,
      .vocab = 128256,
      .context = 2048,
      .rope_theta = 500000},
     "bf16",
     512,
     8,
     50000,
     2000,
     3e-4},
};

TrainConfig preset_config(std::string_view name) {
  const std::vector<std::string_view> names = preset_names();
  const auto at = std::find(names.begin(), names.end(), name);
  require(at != names.end(), "there is no preset \"{}\"; the nearest is {} (all: {})", name, nearest(name, names),
          fmt::join(names, ", "));
  const Preset& preset = kPresets[at - names.begin()];
  TrainConfig config;
  config.preset = preset.name;
  config.model = preset.model;
  config.train.dtype = preset.dtype;
  config.train.batch = preset.batch;
  config.train.micro_batch = preset.micro_batch;
  config.train.steps = preset.steps;
  config.optim.warmup = preset.warmup;
  config.optim.lr = preset.lr;
  config.optim.min_lr = preset.lr / 10;
  return config;
}

std::string describe(const Setting::Target& target) {
  constexpr const char* kNames[] = {"a whole number", "a number", "true or false", "a text",
                                    "a text or a list of texts"};
  return kNames[target.index()];
}

// `value` into the setting if it is of its type.
bool assign(const Setting::Target& target, const json& value) {
  if (const auto* integer = std::get_if<int64_t*>(&target)) {
    const bool fits = value.is_number_integer() && (!value.is_number_unsigned() || value.get<uint64_t>() <= INT64_MAX);
    if (fits) **integer = value.get<int64_t>();
    return fits;
  }
  if (const auto* number = std::get_if<double*>(&target)) {
    if (value.is_number()) **number = value.get<double>();
    return value.is_number();
  }
  if (const auto* flag = std::get_if<bool*>(&target)) {
    if (value.is_boolean()) **flag = value.get<bool>();
    return value.is_boolean();
  }
  if (const auto* text = std::get_if<std::string*>(&target)) {
    if (value.is_string()) **text = value.get<std::string>();
    return value.is_string();
  }
  std::vector<std::string>& list = *std::get<std::vector<std::string>*>(target);
  if (value.is_string()) return list = {value.get<std::string>()}, true;
  const bool texts =
      value.is_array() && std::all_of(value.begin(), value.end(), [](const json& v) { return v.is_string(); });
  if (texts) list = value.get<std::vector<std::string>>();
  return texts;
}

json value_of(const Setting::Target& target) {
  return std::visit([](const auto* value) { return json(*value); }, target);
}

const Setting& find_setting(const std::vector<Setting>& all, std::string_view key, std::string_view where) {
  std::vector<std::string_view> keys;
  for (const Setting& s : all) {
    if (s.key == key) return s;
    keys.push_back(s.key);
  }
  fail(TC_ERR_INVALID_ARG, "{}: there is no setting \"{}\"; the nearest is {}", where, key, nearest(key, keys));
}

void set(TrainConfig& config, std::string_view key, const json& value, std::string_view where) {
  const std::vector<Setting> all = settings(config);
  const Setting& setting = find_setting(all, key, where);
  if (!assign(setting.target, value))
    fail(TC_ERR_INVALID_ARG, "{}: {} must be {}, not {}", where, key, describe(setting.target),
         value.dump(-1, ' ', false, json::error_handler_t::replace));
}

// {"preset": ..., "model": {"dim": ...}, ...}: what TOML files and checkpoints hold.
void apply(TrainConfig& config, const json& tree, const std::string& prefix, std::string_view where) {
  for (const auto& [name, value] : tree.items()) {
    if (value.is_object())
      apply(config, value, prefix + name + ".", where);
    else
      set(config, prefix + name, value, where);
  }
}

// Removes the tree's preset and returns its name; empty if it has none.
std::string take_preset(json& tree, std::string_view where) {
  const auto preset = tree.find("preset");
  if (preset == tree.end()) return "";
  require(preset->is_string(), "{}: preset must be a text, not {}", where, preset->dump());
  std::string name = preset->get<std::string>();
  tree.erase(preset);
  return name;
}

json parse_toml(const std::string& path) {
  try {
    std::ostringstream text;
    text << toml::json_formatter(toml::parse(read_text(path), path));
    return json::parse(text.str());
  } catch (const toml::parse_error& e) {
    fail(TC_ERR_INVALID_ARG, "{}:{}: not valid TOML: {}", path, e.source().begin.line, e.description());
  }
}

template <class T>
json parse_number(std::string_view text) {
  T number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? json(number) : json(text);
}

// The text of an assignment as a value of the setting's type; as it stands if it is none, for set() to refuse.
json parse_value(const Setting::Target& target, std::string_view text) {
  if (std::holds_alternative<int64_t*>(target)) return parse_number<int64_t>(text);
  if (std::holds_alternative<double*>(target)) return parse_number<double>(text);
  if (std::holds_alternative<bool*>(target) && (text == "true" || text == "false")) return text == "true";
  if (!std::holds_alternative<std::vector<std::string>*>(target)) return text;
  json list = json::array();
  std::istringstream items{std::string(text)};
  for (std::string item; std::getline(items, item, ',');) list.push_back(item);
  return list;
}

void apply_assignment(TrainConfig& config, std::string_view assignment) {
  const size_t equals = assignment.find('=');
  require(equals != std::string_view::npos, "--set {}: expected key=value, for example --set optim.lr=3e-4",
          assignment);
  const std::string_view key = assignment.substr(0, equals);
  require(key != "preset", "--set {}: a preset is the start, not a setting; use --preset", assignment);
  const std::vector<Setting> all = settings(config);
  set(config, key, parse_value(find_setting(all, key, "--set").target, assignment.substr(equals + 1)), "--set");
}

bool is_utf8(const std::string& text) {
  try {
    return !json(text).dump().empty();
  } catch (const json::type_error&) {
    return false;
  }
}

void check_range(const Setting& setting) {
  const auto check = [&](auto value) {
    const auto text = [](double bound) {
      return std::is_integral_v<decltype(value)> ? fmt::format("{:.0f}", bound) : fmt::format("{:g}", bound);
    };
    const auto number = static_cast<double>(value);
    require(number >= setting.low && number <= setting.high, "{} = {} is out of range; it must lie between {} and {}",
            setting.key, value, text(setting.low), text(setting.high));
  };
  const auto check_text = [&](const std::string& text) {
    require(is_utf8(text), "{} is not valid UTF-8", setting.key);
    if (setting.choices.empty()) return;
    const std::string padded = "|" + std::string(setting.choices) + "|";
    require(text.find('|') == std::string::npos && padded.find("|" + text + "|") != std::string::npos,
            "{} = {} is not one of {}", setting.key, text, setting.choices);
  };
  if (const auto* integer = std::get_if<int64_t*>(&setting.target)) check(**integer);
  if (const auto* number = std::get_if<double*>(&setting.target)) check(**number);
  if (const auto* text = std::get_if<std::string*>(&setting.target)) check_text(**text);
  if (const auto* list = std::get_if<std::vector<std::string>*>(&setting.target))
    for (const std::string& text : **list) check_text(text);
}

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replace = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replace, row[j] + 1, diagonal + 1});
    }
  }
  return row[b.size()];
}

std::string_view last_part(std::string_view name) { return name.substr(name.find_last_of('.') + 1); }

}  // namespace

std::vector<Setting> settings(TrainConfig& config) {
  constexpr double kMany = 1e12, kSize = 1 << 20;
  auto& [preset, m, t, d, o, s] = config;
  return {
      {"model.dim", &m.dim, 1, kSize},
      {"model.layers", &m.layers, 1, 10000},
      {"model.heads", &m.heads, 1, kSize},
      {"model.kv_heads", &m.kv_heads, 1, kSize},
      {"model.head_dim", &m.head_dim, 2, 256},
      {"model.ffn", &m.ffn, 1, kSize},
      {"model.vocab", &m.vocab, 0, INT32_MAX},
      {"model.context", &m.context, 1, 1 << 24},
      {"model.rope_theta", &m.rope_theta, 1, 1e12},
      {"model.rms_eps", &m.rms_eps, 1e-12, 1},
      {"model.tied", &m.tied},
      {"train.dtype", &t.dtype, 0, 0, "f32|bf16"},
      {"train.out", &t.out},
      {"train.batch", &t.batch, 1, kSize},
      {"train.micro_batch", &t.micro_batch, 1, kSize},
      {"train.steps", &t.steps, 1, kMany},
      {"train.minutes", &t.minutes, 0, 1e9},
      {"train.seed", &t.seed, 0, static_cast<double>(INT64_MAX)},
      {"train.eval_every", &t.eval_every, 0, kMany},
      {"train.eval_batches", &t.eval_batches, 1, kMany},
      {"train.save_every", &t.save_every, 0, kMany},
      {"train.keep", &t.keep, 1, kMany},
      {"train.threads", &t.threads, 0, 4096},
      {"data.files", &d.files},
      {"data.tokenizer", &d.tokenizer},
      {"data.val_fraction", &d.val_fraction, 0, 0.5},
      {"optim.lr", &o.lr, 0, 10},
      {"optim.min_lr", &o.min_lr, 0, 10},
      {"optim.warmup", &o.warmup, 0, kMany},
      {"optim.beta1", &o.beta1, 0, 0.999999},
      {"optim.beta2", &o.beta2, 0, 0.999999},
      {"optim.eps", &o.eps, 1e-30, 1},
      {"optim.weight_decay", &o.weight_decay, 0, 10},
      {"optim.clip", &o.clip, 0, 1e9},
      {"sample.prompt", &s.prompt},
      {"sample.tokens", &s.tokens, 0, kMany},
      {"sample.temperature", &s.temperature, 0, 100},
      {"sample.top_k", &s.top_k, 0, INT32_MAX},
      {"sample.top_p", &s.top_p, 1e-6, 1},
  };
}

std::vector<std::string_view> preset_names() {
  std::vector<std::string_view> names;
  for (const Preset& preset : kPresets) names.push_back(preset.name);
  return names;
}

TrainConfig resolve_config(std::string_view preset, const std::string& toml_file,
                           std::span<const std::string> assignments) {
  json tree = toml_file.empty() ? json::object() : parse_toml(toml_file);
  const std::string in_file = take_preset(tree, toml_file);
  TrainConfig config = preset_config(!preset.empty() ? preset : !in_file.empty() ? in_file : "tiny");
  apply(config, tree, "", toml_file);
  for (const std::string& assignment : assignments) apply_assignment(config, assignment);
  return config;
}

void validate(const TrainConfig& config) {
  TrainConfig checked = config;
  for (const Setting& setting : settings(checked)) check_range(setting);
  require(!config.train.out.empty(), "train.out is empty, but must name the folder of the run");
  const ModelConfig& m = config.model;
  require(m.heads % m.kv_heads == 0, "model.heads = {} must be a multiple of model.kv_heads = {}", m.heads, m.kv_heads);
  require(m.head_dim % 2 == 0, "model.head_dim = {} must be even, since rotary positions turn pairs", m.head_dim);
  require(config.train.batch % config.train.micro_batch == 0,
          "train.batch = {} must be a multiple of train.micro_batch = {}", config.train.batch,
          config.train.micro_batch);
  require(config.optim.warmup <= config.train.steps, "optim.warmup = {} is longer than train.steps = {}",
          config.optim.warmup, config.train.steps);
  require(config.optim.min_lr <= config.optim.lr, "optim.min_lr = {:g} is above optim.lr = {:g}", config.optim.min_lr,
          config.optim.lr);
}

json to_json(const TrainConfig& config) {
  TrainConfig copy = config;
  json tree = {{"preset", config.preset}};
  for (const Setting& setting : settings(copy)) {
    std::string pointer = fmt::format("/{}", setting.key);
    std::replace(pointer.begin(), pointer.end(), '.', '/');
    tree[json::json_pointer(pointer)] = value_of(setting.target);
  }
  return tree;
}

TrainConfig config_from_json(json tree) {
  TrainConfig config;
  config.preset = take_preset(tree, "the saved configuration");
  apply(config, tree, "", "the saved configuration");
  return config;
}

std::string to_toml(const TrainConfig& config) {
  TrainConfig copy = config;
  std::string text = fmt::format("preset = {}\n", json(config.preset).dump()), section;
  for (const Setting& setting : settings(copy)) {
    const std::string_view name = last_part(setting.key);
    const std::string of(setting.key.substr(0, setting.key.size() - name.size()));
    if (of != section) text += fmt::format("\n[{}]\n", of.substr(0, of.size() - 1));
    section = of;
    text +=
        fmt::format("{} = {}\n", name, value_of(setting.target).dump());  // JSON's scalars and lists are TOML's as well
  }
  return text;
}

std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates) {
  const auto distance = [&](std::string_view candidate) {
    return std::pair(edit_distance(last_part(word), last_part(candidate)), edit_distance(word, candidate));
  };
  return *std::min_element(candidates.begin(), candidates.end(),
                           [&](std::string_view a, std::string_view b) { return distance(a) < distance(b); });
}

}  // namespace tc::train
