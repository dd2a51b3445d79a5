// How the golden cases are named in our terms, where names differ: see tests/golden/README.md.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tc::testing {

struct GoldenMapping {
  std::string prefix;  // of the case's name
  std::string op;
  std::vector<std::string> passes;               // of the op; empty: all
  std::map<std::string, std::string> tensors{};  // golden name -> field
  std::map<std::string, std::string> options{};  // golden option -> field; "": the tensors already say it
  std::map<std::string, double> set{};           // what the golden case leaves unsaid
  double tolerance = 1e-12;                      // of a tensor's largest value
  std::map<std::string, double> constants{};     // inputs that the golden case leaves unsaid: one value throughout
};

// The first prefix that fits is the one meant.
inline const std::vector<GoldenMapping>& golden_mappings() {
  static const std::map<std::string, std::string> unary = {{"x", "gate"}, {"dx", "dgate"}};
  static const std::map<std::string, std::string> turned = {{"x", "q"}, {"y", "q_out"}, {"dx", "dq"}, {"dy", "dq_out"}};
  static const std::map<std::string, std::string> scaling = {
      {"theta", "base"}, {"head_dim", ""}, {"original_max_position_embeddings", "original_max_position"}};
  static const std::vector<GoldenMapping> mappings = {
      {"rmsnorm_residual", "rmsnorm", {}, {{"dresidual", "dx"}}},
      {"rmsnorm", "rmsnorm", {}},
      {"layernorm", "layernorm", {}},
      {"rope_half",
       "rope",
       {"rope_forward", "rope_backward"},
       turned,
       {{"rotary_dim", ""}, {"interleaved", ""}},
       {{"pairing", 1}}},
      {"rope_interleaved",
       "rope",
       {"rope_forward", "rope_backward"},
       turned,
       {{"rotary_dim", ""}, {"interleaved", ""}},
       {{"pairing", 2}}},
      {"rope_table", "rope_tables", {}, {}, {{"dim", ""}}, {}, 1e-9},
      {"rope_scaling_linear", "rope_tables", {}, {}, scaling, {{"scaling", 1}}, 1e-6},
      {"rope_scaling_yarn", "rope_tables", {}, {}, scaling, {{"scaling", 3}}, 1e-6},
      {"rope_scaling_llama3", "rope_tables", {}, {}, scaling, {{"scaling", 4}}, 1e-6},
      {"activation", "activation", {}, unary},
      {"gated_delta", "gated_delta", {}, {}, {{"per_channel", ""}}},
      {"gated", "activation", {}},
      {"softmax", "softmax", {"softmax_forward", "softmax_backward"}},
      {"log_softmax", "softmax", {"log_softmax_forward", "log_softmax_backward"}},
      {"cross_entropy", "cross_entropy", {}, {}, {{"class_weights", ""}}, {{"fuse_backward", 1}}},
      {"linear_cross_entropy", "linear_cross_entropy", {}, {}, {}, {}, 1e-12, {{"dloss", 1}}},
      {"embedding", "embedding", {}},
      {"gemm", "gemm", {}, {{"y", "c"}, {"dy", "dc"}}},
      {"attention", "attention", {}, {{"dalibi", "dalibi_slopes"}}},
      {"dual_chunk_attention", "dual_chunk_attention", {}},
      {"adamw", "adamw", {}},
      {"clip_grad_norm", "grad_norm", {}},
  };
  return mappings;
}

}  // namespace tc::testing
