// The frame: the shape language, validation, sized structs, overlap proofs, scratch, names.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <thread>

#include "traincore/core/arena.h"
#include "traincore/core/dispatch.h"
#include "traincore/core/schema.h"
#include "traincore/core/view.h"
#include "traincore/ops/rmsnorm/rmsnorm.h"

namespace tc {
namespace {

tc_tensor dense(void* data, std::vector<int64_t> shape, int32_t dtype = TC_DTYPE_F32) {
  return tc_tensor_dense(data, dtype, static_cast<int32_t>(shape.size()), shape.data());
}

TEST(Vocabulary, ValuesAreTheContract) {
  EXPECT_EQ(TC_ERR_NOT_INITIALIZED, -1);
  EXPECT_EQ(TC_ERR_ALREADY_INITIALIZED, -2);
  EXPECT_EQ(TC_ERR_NO_DEVICE, -3);
  EXPECT_EQ(TC_ERR_UNSUPPORTED_FAMILY, -4);
  EXPECT_EQ(TC_ERR_UNSUPPORTED_DTYPE, -5);
  EXPECT_EQ(TC_ERR_INVALID_SHAPE, -6);
  EXPECT_EQ(TC_ERR_INVALID_ARG, -7);
  EXPECT_EQ(TC_ERR_ALLOC, -8);
  EXPECT_EQ(TC_ERR_KERNEL_NOT_FOUND, -9);
  EXPECT_EQ(TC_ERR_PIPELINE, -10);
  EXPECT_EQ(TC_ERR_DISPATCH, -11);
  EXPECT_EQ(TC_ERR_INTERNAL, -99);
  const std::pair<int, const char*> dtypes[] = {{0, "f16"}, {1, "bf16"}, {2, "f32"}, {3, "i8"},    {4, "i32"},
                                                {5, "f64"}, {10, "i64"}, {11, "u8"}, {12, "bool"}, {13, "i16"}};
  for (const auto& [value, name] : dtypes) EXPECT_STREQ(tc_dtype_name(value), name);
  EXPECT_EQ(tc_dtype_size(TC_DTYPE_BF16), 2u);
  EXPECT_EQ(tc_dtype_size(7), 0u);
  EXPECT_STREQ(tc_status_string(TC_ERR_INVALID_SHAPE), "TC_ERR_INVALID_SHAPE");
  EXPECT_STREQ(tc_status_string(-42), "unknown status");
}

TEST(Numeric, RoundsToNearestEven) {
  EXPECT_EQ(bf16(1.00390625f).bits, 0x3f80);    // halfway between 1 and the next bf16: to even
  EXPECT_EQ(bf16(1.01171875f).bits, 0x3f82);    // halfway, the other way
  EXPECT_EQ(bf16(3.3961775e38f).bits, 0x7f80);  // overflow carries into the exponent: Inf
  EXPECT_TRUE(std::isnan(float(bf16(std::nanf("")))));
  EXPECT_EQ(f16(1.9999f).bits, f16(2.0f).bits);
  EXPECT_TRUE(std::isinf(float(f16(70000.0f))));
  EXPECT_EQ(f16(65519.9f).bits, 0x7bff);
  EXPECT_EQ(f16(65520.0f).bits, 0x7c00);
  EXPECT_EQ(f16(0x1p-24f).bits, 1);
  EXPECT_EQ(f16(0x1p-25f).bits, 0);  // halfway to the smallest subnormal: to even
  EXPECT_EQ(f16(0x1.8p-25f).bits, 1);
  EXPECT_EQ(f16(-0.0f).bits, 0x8000);
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    f16 h;
    h.bits = static_cast<uint16_t>(bits);
    if (std::isnan(float(h)))
      EXPECT_TRUE(std::isnan(float(f16(float(h)))));
    else
      EXPECT_EQ(f16(float(h)).bits, bits);
  }
}

TEST(ShapeLanguage, Parses) {
  constexpr Shape s("when(reduction=1) rows... | scalar");
  static_assert(s.count() == 2 && s[0].when_field == "reduction" && s[0].when_value == 1 && s[0].variadic &&
                s[1].count == 0);
  constexpr Shape t("2*ff+1 7 cols");
  static_assert(t[0].terms[0].multiply == 2 && t[0].terms[0].add == 1 && t[0].terms[0].name == "ff" &&
                t[0].terms[1].add == 7 && t[0].fits(3) && !t[0].fits(2));
}

// A pass of its own, so that every rule of the shape language can be tried without a kernel.
struct Args {
  uint32_t size;
  tc_tensor x, packed, ends, table, many, loss, y;
  int32_t reduction;
  const tc_tensor* list;
  int64_t list_count;
};
constexpr Field fields[] = {
    in("x", offsetof(Args, x), "rows... ff"),
    in("packed", offsetof(Args, packed), "rows... 2*ff").optional(),
    in("ends", offsetof(Args, ends), "n+1", dtypes({TC_DTYPE_I32})).optional(),
    in("table", offsetof(Args, table), "n ff | batch n ff", any_float).optional(),
    in("many", offsetof(Args, many), "3 ff", f32).optional(),
    out("loss", offsetof(Args, loss), "when(reduction=1) rows... | scalar", f32).optional().strided(),
    out("y", offsetof(Args, y), "rows... ff").optional().may_be("x"),
    choice("reduction", offsetof(Args, reduction), "?|none|sum"),
    list(in("list", offsetof(Args, list), "shape...", any_float).optional(), offsetof(Args, list_count)),
};
constexpr Pass pass{.name = "trial", .formula = "", .fields = fields, .args_size = sizeof(Args)};

class Validation : public ::testing::Test {
 protected:
  void SetUp() override {
    args.x = dense(memory, {2, 3, 4});
    args.reduction = 1;
  }
  std::string refusal(tc_status_t status) {
    try {
      validate(pass, &args);
    } catch (const Error& e) {
      EXPECT_EQ(e.code, status) << e.what();
      return e.what();
    }
    ADD_FAILURE() << "not refused";
    return {};
  }
  alignas(64) float memory[4096] = {};
  Args args{sizeof(Args), {}, {}, {}, {}, {}, {}, {}, 0, nullptr, 0};
};

TEST_F(Validation, BindsNames) {
  args.packed = dense(memory + 64, {2, 3, 8});
  args.ends = dense(memory + 128, {6}, TC_DTYPE_I32);
  args.table = dense(memory + 256, {9, 5, 4});
  const Dims dims = validate(pass, &args);
  EXPECT_EQ(dims["rows"], 6);
  EXPECT_EQ(dims["ff"], 4);
  EXPECT_EQ(dims["n"], 5);
  EXPECT_EQ(dims["batch"], 9);
}

TEST_F(Validation, RefusesDisagreement) {
  args.packed = dense(memory + 64, {2, 3, 6});
  EXPECT_NE(refusal(TC_ERR_INVALID_SHAPE).find("packed has ff = 3, but ff = 4 elsewhere"), std::string::npos);
  args.packed = dense(memory + 64, {2, 3, 7});
  refusal(TC_ERR_INVALID_SHAPE);
  args.packed = dense(memory + 64, {3, 2, 8});
  EXPECT_NE(refusal(TC_ERR_INVALID_SHAPE).find("rows"), std::string::npos);
  args.packed = dense(memory + 64, {6, 8});
  refusal(TC_ERR_INVALID_SHAPE);
}

TEST_F(Validation, RefusesWrongConstantAndEmptyEnds) {
  args.many = dense(memory + 64, {4, 4});
  EXPECT_NE(refusal(TC_ERR_INVALID_SHAPE).find("4 where 3 is expected"), std::string::npos);
  args.many = {};
  args.ends = dense(memory + 64, {0}, TC_DTYPE_I32);
  refusal(TC_ERR_INVALID_SHAPE);
}

TEST_F(Validation, WhenChoosesTheShape) {
  args.loss = dense(memory + 64, {2, 3});
  validate(pass, &args);
  args.reduction = 2;
  EXPECT_NE(refusal(TC_ERR_INVALID_SHAPE).find("loss has rank 2"), std::string::npos);
  args.loss = dense(memory + 64, {});
  validate(pass, &args);
}

TEST_F(Validation, RequiredChoice) {
  args.reduction = 0;
  EXPECT_NE(refusal(TC_ERR_INVALID_ARG).find("reduction is not set; choose one of none|sum"), std::string::npos);
}

TEST_F(Validation, OverlapRules) {
  args.y = args.x;
  validate(pass, &args);
  args.y.data = memory + 1;
  EXPECT_NE(refusal(TC_ERR_INVALID_ARG).find("y overlaps x in part"), std::string::npos);
  args.y = dense(memory + 64, {2, 3, 4});
  args.packed = dense(memory + 80, {2, 3, 8});
  EXPECT_NE(refusal(TC_ERR_INVALID_ARG).find("y overlaps packed"), std::string::npos);
  args.packed = {};
  args.y.stride[0] = 0;
  EXPECT_NE(refusal(TC_ERR_INVALID_ARG).find("overlaps itself"), std::string::npos);
}

TEST_F(Validation, SizesBeyond64Bits) {
  args.x.shape[0] = int64_t{1} << 33;
  args.x.shape[1] = int64_t{1} << 33;
  refusal(TC_ERR_INVALID_SHAPE);
  args.x = dense(memory, {2, 3, 4});
  args.x.stride[0] = INT64_MIN;
  refusal(TC_ERR_INVALID_SHAPE);
  args.x.shape[0] = 0;  // the stride of an empty or single extent is ignored
  validate(pass, &args);
}

TEST_F(Validation, Lists) {
  const std::vector<tc_tensor> list = {dense(memory + 64, {3}), dense(memory + 80, {0, 4}), dense(memory + 96, {2, 2})};
  args.list = list.data();
  args.list_count = 3;
  validate(pass, &args);
  std::vector<tc_tensor> strided = list;
  strided[2].stride[0] = 3;
  args.list = strided.data();
  EXPECT_NE(refusal(TC_ERR_INVALID_ARG).find("list[2] must be dense"), std::string::npos);
  args.list = nullptr;
  EXPECT_NE(refusal(TC_ERR_INVALID_ARG).find("list is NULL"), std::string::npos);
}

TEST(Overlap, PackedHalvesAndInterleavedHeadsAreApart) {
  float memory[1024];
  tc_tensor gate = dense(memory, {5, 16}), up = dense(memory + 16, {5, 16});
  gate.stride[0] = up.stride[0] = 32;
  EXPECT_FALSE(may_overlap(gate, up));
  up.data = memory + 15;
  EXPECT_TRUE(may_overlap(gate, up));
  tc_tensor q = dense(memory, {2, 3, 4, 8}), k = dense(memory + 24, {2, 1, 4, 8});  // [B, H, T, D] in rows of 32
  for (tc_tensor* t : {&q, &k}) t->stride[0] = 4 * 32, t->stride[1] = 8, t->stride[2] = 32;
  EXPECT_FALSE(may_overlap(q, k));
  k.data = memory + 20;
  EXPECT_TRUE(may_overlap(q, k));
}

TEST(Overlap, Itself) {
  float memory[64];
  tc_tensor t = dense(memory, {3, 4});
  EXPECT_FALSE(may_overlap_itself(t));
  t.stride[0] = 3;
  EXPECT_TRUE(may_overlap_itself(t));
  t.stride[0] = -4;
  EXPECT_FALSE(may_overlap_itself(t));
  t.shape[0] = 1, t.stride[0] = 0;
  EXPECT_FALSE(may_overlap_itself(t));
}

class SizedCall : public ::testing::Test {
 protected:
  void SetUp() override {
    args.x = dense(x, {2, 2});
    args.y = dense(y, {2, 2});
    args.eps = 1e-6;
  }
  float x[4] = {3, 4, 1, 1}, y[4] = {};
  tcx_rmsnorm_forward_args args = tcx_rmsnorm_forward_args_default();
};

TEST_F(SizedCall, KnownValue) {
  ASSERT_EQ(tcx_rmsnorm_forward(&args, nullptr), TC_OK);
  EXPECT_NEAR(y[0], 0.848528, 1e-6);
  EXPECT_NEAR(y[1], 1.131371, 1e-6);
}

TEST_F(SizedCall, AnOlderCallersTailTakesItsDefault) {
  args.weight_offset = 55;  // beyond what the older header knew
  args.size = offsetof(tcx_rmsnorm_forward_args, weight_offset);
  float weight[2] = {1, 1};
  args.weight = dense(weight, {2});
  ASSERT_EQ(tcx_rmsnorm_forward(&args, nullptr), TC_OK) << tc_last_error();
  EXPECT_NEAR(y[0], 0.848528, 1e-6);
}

TEST_F(SizedCall, SizesThatCannotBe) {
  for (const uint32_t size : {0u, 3u, static_cast<uint32_t>(offsetof(tcx_rmsnorm_forward_args, y)) + 5}) {
    args.size = size;
    EXPECT_EQ(tcx_rmsnorm_forward(&args, nullptr), TC_ERR_INVALID_ARG) << size;
    EXPECT_NE(std::string(tc_last_error()).find("size"), std::string::npos);
  }
  EXPECT_EQ(tcx_rmsnorm_forward(nullptr, nullptr), TC_ERR_INVALID_ARG);
}

TEST_F(SizedCall, ANewerCallersUnknownTailMustBeZero) {
  struct Newer {
    tcx_rmsnorm_forward_args known;
    int64_t unknown;
  } newer{args, 0};
  newer.known.size = sizeof newer;
  EXPECT_EQ(tcx_rmsnorm_forward(&newer.known, nullptr), TC_OK);
  newer.unknown = 1;
  EXPECT_EQ(tcx_rmsnorm_forward(&newer.known, nullptr), TC_ERR_INVALID_ARG);
}

TEST_F(SizedCall, TheCxxFaceThrows) {
  args.eps = -1;
  try {
    rmsnorm_forward(args);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code, TC_ERR_INVALID_ARG);
    EXPECT_STREQ(e.what(), "rmsnorm_forward: eps is -1, but must be > 0");
  }
}

