#include "traincore/train/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "traincore/core/dispatch.h"
#include "traincore/core/fail.h"
#include "traincore/core/view.h"

namespace tc::train {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::string_view kStep = "step-";
constexpr const char* kConfig = "config.json";
constexpr const char* kModel = "model.safetensors";
constexpr const char* kOptimizer = "optimizer.safetensors";
constexpr const char* kTokenizer = "tokenizer.model";
constexpr const char* kState = "state.json";
constexpr const char* kManifest = "manifest.json";
constexpr const char* kLatest = "latest";

std::string join(const std::string& folder, std::string_view name) { return (fs::path(folder) / name).string(); }

json state_json(const TrainState& state) {
  return {{"step", state.step},
          {"cursor", {{"epoch", state.cursor.epoch}, {"index", state.cursor.index}}},
          {"data_tokens", state.data_tokens},
          {"random_counter", state.random_counter},
          {"best_validation_loss", state.best_validation_loss ? json(*state.best_validation_loss) : json()},
          {"config", to_json(state.config)}};
}

TrainState read_state(const std::string& path) {
  const json tree = read_json(path);
  try {
    TrainState state;
    tree.at("step").get_to(state.step);
    tree.at("cursor").at("epoch").get_to(state.cursor.epoch);
    tree.at("cursor").at("index").get_to(state.cursor.index);
    tree.at("data_tokens").get_to(state.data_tokens);
    tree.at("random_counter").get_to(state.random_counter);
    if (const json& best = tree.at("best_validation_loss"); !best.is_null())
      state.best_validation_loss = best.get<double>();
    state.config = config_from_json(tree.at("config"));
    return state;
  } catch (const json::exception& e) {
    fail(TC_ERR_INVALID_ARG, "{}: not a training state: {}", path, reason_of(e));
  }
}

// The step of a checkpoint's folder name, or nothing for any other name.
std::optional<int64_t> step_of(const std::string& name) {
  int64_t step = 0;
  if (!name.starts_with(kStep)) return {};
  const auto [end, error] = std::from_chars(name.data() + kStep.size(), name.data() + name.size(), step);
  return error == std::errc() && end == name.data() + name.size() ? std::optional(step) : std::nullopt;
}

struct Found {
  int64_t step;
  std::string path;
};

// The checkpoints of a run, the highest step first.
std::vector<Found> find_checkpoints(const std::string& run) {
  std::vector<Found> found;
  std::error_code none;  // no folder yet: no checkpoints
  for (const auto& entry : fs::directory_iterator(run, none))
    if (const auto step = step_of(entry.path().filename().string())) found.push_back({*step, entry.path().string()});
  std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) { return a.step > b.step; });
  return found;
}

// Folders of saves and removals that did not end.
void remove_leftovers(const std::string& run) {
  std::error_code ignored;
  std::vector<fs::path> left;
  for (const auto& entry : fs::directory_iterator(run, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(kTemporary) && step_of(name.substr(0, name.size() - kTemporary.size())))
      left.push_back(entry.path());
  }
  for (const fs::path& path : left) fs::remove_all(path, ignored);
}

// Writes the files of one checkpoint and, last, the list of them.
class Writer {
 public:
  explicit Writer(const StagedFolder& folder) : folder_(folder) {}
  void tensors(const char* name, std::span<const NamedTensor> tensors) {
    const Metadata format{{"format", "pt"}};  // transformers refuses a file without it
    put(name, [&](OutputFile& file) { write_safetensors(file, tensors, format); });
  }
  void text(const char* name, const std::string& content) {
    put(name, [&](OutputFile& file) { file.write(content); });
  }
  void tree(const char* name, const json& tree) { text(name, tree.dump(2) + "\n"); }
  void manifest() { tree(kManifest, {{"files", json(files_)}}); }

 private:
  template <class F>
  void put(const char* name, F&& body) {
    OutputFile file(folder_.file(name));
    body(file);
    std::string hash = file.finish();
    files_[name] = {{"bytes", file.size()}, {"sha256", std::move(hash)}};
  }
  const StagedFolder& folder_;
  json files_ = json::object();
};

void check_complete(const Snapshot& snapshot) {
  const std::vector<TensorSpec> specs = llama_tensors(snapshot.state.config.model);
  require(specs.size() == snapshot.weights.size(), "save_checkpoint: {} weights are given, but the model has {}",
          snapshot.weights.size(), specs.size());
  for (size_t i = 0; i < specs.size(); ++i)
    require(specs[i].name == snapshot.weights[i].name, "save_checkpoint: weight {} is given where {} belongs",
            snapshot.weights[i].name, specs[i].name);
}

