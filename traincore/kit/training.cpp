#include "traincore/training.h"

#include <cmath>

#include "traincore/kit/call.h"
#include "traincore/kit/training_dtype.h"
#include "traincore/ops/activation/activation.h"
#include "traincore/ops/add/add.h"
#include "traincore/ops/rope/rope.h"
#include "traincore/ops/rope_tables/rope_tables.h"
#include "traincore/ops/softmax/softmax.h"

namespace tc::kit {
namespace {

thread_local struct {
  const tc_context* ctx = nullptr;
  int32_t dtype = TC_DTYPE_F16;
} chosen;

void require_even(const Call& call, int head_dim) {
  require(head_dim % 2 == 0, "{}: head_dim is {}, but must be even: its elements turn in pairs", call.name(), head_dim);
}

struct Rope {
  const tc_buffer *x, *cos, *sin;
  int batch, heads, seq, head_dim;
};
struct RopeTensors {
  tc_tensor x, cos, sin;
};
RopeTensors tensors_of(const Call& call, const Rope& r, int32_t dtype) {
  call.require_positive({{"batch", r.batch}, {"heads", r.heads}, {"seq", r.seq}, {"head_dim", r.head_dim}});
  require_even(call, r.head_dim);
  return {call.tensor("X", r.x, dtype, {r.batch, r.heads, r.seq, r.head_dim}),
          call.tensor("cos_t", r.cos, TC_DTYPE_F32, {r.seq, r.head_dim / 2}),
          call.tensor("sin_t", r.sin, TC_DTYPE_F32, {r.seq, r.head_dim / 2})};
}

}  // namespace

int32_t training_dtype(const tc_context* ctx) { return chosen.ctx == ctx ? chosen.dtype : TC_DTYPE_F16; }

}  // namespace tc::kit

using namespace tc::kit;  // NOLINT(google-build-using-namespace): the C face of this namespace
using tc::guard;

tc_status_t tc_training_dtype(tc_context* ctx, tc_dtype_t dtype) {
  return guard([&] {
    context_of("tc_training_dtype", ctx);
    if (dtype != TC_DTYPE_F16 && dtype != TC_DTYPE_BF16 && dtype != TC_DTYPE_F32)
      tc::fail(TC_ERR_UNSUPPORTED_DTYPE, "tc_training_dtype: dtype is {}, but must be f16, bf16 or f32",
               tc_dtype_name(dtype));
    chosen = {ctx, dtype};
  });
}

tc_status_t tc_rope_forward(tc_context* ctx, tc_buffer* X, const tc_buffer* cos_t, const tc_buffer* sin_t, int batch,
                            int heads, int seq, int head_dim) {
  return call("tc_rope_forward", ctx, {X, cos_t, sin_t}, [&](Call& call) {
    const auto t = tensors_of(call, {X, cos_t, sin_t, batch, heads, seq, head_dim}, training_dtype(ctx));
    tcx_rope_forward_args a = tcx_rope_forward_args_default();
    a.pairing = TC_ROPE_HALF;
    a.q = a.q_out = t.x;
    a.cos = t.cos;
    a.sin = t.sin;
    call.add(tcx_rope_forward, tcx_rope_forward_workspace, a);
  });
}

tc_status_t tc_rope_backward(tc_context* ctx, tc_buffer* dX, const tc_buffer* cos_t, const tc_buffer* sin_t, int batch,
                             int heads, int seq, int head_dim) {
  return call("tc_rope_backward", ctx, {dX, cos_t, sin_t}, [&](Call& call) {
    const auto t = tensors_of(call, {dX, cos_t, sin_t, batch, heads, seq, head_dim}, training_dtype(ctx));
    tcx_rope_backward_args a = tcx_rope_backward_args_default();
    a.pairing = TC_ROPE_HALF;
    a.dq_out = a.dq = t.x;
    a.cos = t.cos;
    a.sin = t.sin;
    call.add(tcx_rope_backward, tcx_rope_backward_workspace, a);
  });
}

