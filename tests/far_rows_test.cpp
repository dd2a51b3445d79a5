// Tensors whose rows lie more than 2^31 elements apart: every op gives the bits that it gives on rows close together.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <functional>
#include <vector>

#include "tests/tensors.h"
#include "traincore/ops/activation/activation.h"
#include "traincore/ops/add/add.h"
#include "traincore/ops/attention/attention.h"
#include "traincore/ops/cast/cast.h"
#include "traincore/ops/cross_entropy/cross_entropy.h"
#include "traincore/ops/embedding/embedding.h"
#include "traincore/ops/gemm/gemm.h"
#include "traincore/ops/linear_cross_entropy/linear_cross_entropy.h"
#include "traincore/ops/rmsnorm/rmsnorm.h"
#include "traincore/ops/rope/rope.h"
#include "traincore/ops/softmax/softmax.h"

namespace tc {
namespace {

// [3, ...] in f32, dense but for the first dimension, which steps over `step` elements. Address space that nobody
// touches costs nothing.
class Rows {
 public:
  Rows(std::vector<int64_t> shape, int64_t step, unsigned seed) {
    tensor_ = tc_tensor_dense(nullptr, TC_DTYPE_F32, static_cast<int32_t>(shape.size()), shape.data());
    row_ = tensor_.stride[0];
    if (step) tensor_.stride[0] = step;
    bytes_ = static_cast<size_t>(shape[0] * tensor_.stride[0]) * sizeof(float);
    tensor_.data = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (tensor_.data == MAP_FAILED) throw std::bad_alloc();
    const std::vector<float> values = normal(static_cast<size_t>(shape[0] * row_), seed);
    for (int64_t r = 0; r < shape[0]; ++r) std::copy_n(values.data() + r * row_, row_, row(r));
  }
  ~Rows() { munmap(tensor_.data, bytes_); }
  Rows(const Rows&) = delete;
  Rows& operator=(const Rows&) = delete;

  const tc_tensor& tensor() const { return tensor_; }
  std::vector<float> values() const {
    std::vector<float> all;
    for (int64_t r = 0; r < tensor_.shape[0]; ++r) all.insert(all.end(), row(r), row(r) + row_);
    return all;
  }