// One sentence for each file that is not as the manifest says.
std::vector<std::string> manifest_problems(const std::string& folder) {
  std::vector<std::string> problems;
  const std::string path = join(folder, kManifest);
  const json files = read_json(path).value("files", json());
  require(files.is_object() && !files.empty(), "{}: there are no \"files\"", path);
  for (const auto& [name, entry] : files.items()) {
    const bool complete = entry.is_object() && entry.contains("bytes") && entry.contains("sha256");
    require(complete && name.find('/') == std::string::npos, "{}: the entry of {} is malformed", path, name);
    const std::string file = join(folder, name);
    std::error_code missing;
    const auto bytes = fs::file_size(file, missing);
    if (missing)
      problems.push_back(fmt::format("{} is missing", file));
    else if (entry["bytes"] != bytes)
      problems.push_back(fmt::format("{} has {} bytes instead of {}", file, bytes, entry["bytes"].dump()));
    else if (entry["sha256"] != sha256_of_file(file))
      problems.push_back(
          fmt::format("{} was changed after it was saved: its SHA-256 is not that of {}", file, kManifest));
  }
  return problems;
}

bool has(const std::string& folder, std::string_view file) { return fs::exists(join(folder, file)); }

// What optimizer.safetensors lacks for the weights.
std::vector<std::string> optimizer_problems(const std::string& folder, const ModelConfig& model,
                                            const LlamaWeights& weights, const SafetensorsFile& optimizer) {
  std::vector<std::string> problems;
  for (const TensorSpec& spec : llama_tensors(model)) {
    const tc_tensor* weight = weights.find(spec.name);
    for (const std::string prefix : {"m.", "v.", "master."}) {
      if (prefix == "master." && (!weight || weight->dtype == TC_DTYPE_F32)) continue;
      const tc_tensor* tensor = optimizer.find(prefix + spec.name);
      if (!tensor || tensor->dtype != TC_DTYPE_F32 ||
          !std::equal(tensor->shape, tensor->shape + tensor->rank, spec.shape.begin(), spec.shape.end()))
        problems.push_back(fmt::format("{}: {}{} is missing or not an f32 tensor of shape [{}]",
                                       join(folder, kOptimizer), prefix, spec.name, fmt::join(spec.shape, ", ")));
    }
  }
  return problems;
}

void throw_first(const std::vector<std::string>& problems) {
  if (problems.empty()) return;
  const std::string more = problems.size() > 1 ? fmt::format(" (and {} more)", problems.size() - 1) : "";
  fail(TC_ERR_INVALID_ARG, "{}{}", problems.front(), more);
}

// The folder with its manifest checked, if it has one: what every other member of Checkpoint is read from.
std::string checked_folder(std::string folder) {
  require(fs::is_directory(folder), "{} is not a folder with a checkpoint", folder);
  if (has(folder, kManifest)) throw_first(manifest_problems(folder));
  return folder;
}

// A sentence if a value is NaN or infinite.
std::optional<std::string> non_finite(const std::string& name, const tc_tensor& tensor) {
  std::optional<std::string> sentence;
  const int64_t count = element_count(tensor);
  with_type(Types<float, bf16, f16, double>{}, tensor.dtype, [&]<class T>() {
    const T* values = static_cast<const T*>(tensor.data);
    const auto bad = [](T value) {
      return !std::isfinite(static_cast<std::conditional_t<sizeof(T) == 8, double, float>>(value));
    };
    const int64_t all = std::count_if(values, values + count, bad);
    if (all)
      sentence = fmt::format("{}: {} of {} values are NaN or infinite, the first at index {}", name, all, count,
                             std::find_if(values, values + count, bad) - values);
  });
  return sentence;
}

void check_values(Verification& result, std::span<const NamedTensor> tensors) {
  for (const NamedTensor& t : tensors) {
    result.tensors += 1;
    result.values += element_count(t.tensor);
    if (auto sentence = non_finite(t.name, t.tensor)) result.problems.push_back(*sentence);
  }
}

void append(std::vector<std::string>& all, const std::vector<std::string>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

void verify_tensors(const std::string& folder, Verification& result) {
  const ModelConfig model = read_llama_json(join(folder, kConfig));
  const LlamaWeights weights(folder);
  append(result.problems, weights.problems(model));
  check_values(result, weights.tensors());
  if (!has(folder, kOptimizer)) return;
  const SafetensorsFile optimizer(join(folder, kOptimizer));
  append(result.problems, optimizer_problems(folder, model, weights, optimizer));
  check_values(result, optimizer.tensors());
}

}  // namespace

