// Tensors of other frameworks, and the schema that other languages are generated from.
#include "traincore/core/interop.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <nlohmann/json.hpp>

#include "traincore/core/schema.h"
#include "traincore/ops/rmsnorm/rmsnorm.h"

namespace tc {
namespace {

struct Source {
  std::array<int64_t, 9> shape{3, 7}, strides{14, 2};
  std::array<float, 64> values{};
  DLTensor t{};
  Source() {
    t.data = values.data();
    t.device = {kDLCPU, 0};
    t.ndim = 2;
    t.dtype = {kDLFloat, 32, 1};
    t.shape = shape.data();
    t.strides = strides.data();
  }
};

TEST(DLPack, StridesAndOffsetAreKept) {
  Source s;
  s.t.byte_offset = 8;
  tc_tensor t{};
  ASSERT_EQ(tc_tensor_from_dlpack(&s.t, &t), TC_OK);
  EXPECT_EQ(t.data, s.values.data() + 2);
  EXPECT_EQ(t.rank, 2);
  EXPECT_EQ(t.shape[0], 3);
  EXPECT_EQ(t.shape[1], 7);
  EXPECT_EQ(t.stride[0], 14);
  EXPECT_EQ(t.stride[1], 2);
  EXPECT_EQ(t.dtype, TC_DTYPE_F32);
  EXPECT_EQ(t.device, TC_CPU);
}

TEST(DLPack, NullStridesMeanDense) {
  Source s;
  s.t.strides = nullptr;
  tc_tensor t{};
  ASSERT_EQ(tc_tensor_from_dlpack(&s.t, &t), TC_OK);
  EXPECT_EQ(t.stride[0], 7);
  EXPECT_EQ(t.stride[1], 1);
}

TEST(DLPack, ScalarAndEmpty) {
  Source s;
  tc_tensor t{};
  s.t.ndim = 0;
  s.t.shape = s.t.strides = nullptr;
  ASSERT_EQ(tc_tensor_from_dlpack(&s.t, &t), TC_OK);
  EXPECT_EQ(t.rank, 0);
  EXPECT_EQ(t.data, s.values.data());
  Source empty;
  empty.shape[0] = 0;
  empty.t.data = nullptr;
  empty.t.byte_offset = 16;
  ASSERT_EQ(tc_tensor_from_dlpack(&empty.t, &t), TC_OK);
  EXPECT_EQ(t.data, nullptr);
  EXPECT_EQ(t.stride[0], 7);  // dense, whatever the producer wrote: NumPy writes 0
  EXPECT_EQ(t.stride[1], 1);
}

TEST(DLPack, DTypes) {
  const std::tuple<int, int, int32_t> dtypes[] = {{2, 16, TC_DTYPE_F16}, {4, 16, TC_DTYPE_BF16}, {2, 32, TC_DTYPE_F32},
                                                  {2, 64, TC_DTYPE_F64}, {0, 8, TC_DTYPE_I8},    {0, 16, TC_DTYPE_I16},
                                                  {0, 32, TC_DTYPE_I32}, {0, 64, TC_DTYPE_I64},  {1, 8, TC_DTYPE_U8},
                                                  {6, 8, TC_DTYPE_BOOL}};
  for (const auto& [code, bits, dtype] : dtypes) {
    Source s;
    tc_tensor t{};
    s.t.dtype = {static_cast<uint8_t>(code), static_cast<uint8_t>(bits), 1};
    ASSERT_EQ(tc_tensor_from_dlpack(&s.t, &t), TC_OK) << code << " " << bits;
    EXPECT_EQ(t.dtype, dtype);
  }
}

TEST(DLPack, Devices) {
  Source s;
  tc_tensor t{};
  for (const auto& [type, device] : {std::pair{3, TC_CPU}, {2, TC_CUDA}, {13, TC_CUDA}}) {
    s.t.device = {static_cast<DLDeviceType>(type), 1};
    ASSERT_EQ(tc_tensor_from_dlpack(&s.t, &t), TC_OK);
    EXPECT_EQ(t.device, device);
    EXPECT_EQ(t.device_index, device == TC_CUDA ? 1 : 0);
  }
}

// Refused with a sentence, and nothing is written.
void refused(const DLTensor& from, tc_status_t status, const char* sentence) {
  tc_tensor t;
  std::memset(&t, 0x5a, sizeof t);
  const tc_tensor before = t;
  EXPECT_EQ(tc_tensor_from_dlpack(&from, &t), status);
  EXPECT_NE(std::string(tc_last_error()).find(sentence), std::string::npos) << tc_last_error();
  EXPECT_EQ(std::memcmp(&t, &before, sizeof t), 0);
}

TEST(DLPack, Refusals) {
  Source s;
  s.t.dtype.lanes = 4;
  refused(s.t, TC_ERR_UNSUPPORTED_DTYPE, "4 lanes");
  s.t.dtype = {5, 64, 1};
  refused(s.t, TC_ERR_UNSUPPORTED_DTYPE, "type code 5, 64 bits");
  s.t.dtype = {1, 32, 1};
  refused(s.t, TC_ERR_UNSUPPORTED_DTYPE, "type code 1, 32 bits");
  s = Source();
  s.t.ndim = 9;
  refused(s.t, TC_ERR_INVALID_SHAPE, "9 dimensions");
  s.t.ndim = -1;
  refused(s.t, TC_ERR_INVALID_SHAPE, "-1 dimensions");
  Source shapeless;
  shapeless.t.shape = nullptr;
  refused(shapeless.t, TC_ERR_INVALID_ARG, "shape is NULL");
  Source elsewhere;
  elsewhere.t.device = {kDLMetal, 0};
  refused(elsewhere.t, TC_ERR_INVALID_ARG, "device of type 8");
  tc_tensor t;
  EXPECT_EQ(tc_tensor_from_dlpack(nullptr, &t), TC_ERR_INVALID_ARG);
  EXPECT_EQ(tc_tensor_from_dlpack(&s.t, nullptr), TC_ERR_INVALID_ARG);
}

// An interpreter, as far as the converter sees one: a tuple is an array of capsules, a capsule is a named pointer.
struct Capsule {
  const char* name;
  void* held;
};
void* item(void* tuple, ptrdiff_t i) { return static_cast<Capsule**>(tuple)[i]; }
void* pointer(void* capsule, const char* name) {
  const auto* c = static_cast<Capsule*>(capsule);
  return std::strcmp(c->name, name) == 0 ? c->held : nullptr;
}

TEST(DLPack, CapsulesGoWhereTheOffsetsSay) {
  Source x, weight;
  weight.t.ndim = 1;
  Capsule first{"dltensor", &x.t}, second{"dltensor", &weight.t}, used{"used_dltensor", &x.t};
  Capsule* tuple[] = {&first, &second, &used};
  const int64_t offsets[] = {offsetof(tcx_rmsnorm_forward_args, x), offsetof(tcx_rmsnorm_forward_args, weight),
                             offsetof(tcx_rmsnorm_forward_args, y)};
  tcx_rmsnorm_forward_args args = tcx_rmsnorm_forward_args_default();
  ASSERT_EQ(tc_tensors_from_capsules(tuple, item, pointer, 2, offsets, &args), TC_OK);
  EXPECT_EQ(args.x.data, x.values.data());
  EXPECT_EQ(args.x.rank, 2);
  EXPECT_EQ(args.weight.data, weight.values.data());
  EXPECT_EQ(args.weight.rank, 1);
  EXPECT_EQ(tc_tensors_from_capsules(tuple, item, pointer, 3, offsets, &args), TC_ERR_INVALID_ARG);
  EXPECT_STREQ(tc_last_error(), "tc_tensors_from_capsules: item 2 is no capsule named dltensor");
  EXPECT_EQ(tc_tensors_from_capsules(tuple, nullptr, pointer, 1, offsets, &args), TC_ERR_INVALID_ARG);
}

// What the JSON says of a struct is what the compiler laid out.
TEST(SchemaJson, DescribesTheStructs) {
  const auto all = nlohmann::json::parse(tc_schema());
  EXPECT_EQ(all.size(), all_ops().size());
  EXPECT_EQ(tc_schema(), tc_schema());
  for (const auto& op : all)
    for (const auto& pass : op["passes"]) {
      if (pass["name"] != "rmsnorm_forward") continue;
      EXPECT_EQ(pass["args_size"], sizeof(tcx_rmsnorm_forward_args));
      for (const auto& field : pass["fields"]) {
        if (field["name"] == "x") {
          EXPECT_EQ(field["offset"], offsetof(tcx_rmsnorm_forward_args, x));
        }
        if (field["name"] == "weight_offset") {
          EXPECT_EQ(field["offset"], offsetof(tcx_rmsnorm_forward_args, weight_offset));
        }
      }
    }
}

// Defaults survive JSON, the smallest int64 included; and who needs no scratch on a GPU is not asked how much.
TEST(SchemaJson, DefaultsAndScratchAreThePassesOwn) {
  const auto all = nlohmann::json::parse(tc_schema());
  size_t o = 0;
  for (const OpEntry& op : all_ops()) {
    const auto& passes = all[o++]["passes"];
    ASSERT_EQ(passes.size(), op.passes.size());
    for (size_t p = 0; p < op.passes.size(); ++p) {
      EXPECT_EQ(passes[p]["cuda_workspace"], op.passes[p].cuda_workspace != nullptr);
      const auto& fields = passes[p]["fields"];
      ASSERT_EQ(fields.size(), op.passes[p].fields.size());
      for (size_t f = 0; f < fields.size(); ++f) {
        const Field& field = op.passes[p].fields[f];
        EXPECT_EQ(fields[f]["name"], field.name);
        if (field.is_tensor()) continue;
        EXPECT_EQ(fields[f]["default"].get<double>(), field.default_value) << field.name;
      }
    }
  }
}

}  // namespace
}  // namespace tc
