// Embedding: what the schema-driven checks cannot say.
#include <gtest/gtest.h>

#include <vector>

#include "tests/tensors.h"
#include "traincore/ops/embedding/embedding.h"

namespace tc {
namespace {

TEST(Embedding, IdsOutsideTheVocabularyAreRefused) {
  std::vector<float> weight(5 * 3, 1), y(4 * 3, -7), dweight(5 * 3, -7);
  for (const int64_t bad : {int64_t{5}, int64_t{-1}, int64_t{1} << 40}) {
    std::vector<int64_t> ids = {0, 4, bad, 1};
    auto f = tcx_embedding_forward_args_default();
    f.ids = view(ids), f.weight = view(weight, {5, 3}), f.y = view(y, {4, 3});
    EXPECT_NE(refusal(TC_ERR_INVALID_ARG, [&] { embedding_forward(f); }).find("ids[2]"), std::string::npos);
    auto b = tcx_embedding_backward_args_default();
    b.ids = f.ids, b.dy = f.y, b.dweight = view(dweight, {5, 3});
    EXPECT_NE(refusal(TC_ERR_INVALID_ARG, [&] { embedding_backward(b); }).find("ids[2]"), std::string::npos);
  }
  for (const float v : y) EXPECT_EQ(v, -7);
  for (const float v : dweight) EXPECT_EQ(v, -7);
}

// A sum kept in bf16 stops at 256.
TEST(Embedding, ManyOccurrencesAddUp) {
  std::vector<int32_t> ids(50001, 1);
  std::vector<bf16> dy(ids.size() * 2, bf16(1.0f)), rounded(6);
  std::vector<float> exact(6);
  auto a = tcx_embedding_backward_args_default();
  a.ids = view(ids), a.dy = view(dy, {50001, 2}), a.dweight = view(exact, {3, 2});
  embedding_backward(a);
  EXPECT_EQ(exact, (std::vector<float>{0, 0, 50001, 50001, 0, 0}));
  a.dweight = view(rounded, {3, 2});
  embedding_backward(a);
  EXPECT_EQ(float(rounded[2]), float(bf16(50001.0f)));
}

}  // namespace
}  // namespace tc
