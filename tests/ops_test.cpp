// Promises of the list of ops as a whole.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "traincore/core/schema.h"

namespace tc {
namespace {

TEST(Ops, EveryForwardHasABackward) {
  std::set<std::string> names;
  for (const OpEntry& op : all_ops())
    for (const Pass& pass : op.passes) names.emplace(pass.name);
  for (const std::string& name : names) {
    const size_t at = name.rfind("_forward");
    EXPECT_TRUE(at == std::string::npos || names.contains(name.substr(0, at) + "_backward")) << name;
  }
}

TEST(Ops, EveryPassServesTheCpuAndSaysWhatItComputes) {
  for (const OpEntry& op : all_ops())
    for (const Pass& pass : op.passes) {
      EXPECT_NE(pass.cpu, nullptr) << pass.name;
      EXPECT_FALSE(pass.formula.empty()) << pass.name;
    }
}

TEST(Ops, EveryGpuKernelIsExplained) {
  for (const OpEntry& op : all_ops())
    for (const Pass& pass : op.passes) EXPECT_TRUE(pass.cuda_explain || !pass.cuda) << pass.name;
}

}  // namespace
}  // namespace tc
