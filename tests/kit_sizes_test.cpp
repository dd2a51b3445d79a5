// Every call of traincore/training.h that takes sizes refuses those that its buffers do not hold.
#include <functional>

#include "kit_test.h"

namespace tc::testing {
namespace {

// Each size <= 0 is INVALID_ARG, each buffer one byte short INVALID_SHAPE, and nothing is written.
struct Sized {
  const char* name;
  std::vector<size_t> bytes;  // of the buffers, in order
  std::vector<int> sizes;     // in order
  std::function<tc_status_t(tc_context*, const std::vector<tc_buffer*>&, const std::vector<int>&)> call;
};
using Bs = const std::vector<tc_buffer*>&;
using Ns = const std::vector<int>&;
const Sized kSized[] = {
    {"rmsnorm_forward",
     {30, 10, 30, 12},
     {3, 5},
     [](auto* c, Bs b, Ns n) { return tc_rmsnorm_forward(c, b[0], b[1], b[2], b[3], n[0], n[1], 1e-5f); }},
    {"rmsnorm_backward",
     {30, 10, 30, 12, 30, 20},
     {3, 5},
     [](auto* c, Bs b, Ns n) { return tc_rmsnorm_backward(c, b[0], b[1], b[2], b[3], b[4], b[5], n[0], n[1]); }},
    {"layernorm_forward",
     {30, 10, 10, 30, 12, 12},
     {3, 5},
     [](auto* c, Bs b, Ns n) {
       return tc_layernorm_forward(c, b[0], b[1], b[2], b[3], b[4], b[5], n[0], n[1], 1e-5f);
     }},
    {"layernorm_backward",
     {30, 10, 30, 12, 12, 30},
     {3, 5},
     [](auto* c, Bs b, Ns n) { return tc_layernorm_backward(c, b[0], b[1], b[2], b[3], b[4], b[5], n[0], n[1]); }},
    {"layernorm_backward_params",
     {30, 30, 12, 12, 20, 20},
     {3, 5},
     [](auto* c, Bs b, Ns n) {
       return tc_layernorm_backward_params(c, b[0], b[1], b[2], b[3], b[4], b[5], n[0], n[1]);
     }},
    {"fused_rmsnorm_gemv",
     {24, 8, 40, 30},
     {3, 5, 4},
     [](auto* c, Bs b, Ns n) { return tc_fused_rmsnorm_gemv(c, b[0], b[1], b[2], b[3], n[0], n[1], n[2], 1e-5f); }},
    {"fused_layernorm_gemv",
     {24, 8, 8, 40, 30},
     {3, 5, 4},
     [](auto* c, Bs b, Ns n) {
       return tc_fused_layernorm_gemv(c, b[0], b[1], b[2], b[3], b[4], n[0], n[1], n[2], 1e-5f);
     }},
    {"rope_forward",
     {2 * 3 * 4 * 6 * 2, 48, 48},
     {2, 3, 4, 6},
     [](auto* c, Bs b, Ns n) { return tc_rope_forward(c, b[0], b[1], b[2], n[0], n[1], n[2], n[3]); }},
    {"rope_backward",
     {2 * 3 * 4 * 6 * 2, 48, 48},
     {2, 3, 4, 6},
     [](auto* c, Bs b, Ns n) { return tc_rope_backward(c, b[0], b[1], b[2], n[0], n[1], n[2], n[3]); }},
    {"rope_tables",
     {48, 48},
     {4, 6},
     [](auto* c, Bs b, Ns n) { return tc_rope_tables(c, b[0], b[1], n[0], n[1], 1e4, 1); }},
    {"swiglu_forward",
     {14, 14, 14},
     {7},
     [](auto* c, Bs b, Ns n) { return tc_swiglu_forward(c, b[0], b[1], b[2], n[0]); }},
    {"swiglu_backward",
     {14, 14, 14, 14, 14},
     {7},
     [](auto* c, Bs b, Ns n) { return tc_swiglu_backward(c, b[0], b[1], b[2], b[3], b[4], n[0]); }},
    {"softmax_forward",
     {30, 30},
     {3, 5},
     [](auto* c, Bs b, Ns n) { return tc_softmax_forward(c, b[0], b[1], n[0], n[1]); }},
    {"softmax_backward",
     {30, 30, 30},
     {3, 5},
     [](auto* c, Bs b, Ns n) { return tc_softmax_backward(c, b[0], b[1], b[2], n[0], n[1]); }},
    {"adamw_step",
     {28, 28, 28, 14},
     {7},
     [](auto* c, Bs b, Ns n) {
       return tc_adamw_step(c, b[0], b[1], b[2], b[3], TC_DTYPE_F16, n[0], 1e-3f, 0.9f, 0.99f, 1e-8f, 0, 1, 1);
     }},
    {"adamw_step_bf16",
     {14, 28, 28, 28},
     {7},
     [](auto* c, Bs b, Ns n) {
       return tc_adamw_step_bf16(c, b[0], b[1], b[2], b[3], TC_DTYPE_F32, n[0], 1e-3f, 0.9f, 0.99f, 1e-8f, 0, 1, 1, 5);
     }},
    {"add", {14, 14, 14}, {7}, [](auto* c, Bs b, Ns n) { return tc_add(c, b[0], b[1], b[2], n[0]); }},
    {"split_heads",
     {2 * 3 * 40 * 2, 2 * 4 * 3 * 10, 2 * 2 * 3 * 10, 2 * 2 * 3 * 10},
     {2, 3, 4, 2, 5},
     [](auto* c, Bs b, Ns n) { return tc_split_heads(c, b[0], b[1], b[2], b[3], n[0], n[1], n[2], n[3], n[4]); }},
    {"merge_heads",
     {2 * 4 * 3 * 10, 2 * 2 * 3 * 10, 2 * 2 * 3 * 10, 2 * 3 * 40 * 2},
     {2, 3, 4, 2, 5},
     [](auto* c, Bs b, Ns n) { return tc_merge_heads(c, b[0], b[1], b[2], b[3], n[0], n[1], n[2], n[3], n[4]); }},
};

class KitSized : public Kit, public ::testing::WithParamInterface<Sized> {};

TEST_P(KitSized, RefusesSizesAndBuffersThatDoNotFit) {
  const Sized& p = GetParam();
  const auto make = [&](const std::vector<size_t>& bytes) {
    std::vector<tc_buffer*> b;
    for (const size_t n : bytes) {
      b.push_back(empty(n));
      std::memset(mapped<char>(b.back()), 0x11, n);
    }
    return b;
  };
  std::vector<tc_buffer*> buffers = make(p.bytes);
  const auto refuse = [&](tc_status_t want, const std::vector<tc_buffer*>& b, const std::vector<int>& sizes) {
    expect_refused(want, p.call(ctx, b, sizes), p.name);
    for (tc_buffer* buffer : b)
      for (size_t i = 0; i < tc_buffer_size(buffer); ++i) ASSERT_EQ(mapped<char>(buffer)[i], 0x11) << "was written";
  };
  for (size_t i = 0; i < p.sizes.size(); ++i)
    for (const int bad : {0, -1, INT32_MIN}) {
      auto sizes = p.sizes;
      sizes[i] = bad;
      refuse(TC_ERR_INVALID_ARG, buffers, sizes);
    }
  refuse(TC_ERR_INVALID_SHAPE, buffers, std::vector<int>(p.sizes.size(), INT32_MAX - 1));
  for (size_t i = 0; i < buffers.size(); ++i) {
    auto other = buffers;
    other[i] = nullptr;
    refuse(TC_ERR_INVALID_ARG, other, p.sizes);
    auto bytes = p.bytes;
    --bytes[i];
    refuse(TC_ERR_INVALID_SHAPE, make(bytes), p.sizes);
  }
  EXPECT_EQ(p.call(ctx, buffers, p.sizes), TC_OK) << tc_last_error();
}

INSTANTIATE_TEST_SUITE_P(All, KitSized, ::testing::ValuesIn(kSized),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tc::testing
