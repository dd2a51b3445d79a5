#include "traincore/train/weights.h"

#include <sys/mman.h>

#include "traincore/core/view.h"
#include "traincore/train/llama_files.h"

namespace tc::train {

tc_tensor take_tensor(Arena& arena, int32_t dtype, std::initializer_list<int64_t> shape) {
  tc_tensor t = tc_tensor_dense(nullptr, dtype, static_cast<int32_t>(shape.size()), shape.begin());
  t.data = arena.take<std::byte>(element_count(t) * static_cast<int64_t>(tc_dtype_size(dtype)));
  return t;
}

tc_tensor row_range(const tc_tensor& t, int64_t first, int64_t count) {
  tc_tensor part = t;
  part.data = static_cast<std::byte*>(t.data) + first * t.stride[0] * static_cast<int64_t>(tc_dtype_size(t.dtype));
  part.shape[0] = count;
  return part;
}

tc_tensor reshaped(const tc_tensor& t, std::initializer_list<int64_t> shape) {
  return tc_tensor_dense(t.data, t.dtype, static_cast<int32_t>(shape.size()), shape.begin());
}

Weights carve_weights(const ModelConfig& m, int32_t dtype, Arena& arena) {
  const auto take = [&](std::initializer_list<int64_t> shape) { return take_tensor(arena, dtype, shape); };
  Weights w;
  w.embedding = take({m.vocab, m.dim});
  for (int64_t i = 0; i < m.layers; ++i)
    w.layers.push_back({.attention_norm = take({m.dim}),
                        .qkv = take({(m.heads + 2 * m.kv_heads) * m.head_dim, m.dim}),
                        .attention_out = take({m.dim, m.heads * m.head_dim}),
                        .mlp_norm = take({m.dim}),
                        .gate_up = take({2 * m.ffn, m.dim}),
                        .mlp_down = take({m.dim, m.ffn})});
  w.norm = take({m.dim});
  w.head = m.tied ? w.embedding : take({m.vocab, m.dim});
  return w;
}

std::vector<tc_tensor> matrices(const Weights& w) {
  std::vector<tc_tensor> list = {w.embedding};
  for (const LayerWeights& l : w.layers) list.insert(list.end(), {l.qkv, l.attention_out, l.gate_up, l.mlp_down});
  if (w.head.data != w.embedding.data) list.push_back(w.head);
  return list;
}

std::vector<tc_tensor> gains(const Weights& w) {
  std::vector<tc_tensor> list;
  for (const LayerWeights& l : w.layers) list.insert(list.end(), {l.attention_norm, l.mlp_norm});
  list.push_back(w.norm);
  return list;
}

std::vector<NamedTensor> named_weights(const ModelConfig& m, const Weights& w, const std::string& prefix) {
  const int64_t q = m.heads * m.head_dim, kv = m.kv_heads * m.head_dim;
  std::vector<tc_tensor> list = {w.embedding};
  for (const LayerWeights& l : w.layers)
    list.insert(list.end(), {l.attention_norm, row_range(l.qkv, 0, q), row_range(l.qkv, q, kv),
                             row_range(l.qkv, q + kv, kv), l.attention_out, l.mlp_norm, row_range(l.gate_up, 0, m.ffn),
                             row_range(l.gate_up, m.ffn, m.ffn), l.mlp_down});
  list.push_back(w.norm);
  if (!m.tied) list.push_back(w.head);
  std::vector<NamedTensor> named;
  const std::vector<TensorSpec> specs = llama_tensors(m);
  for (size_t i = 0; i < specs.size(); ++i) named.push_back({prefix + specs[i].name, list.at(i)});
  return named;
}

int64_t parameter_count(const ModelConfig& model) {
  int64_t count = 0;
  for (const TensorSpec& spec : llama_tensors(model)) {
    int64_t n = 1;
    for (const int64_t extent : spec.shape) n *= extent;
    count += n;
  }
  return count;
}

Memory::Memory(size_t bytes) : bytes_(bytes), data_(map(bytes)) {}

std::unique_ptr<std::byte, UnmapPages> Memory::map(size_t bytes) {
  const size_t size = bytes ? bytes : 1;
  void* p = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED)
    fail(TC_ERR_ALLOC, "{:.2f} GB are needed, more than this machine gives", static_cast<double>(bytes) * 1e-9);
  madvise(p, size, MADV_HUGEPAGE);  // a wish: without it large pages are for those who ask
  return {static_cast<std::byte*>(p), UnmapPages{size}};
}

void UnmapPages::operator()(std::byte* p) const { munmap(p, bytes); }

}  // namespace tc::train
