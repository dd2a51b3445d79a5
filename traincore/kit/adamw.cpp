// AdamW by the caller's bias corrections.
#include <cmath>

#include "traincore/kit/call.h"
#include "traincore/ops/adamw/adamw.h"
#include "traincore/training.h"

namespace tc::kit {
namespace {

struct Step {
  tc_buffer *params, *m, *v;
  const tc_buffer* grads;
  int32_t params_dtype, grad_dtype;
  int n;
  float lr, beta1, beta2, eps, wd, bc1, bc2;
};

// The op's lists of tensors, of one tensor each.
struct Lists {
  tc_tensor params, grads, m, v;
};

// The op counts steps; the kit is given the corrections. With them pulled out of the root,
//   m / bc1 / (sqrt(v / bc2) + eps) = (sqrt(bc2) / bc1) m / (sqrt(v) + eps sqrt(bc2)),
// the update is one without corrections, which is what the op makes of a step so late that its own are 1.
tcx_adamw_args numbers_of(const char* name, const Step& s) {
  require(s.bc1 > 0 && s.bc2 > 0, "{}: bc1 is {} and bc2 {}, but both must be > 0", name, s.bc1, s.bc2);
  const double root = std::sqrt(double{s.bc2}), ratio = root / s.bc1;
  tcx_adamw_args a = tcx_adamw_args_default();
  a.lr = s.lr * ratio;
  a.beta1 = s.beta1;
  a.beta2 = s.beta2;
  a.eps = s.eps * root;
  a.weight_decay = s.wd / ratio;
  a.step = INT64_MAX;
  return a;
}

tcx_adamw_args with_lists(tcx_adamw_args a, const Lists& lists) {
  a.params = &lists.params;
  a.grads = &lists.grads;
  a.m = &lists.m;
  a.v = &lists.v;
  a.params_count = a.grads_count = a.m_count = a.v_count = 1;
  return a;
}

template <class Finish>
tc_status_t step(const char* name, tc_context* ctx, const Step& s, Finish&& finish) {
  Lists lists;  // the arguments point to it until the call has run
  return call(name, ctx, {s.params, s.m, s.v, s.grads}, [&](Call& call) {
    call.require_positive({{"n", s.n}});
    if (s.grad_dtype != TC_DTYPE_F16 && s.grad_dtype != TC_DTYPE_BF16 && s.grad_dtype != TC_DTYPE_F32)
      fail(TC_ERR_UNSUPPORTED_DTYPE, "{}: grad_dtype is {}, but must be f16, bf16 or f32", name,
           tc_dtype_name(s.grad_dtype));
    lists = {call.tensor("params", s.params, s.params_dtype, {s.n}), call.tensor("grads", s.grads, s.grad_dtype, {s.n}),
             call.tensor("m", s.m, TC_DTYPE_F32, {s.n}), call.tensor("v", s.v, TC_DTYPE_F32, {s.n})};
    tcx_adamw_args a = numbers_of(name, s);
    finish(a);
    call.add(tcx_adamw, tcx_adamw_workspace, with_lists(a, lists));
  });
}

}  // namespace
}  // namespace tc::kit

tc_status_t tc_adamw_step(tc_context* ctx, tc_buffer* params_fp32, tc_buffer* m_fp32, tc_buffer* v_fp32,
                          const tc_buffer* grads, tc_dtype_t grad_dtype, int n, float lr, float beta1, float beta2,
                          float eps, float wd, float bc1, float bc2) {
  const tc::kit::Step s{params_fp32, m_fp32, v_fp32, grads, TC_DTYPE_F32, grad_dtype, n,
                        lr,          beta1,  beta2,  eps,   wd,           bc1,        bc2};
  return tc::kit::step("tc_adamw_step", ctx, s, [](tcx_adamw_args&) {});
}

tc_status_t tc_adamw_step_bf16(tc_context* ctx, tc_buffer* params_bf16, tc_buffer* m_fp32, tc_buffer* v_fp32,
                               const tc_buffer* grads, tc_dtype_t grad_dtype, int n, float lr, float beta1, float beta2,
                               float eps, float wd, float bc1, float bc2, uint64_t seed) {
  const tc::kit::Step s{params_bf16, m_fp32, v_fp32, grads, TC_DTYPE_BF16, grad_dtype, n, lr,
                        beta1,       beta2,  eps,    wd,    bc1,           bc2};
  return tc::kit::step("tc_adamw_step_bf16", ctx, s, [&](tcx_adamw_args& a) {
    a.rounding = TC_ROUND_STOCHASTIC;
    a.seed = static_cast<int64_t>(seed);
  });
}
