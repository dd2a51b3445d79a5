// Wrong attentions that the cases must catch: the right one, with its arguments or its result bent.
#include <cmath>
#include <vector>

#include "traincore/core/view.h"
#include "traincore/ops/attention/attention.h"
#include "traincore/testing/cases.h"

namespace tc::ops::attention {

using Forward = tcx_attention_forward_args;
using Backward = tcx_attention_backward_args;
template <class Real>
void forward_oracle(const Forward&);
template <class Real>
void backward_oracle(const Backward&);

namespace {

template <class A>
A bent(const void* p, void (*bend)(A&)) {
  A a = *static_cast<const A*>(p);
  bend(a);
  return a;
}
void top_left_corner(const void* p) {
  forward_oracle<float>(bent<Forward>(p, [](Forward& a) {
    if (a.causal_offset == INT64_MIN) a.causal_offset = 0;
  }));
}
void window_without_self(const void* p) {
  forward_oracle<float>(bent<Forward>(p, [](Forward& a) {
    if (a.window_left > 0) --a.window_left;
  }));
}
void no_scale(const void* p) {
  forward_oracle<float>(bent<Forward>(p, [](Forward& a) { a.scale = 1; }));
}
void lse_in_base_2(const void* p) {
  const auto& a = *static_cast<const Forward*>(p);
  forward_oracle<float>(a);
  const auto lse = values_of<float>(a.lse);
  for (int64_t i = 0; lse.data && i < lse.count; ++i) *lse[i] *= 1.442695f;
}
// Head h alone, reading key head `kv`.
template <class A>
void take_head(A& a, int64_t h, int64_t kv, std::initializer_list<tc_tensor*> of_queries,
               std::initializer_list<tc_tensor*> of_keys) {
  const auto take = [](tc_tensor& t, int64_t i) {
    if (!given(t)) return;
    t.data = static_cast<float*>(t.data) + i * t.stride[1];
    t.shape[1] = 1;
  };
  for (tc_tensor* t : of_queries) take(*t, h);
  for (tc_tensor* t : of_keys) take(*t, kv);
  a.mask = a.bias = a.alibi_slopes = tc_tensor{};
}
void heads_modulo(const void* p) {
  const auto& all = *static_cast<const Forward*>(p);
  for (int64_t h = 0; h < all.q.shape[1]; ++h) {
    Forward a = all;
    take_head(a, h, h % all.k.shape[1], {&a.q, &a.o, &a.precise_output, &a.row_max, &a.row_log_sum, &a.lse},
              {&a.k, &a.v});
    forward_oracle<float>(a);
  }
}
void last_head_of_group(const void* p) {
  const auto& all = *static_cast<const Backward*>(p);
  for (int64_t h = 0; h < all.q.shape[1]; ++h) {
    Backward a = all;
    a.dbias = a.dalibi_slopes = tc_tensor{};
    take_head(a, h, h / (all.q.shape[1] / all.k.shape[1]),
              {&a.q, &a.o, &a.precise_output, &a.row_max, &a.row_log_sum, &a.lse, &a.dout, &a.dq},
              {&a.k, &a.v, &a.dk, &a.dv});
    backward_oracle<float>(a);
  }
}
void no_delta(const void* p) {
  Backward a = *static_cast<const Backward*>(p);
  std::vector<float> zeros(static_cast<size_t>(element_count(a.dout)));
  a.o = a.precise_output = tc_tensor_dense(zeros.data(), TC_DTYPE_F32, 4, a.dout.shape);
  backward_oracle<float>(a);
}
void dbias_of_scores(const void* p) {
  const auto& a = *static_cast<const Backward*>(p);
  backward_oracle<float>(a);
  const double scale = a.scale > 0 ? a.scale : 1 / std::sqrt(static_cast<double>(a.q.shape[3]));
  const auto dbias = rows_of<float>(a.dbias);
  for (int64_t r = 0; dbias.data && r < dbias.count; ++r)
    for (int64_t j = 0; j < dbias.cols; ++j) dbias[r][j] *= static_cast<float>(scale);
}
void no_dropout(const void* p) {
  backward_oracle<float>(bent<Backward>(p, [](Backward& a) { a.dropout = 0; }));
}
void dq_without_scale(const void* p) {
  const auto& a = *static_cast<const Backward*>(p);
  backward_oracle<float>(a);
  const auto dq = rows_of<float>(a.dq);
  const double scale = a.scale > 0 ? a.scale : 1 / std::sqrt(static_cast<double>(a.q.shape[3]));
  for (int64_t r = 0; dq.data && r < dq.count; ++r)
    for (int64_t d = 0; d < dq.cols; ++d) dq[r][d] /= static_cast<float>(scale);
}

}  // namespace

std::vector<testing::Mutant> mutants() {
  return {{"causality from the top-left corner", "attention_forward", top_left_corner},
          {"window that counts the query itself", "attention_forward", window_without_self},
          {"scale forgotten", "attention_forward", no_scale},
          {"lse in base 2", "attention_forward", lse_in_base_2},
          {"key head by modulo", "attention_forward", heads_modulo},
          {"dk and dv of the last head of a group", "attention_backward", last_head_of_group},
          {"delta forgotten", "attention_backward", no_delta},
          {"dbias times the scale", "attention_backward", dbias_of_scores},
          {"dropout forgotten", "attention_backward", no_dropout},
          {"dq without its scale", "attention_backward", dq_without_scale}};
}

}  // namespace tc::ops::attention
