#include "cli/select.h"

#include <charconv>

#include "traincore/core/fail.h"
#include "traincore/testing/check.h"
#include "traincore/testing/gpu.h"

namespace tc::cli {

std::string joined(const std::vector<std::string>& words, std::string_view separator) {
  std::string text;
  for (const std::string& word : words) text.append(text.empty() ? "" : separator).append(word);
  return text;
}

std::vector<OpEntry> select_entries(std::string_view command, const std::vector<std::string>& names) {
  std::vector<OpEntry> all(all_ops().begin(), all_ops().end()), chosen;
  std::vector<std::string> known;
  for (const OpEntry& op : all) known.emplace_back(op.name);
  for (const std::string& name : names) {
    const auto found = std::find_if(all.begin(), all.end(), [&](const OpEntry& op) { return op.name == name; });
    if (found == all.end())
      fail(TC_ERR_INVALID_ARG, "{}: there is no op {}; these are: {}", command, name, joined(known));
    chosen.push_back(*found);
  }
  return names.empty() ? all : chosen;
}

std::vector<const testing::OpCases*> select_ops(std::string_view command, const std::vector<std::string>& names) {
  std::vector<const testing::OpCases*> chosen;
  for (const OpEntry& op : select_entries(command, names)) chosen.push_back(testing::find_op(op.name));
  return chosen;
}

int32_t select_dtype(std::string_view command, std::string_view name) {
  for (const int32_t d : {TC_DTYPE_F32, TC_DTYPE_BF16, TC_DTYPE_F16})
    if (name == tc_dtype_name(d)) return d;
  fail(TC_ERR_UNSUPPORTED_DTYPE, "{}: --dtype {}: choose from f32, bf16, f16", command, name);
}

namespace {

// Of "cuda" or "cuda:N"; -1 if it is neither.
int gpu_index(std::string_view name) {
  constexpr std::string_view kPrefix = "cuda:";
  if (name == "cuda") return 0;
  if (!name.starts_with(kPrefix)) return -1;
  int index = -1;
  const char* const end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + kPrefix.size(), end, index);
  return error == std::errc() && stop == end ? index : -1;
}

}  // namespace

int select_gpu(std::string_view command, std::string_view name) {
  const int index = name == "cpu" ? -1 : gpu_index(name);
  if (index < 0 && name != "cpu")
    fail(TC_ERR_INVALID_ARG, "{}: --device {}: choose from cpu, cuda, cuda:1, ...", command, name);
  return index;
}

int32_t select_device(std::string_view command, std::string_view name) {
  const int index = select_gpu(command, name);
  if (index < 0) return TC_CPU;
#ifndef TC_WITH_CUDA
  fail(TC_ERR_NO_DEVICE, "{}: --device cuda: this build has no GPU kernels; configure with -DTC_ENABLE_CUDA=ON",
       command);
#endif
  if (testing::gpu_count() == 0)
    fail(TC_ERR_NO_DEVICE, "{}: --device cuda: there is no GPU here that CUDA can use", command);
  testing::use_gpu(index);
  return TC_CUDA;
}

bool has_gpu_kernel(const testing::OpCases& op) {
  for (const OpEntry& entry : all_ops())
    for (const Pass& pass : entry.passes)
      if (entry.name == op.name && pass.cuda) return true;
  return false;
}

std::vector<int32_t> select_dtypes(std::string_view command, const std::vector<std::string>& names) {
  std::vector<int32_t> dtypes;
  for (const std::string& name : names) dtypes.push_back(select_dtype(command, name));
  return dtypes;
}

}  // namespace tc::cli