TEST_F(SizedCall, TheLastErrorIsThisThreads) {
  args.eps = 0;
  tcx_rmsnorm_forward(&args, nullptr);
  const std::string mine = tc_last_error();
  std::thread([&] { EXPECT_STREQ(tc_last_error(), ""); }).join();
  EXPECT_EQ(mine, tc_last_error());
}

TEST(ReadErrors, OnTheCpuThereAreNone) {
  uint32_t bits = 7;
  EXPECT_EQ(tc_read_errors(nullptr, &bits), TC_OK);
  EXPECT_EQ(bits, 0u);
  EXPECT_EQ(tc_read_errors(nullptr, nullptr), TC_ERR_INVALID_ARG);
}

TEST(Scratch, NestsAndGrows) {
  const ThreadScratch outer(100);
  std::memset(outer.data(), 1, 100);
  {
    const ThreadScratch inner(1 << 20);
    std::memset(inner.data(), 2, 1 << 20);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(inner.data()) % 64, 0u);
  }
  EXPECT_EQ(static_cast<char*>(outer.data())[99], 1);
}

TEST(ArenaSize, IsWhatItHandsOut) {
  const auto carve = [](Arena& a) { return std::pair(a.take<float>(3), a.take<char>(65)); };
  Arena counting;
  carve(counting);
  EXPECT_EQ(counting.used(), 64u + 128u);
  EXPECT_THROW(counting.take<double>(INT64_MAX), Error);
  EXPECT_THROW(counting.take<double>(-1), Error);
}

TEST(Rows, AnyLeadingStrides) {
  float memory[256];
  for (int i = 0; i < 256; ++i) memory[i] = static_cast<float>(i);
  tc_tensor t = dense(memory + 100, {2, 3, 4});
  t.stride[0] = -50, t.stride[1] = 7;
  const auto rows = rows_of<const float>(t);
  ASSERT_EQ(rows.count, 6);
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 3; ++j) EXPECT_EQ(rows[i * 3 + j][2], 100 - 50 * i + 7 * j + 2);
  EXPECT_TRUE(rows_of<float>(dense(memory, {2, 3, 4})).dense());
  EXPECT_FALSE(rows.dense());
}

}  // namespace
}  // namespace tc