 private:
  float* row(int64_t r) const { return static_cast<float*>(tensor_.data) + r * tensor_.stride[0]; }
  tc_tensor tensor_;
  int64_t row_;
  size_t bytes_;
};

using Tensors = std::vector<tc_tensor>;

// What `call` leaves in tensors of these shapes, their rows `step` elements apart.
std::vector<std::vector<float>> results(const std::vector<std::vector<int64_t>>& shapes, int64_t step,
                                        const std::function<void(const Tensors&)>& call) {
  std::vector<std::unique_ptr<Rows>> rows;
  Tensors tensors;
  for (const auto& shape : shapes) {
    rows.push_back(std::make_unique<Rows>(shape, step, static_cast<unsigned>(rows.size() + 1)));
    tensors.push_back(rows.back()->tensor());
  }
  call(tensors);
  std::vector<std::vector<float>> all;
  for (const auto& r : rows) all.push_back(r->values());
  return all;
}

void expect_same_bits(const std::vector<std::vector<int64_t>>& shapes,
                      const std::function<void(const Tensors&)>& call) {
  constexpr int64_t kFar = (int64_t{1} << 30) + 24;  // the third row is beyond element 2^31 and byte 2^33
  const auto near = results(shapes, 0, call), far = results(shapes, kFar, call);
  for (size_t i = 0; i < shapes.size(); ++i) EXPECT_EQ(near[i], far[i]) << "tensor " << i;
}

TEST(FarRows, Softmax) {
  expect_same_bits({{3, 37}, {3, 37}, {3, 37}, {3, 37}}, [](const Tensors& t) {
    softmax_forward({sizeof(tcx_softmax_forward_args), t[0], t[1]});
    softmax_backward({sizeof(tcx_softmax_backward_args), t[1], t[2], t[3]});
    log_softmax_forward({sizeof(tcx_log_softmax_forward_args), t[0], t[1]});
  });
}

TEST(FarRows, CrossEntropyInPlace) {
  expect_same_bits({{3, 37}}, [](const Tensors& t) {
    std::vector<int64_t> target = {5, -100, 36};
    std::vector<float> loss(3);
    auto a = tcx_cross_entropy_forward_args_default();
    a.reduction = TC_REDUCTION_NONE, a.fuse_backward = 1;
    a.logits = a.dlogits = t[0], a.target = view(target), a.loss = view(loss);
    cross_entropy_forward(a);
  });
}

TEST(FarRows, LinearCrossEntropy) {
  expect_same_bits({{3, 19}, {3, 19}, {3, 19}, {3, 19}}, [](const Tensors& t) {
    std::vector<int64_t> target = {2, -100, 0};
    std::vector<float> loss(3);
    auto a = tcx_linear_cross_entropy_forward_args_default();
    a.reduction = TC_REDUCTION_NONE, a.target = view(target), a.loss = view(loss);
    a.hidden = t[0], a.weight = t[1], a.dhidden = t[2], a.dweight = t[3];
    linear_cross_entropy_forward(a);
  });
}

TEST(FarRows, Rmsnorm) {
  expect_same_bits({{3, 37}, {3, 37}, {3, 37}, {3, 37}}, [](const Tensors& t) {
    std::vector<float> weight = normal(37, 9), dweight(37), rstd(3);
    auto a = tcx_rmsnorm_forward_args_default();
    a.x = t[0], a.y = t[1], a.weight = view(weight), a.rstd = view(rstd), a.eps = 1e-6;
    rmsnorm_forward(a);
    auto b = tcx_rmsnorm_backward_args_default();
    b.dy = t[2], b.x = t[0], b.dx = t[3], b.weight = a.weight, b.rstd = a.rstd, b.dweight = view(dweight);
    rmsnorm_backward(b);
  });
}

TEST(FarRows, Rope) {
  expect_same_bits({{3, 2, 5, 12}, {3, 2, 5, 12}, {3, 2, 5, 12}}, [](const Tensors& t) {
    std::vector<float> cos = normal(5 * 6, 7), sin = normal(5 * 6, 8);
    auto a = tcx_rope_forward_args_default();
    a.pairing = TC_ROPE_HALF, a.q = t[0], a.q_out = t[1], a.cos = view(cos, {5, 6}), a.sin = view(sin, {5, 6});
    rope_forward(a);
    auto b = tcx_rope_backward_args_default();
    b.pairing = TC_ROPE_HALF, b.dq_out = t[1], b.dq = t[2], b.cos = a.cos, b.sin = a.sin;
    rope_backward(b);
  });
}

TEST(FarRows, Activation) {
  expect_same_bits({{3, 37}, {3, 37}, {3, 37}, {3, 37}, {3, 37}, {3, 37}}, [](const Tensors& t) {
    auto a = tcx_activation_forward_args_default();
    a.kind = TC_ACTIVATION_SILU, a.gate = t[0], a.up = t[1], a.y = t[2];
    activation_forward(a);
    auto b = tcx_activation_backward_args_default();
    b.kind = TC_ACTIVATION_SILU, b.gate = t[0], b.up = t[1], b.dy = t[3], b.dgate = t[4], b.dup = t[5];
    activation_backward(b);
  });
}

TEST(FarRows, Embedding) {
  expect_same_bits({{3, 37}, {3, 37}, {3, 37}}, [](const Tensors& t) {
    std::vector<int64_t> ids = {2, 0, 2};
    auto a = tcx_embedding_forward_args_default();
    a.ids = view(ids), a.weight = t[0], a.y = t[1];
    embedding_forward(a);
    auto b = tcx_embedding_backward_args_default();
    b.ids = view(ids), b.dy = t[1], b.dweight = t[2];
    embedding_backward(b);
  });
}

TEST(FarRows, Gemm) {
  for (const int transposed : {0, 1})
    expect_same_bits({{3, 3}, {3, 3}, {3, 3}, {3, 3}, {3, 3}, {3, 3}}, [&](const Tensors& t) {
      auto a = tcx_gemm_forward_args_default();
      a.transpose_a = a.transpose_b = transposed, a.a = t[0], a.b = t[1], a.c = t[2];
      gemm_forward(a);
      auto b = tcx_gemm_backward_args_default();
      b.transpose_a = b.transpose_b = transposed, b.a = t[0], b.b = t[1], b.dc = t[3], b.da = t[4], b.db = t[5];
      gemm_backward(b);
    });
}

TEST(FarRows, AttentionAndTheGradientOfItsBias) {
  const std::vector<int64_t> q = {3, 4, 7, 8}, k = {3, 2, 9, 8}, bias = {3, 4, 7, 9}, row = {3, 4, 7};
  expect_same_bits({q, k, k, bias, q, row, row, q, q, k, k, bias}, [](const Tensors& t) {
    auto a = tcx_attention_forward_args_default();
    a.causal = 1, a.q = t[0], a.k = t[1], a.v = t[2], a.bias = t[3], a.o = t[4], a.row_max = t[5], a.row_log_sum = t[6];
    attention_forward(a);
    auto b = tcx_attention_backward_args_default();
    b.causal = 1, b.q = t[0], b.k = t[1], b.v = t[2], b.bias = t[3], b.o = t[4], b.row_max = t[5], b.row_log_sum = t[6];
    b.dout = t[7], b.dq = t[8], b.dk = t[9], b.dv = t[10], b.dbias = t[11];
    attention_backward(b);
  });
}

TEST(FarRows, AddAndCast) {
  expect_same_bits({{3, 37}, {3, 37}, {3, 37}, {3, 37}}, [](const Tensors& t) {
    auto a = tcx_add_args_default();
    a.a = t[0], a.b = t[1], a.y = t[2];
    add(a);
    auto c = tcx_cast_args_default();
    c.x = t[2], c.y = t[3];
    cast(c);
  });
}

}  // namespace
}  // namespace tc