std::string save_checkpoint(const Snapshot& snapshot) {
  check_complete(snapshot);
  const TrainState& state = snapshot.state;
  const std::string& run = state.config.train.out;
  const std::string name = fmt::format("{}{:06}", kStep, state.step);
  remove_leftovers(run);
  StagedFolder folder(join(run, name));
  Writer writer(folder);
  writer.tree(kConfig,
              to_llama_json(state.config.model, snapshot.weights[0].tensor.dtype, snapshot.tokenizer.special_tokens()));
  writer.tensors(kModel, snapshot.weights);
  writer.tensors(kOptimizer, snapshot.optimizer);
  if (!snapshot.tokenizer.model().empty()) writer.text(kTokenizer, snapshot.tokenizer.model());
  writer.tree(kState, state_json(state));
  writer.manifest();
  folder.commit();
  link_atomically(join(run, kLatest), name);
  int64_t kept = 0;  // higher steps are of a future that a resumed run may yet replace
  for (const Found& found : find_checkpoints(run))
    if (found.step <= state.step && ++kept > state.config.train.keep) remove_folder(found.path);
  return join(run, name);
}

Checkpoint::Checkpoint(std::string folder)
    : folder_(checked_folder(std::move(folder))), model_(read_llama_json(join(folder_, kConfig))), weights_(folder_) {
  throw_first(weights_.problems(model_));
  if (!has(folder_, kState)) return;
  optimizer_.emplace(join(folder_, kOptimizer));
  throw_first(optimizer_problems(folder_, model_, weights_, *optimizer_));
  state_ = read_state(join(folder_, kState));
}

const tc_tensor& Checkpoint::weight(std::string_view name) const {
  const tc_tensor* tensor = weights_.find(name);
  require(tensor != nullptr, "{}: there is no tensor {}", folder_, name);
  return *tensor;
}

std::unique_ptr<Tokenizer> Checkpoint::tokenizer() const {
  if (has(folder_, kTokenizer)) return make_tokenizer(join(folder_, kTokenizer));
  require(resumable(), "{} has no {}, so what its token ids stand for is unknown", folder_, kTokenizer);
  return make_tokenizer("");
}

const TrainState& Checkpoint::state() const {
  require(state_.has_value(), "{} holds a model but no training state, so a run cannot be resumed from it", folder_);
  return *state_;
}

const tc_tensor& Checkpoint::optimizer(std::string_view name) const {
  const tc_tensor* tensor = optimizer_ ? optimizer_->find(name) : nullptr;
  require(tensor != nullptr, "{}: there is no optimizer tensor {}", folder_, name);
  return *tensor;
}

std::optional<Checkpoint> open_newest(const std::string& run, std::vector<std::string>& skipped) {
  std::vector<Found> candidates = find_checkpoints(run);
  std::error_code none;
  const std::string latest = fs::read_symlink(join(run, kLatest), none).string();
  std::stable_partition(candidates.begin(), candidates.end(),
                        [&](const Found& found) { return fs::path(found.path).filename() == latest; });
  for (const Found& found : candidates) {
    try {
      return Checkpoint(found.path);
    } catch (const Error& e) {
      skipped.push_back(e.what());
    }
  }
  return {};
}

Checkpoint open_model(const std::string& path, std::vector<std::string>& skipped) {
  if (has(path, kConfig)) return Checkpoint(path);
  std::optional<Checkpoint> newest = open_newest(path, skipped);
  if (!newest && !skipped.empty()) throw_first(skipped);
  require(newest.has_value(), "{} holds neither a model ({}) nor checkpoints of a run", path, kConfig);
  return *std::move(newest);
}

namespace {

void verify_into(Verification& result, const std::string& folder) {
  const auto attempt = [&](auto&& body) {
    try {
      body();
    } catch (const std::exception& e) {
      result.problems.push_back(e.what());
    }
  };
  if (has(folder, kManifest))
    attempt([&] { append(result.problems, manifest_problems(folder)); });
  else
    result.notes.push_back(
        fmt::format("{} has no {}, so its files could not be compared with what was saved", folder, kManifest));
  attempt([&] { verify_tensors(folder, result); });
  if (has(folder, kState))
    attempt([&] { read_state(join(folder, kState)); });
  else
    result.notes.push_back(fmt::format("{} has no {}: a model, but no run to resume", folder, kState));
}

}  // namespace

Verification verify_checkpoint(const std::string& folder) {
  require(fs::is_directory(folder), "{} is not a folder", folder);
  Verification result;
  const std::vector<Found> of_run = has(folder, kConfig) ? std::vector<Found>{} : find_checkpoints(folder);
  for (const Found& found : of_run) verify_into(result, found.path);
  if (of_run.empty()) verify_into(result, folder);
  return result;
}

}  // namespace tc::train
