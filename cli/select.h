// Which ops and dtypes a command was asked for; a name that does not exist is refused with those that do.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "traincore/core/schema.h"
#include "traincore/testing/cases.h"

namespace tc::cli {

// All of them if no name is given.
std::vector<const testing::OpCases*> select_ops(std::string_view command, const std::vector<std::string>& names);
std::vector<OpEntry> select_entries(std::string_view command, const std::vector<std::string>& names);
int32_t select_dtype(std::string_view command, std::string_view name);  // f32, bf16 or f16
std::vector<int32_t> select_dtypes(std::string_view command, const std::vector<std::string>& names);
int select_gpu(std::string_view command, std::string_view name);  // of cuda or cuda:N, which need not be here; cpu: -1
int32_t select_device(std::string_view command, std::string_view name);  // cpu or cuda; NO_DEVICE: there is none here
bool has_gpu_kernel(const testing::OpCases& op);

std::string joined(const std::vector<std::string>& words, std::string_view separator = ", ");

}  // namespace tc::cli