tc_status_t tc_rope_tables(tc_context* ctx, tc_buffer* cos_t, tc_buffer* sin_t, int seq, int head_dim, double base,
                           double scale) {
  return call("tc_rope_tables", ctx, {cos_t, sin_t}, [&](Call& call) {
    call.require_positive({{"seq", seq}, {"head_dim", head_dim}});
    require_even(call, head_dim);
    tc::require(scale > 0 && std::isfinite(1 / scale), "tc_rope_tables: scale is {}, but must be finite and > 0",
                scale);
    tcx_rope_tables_args a = tcx_rope_tables_args_default();
    a.cos = call.tensor("cos_t", cos_t, TC_DTYPE_F32, {seq, head_dim / 2});
    a.sin = call.tensor("sin_t", sin_t, TC_DTYPE_F32, {seq, head_dim / 2});
    a.base = base;
    a.scaling = TC_ROPE_SCALING_LINEAR;
    a.factor = 1 / scale;
    call.add(tcx_rope_tables, tcx_rope_tables_workspace, a);
  });
}

tc_status_t tc_swiglu_forward(tc_context* ctx, const tc_buffer* gate, const tc_buffer* up, tc_buffer* out, int n) {
  return call("tc_swiglu_forward", ctx, {gate, up, out}, [&](Call& call) {
    const int32_t dtype = training_dtype(ctx);
    call.require_positive({{"n", n}});
    tcx_activation_forward_args a = tcx_activation_forward_args_default();
    a.kind = TC_ACTIVATION_SILU;
    a.gate = call.tensor("gate", gate, dtype, {n});
    a.up = call.tensor("up", up, dtype, {n});
    a.y = call.tensor("out", out, dtype, {n});
    call.add(tcx_activation_forward, tcx_activation_forward_workspace, a);
  });
}

tc_status_t tc_swiglu_backward(tc_context* ctx, const tc_buffer* gate, const tc_buffer* up, const tc_buffer* dout,
                               tc_buffer* dgate, tc_buffer* dup, int n) {
  return call("tc_swiglu_backward", ctx, {gate, up, dout, dgate, dup}, [&](Call& call) {
    const int32_t dtype = training_dtype(ctx);
    call.require_positive({{"n", n}});
    tcx_activation_backward_args a = tcx_activation_backward_args_default();
    a.kind = TC_ACTIVATION_SILU;
    a.gate = call.tensor("gate", gate, dtype, {n});
    a.up = call.tensor("up", up, dtype, {n});
    a.dy = call.tensor("dout", dout, dtype, {n});
    a.dgate = call.tensor("dgate", dgate, dtype, {n});
    a.dup = call.tensor("dup", dup, dtype, {n});
    call.add(tcx_activation_backward, tcx_activation_backward_workspace, a);
  });
}

tc_status_t tc_softmax_forward(tc_context* ctx, const tc_buffer* X, tc_buffer* Y, int N, int D) {
  return call("tc_softmax_forward", ctx, {X, Y}, [&](Call& call) {
    call.require_positive({{"N", N}, {"D", D}});
    tcx_softmax_forward_args a = tcx_softmax_forward_args_default();
    a.x = call.tensor("X", X, training_dtype(ctx), {N, D});
    a.y = call.tensor("Y", Y, training_dtype(ctx), {N, D});
    call.add(tcx_softmax_forward, tcx_softmax_forward_workspace, a);
  });
}

tc_status_t tc_softmax_backward(tc_context* ctx, const tc_buffer* Y, const tc_buffer* dY, tc_buffer* dX, int N, int D) {
  return call("tc_softmax_backward", ctx, {Y, dY, dX}, [&](Call& call) {
    call.require_positive({{"N", N}, {"D", D}});
    tcx_softmax_backward_args a = tcx_softmax_backward_args_default();
    a.y = call.tensor("Y", Y, training_dtype(ctx), {N, D});
    a.dy = call.tensor("dY", dY, training_dtype(ctx), {N, D});
    a.dx = call.tensor("dX", dX, training_dtype(ctx), {N, D});
    call.add(tcx_softmax_backward, tcx_softmax_backward_workspace, a);
  });
}

tc_status_t tc_add(tc_context* ctx, const tc_buffer* A, const tc_buffer* B, tc_buffer* Y, int n) {
  return call("tc_add", ctx, {A, B, Y}, [&](Call& call) {
    call.require_positive({{"n", n}});
    tcx_add_args a = tcx_add_args_default();
    a.a = call.tensor("A", A, training_dtype(ctx), {n});
    a.b = call.tensor("B", B, training_dtype(ctx), {n});
    a.y = call.tensor("Y", Y, training_dtype(ctx), {n});
    call.add(tcx_add, tcx_add_workspace, a);
  });
}
