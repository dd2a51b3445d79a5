#include "traincore/attention.h"

#include <cmath>

#include "traincore/kit/call.h"
#include "traincore/ops/attention/attention.h"

namespace tc::kit {
namespace {

static_assert(sizeof(tc_attention_desc) == 56 && offsetof(tc_attention_desc, batch) == 0 &&
              offsetof(tc_attention_desc, heads) == 4 && offsetof(tc_attention_desc, seq_q) == 8 &&
              offsetof(tc_attention_desc, seq_kv) == 12 && offsetof(tc_attention_desc, head_dim) == 16 &&
              offsetof(tc_attention_desc, io_dtype) == 20 && offsetof(tc_attention_desc, accum_dtype) == 24 &&
              offsetof(tc_attention_desc, softmax_scale) == 28 && offsetof(tc_attention_desc, causal) == 32 &&
              offsetof(tc_attention_desc, return_lse) == 33 && offsetof(tc_attention_desc, kv_heads) == 36 &&
              offsetof(tc_attention_desc, window_size) == 40 && offsetof(tc_attention_desc, alibi_slopes) == 48);

int32_t kv_heads_of(const tc_attention_desc& d) { return d.kv_heads ? d.kv_heads : d.heads; }

void require_valid(const Call& call, const tc_attention_desc* desc) {
  require(desc != nullptr, "{}: desc is NULL", call.name());
  const tc_attention_desc& d = *desc;
  call.require_positive({{"batch", d.batch},
                         {"heads", d.heads},
                         {"seq_q", d.seq_q},
                         {"seq_kv", d.seq_kv},
                         {"head_dim", d.head_dim},
                         {"kv_heads", kv_heads_of(d)}},
                        TC_ERR_INVALID_SHAPE);
  if (d.heads % kv_heads_of(d) != 0)
    fail(TC_ERR_INVALID_SHAPE, "{}: heads is {}, but must be a multiple of kv_heads, {}", call.name(), d.heads,
         kv_heads_of(d));
  if (d.io_dtype != TC_DTYPE_F16 && d.io_dtype != TC_DTYPE_BF16)
    fail(TC_ERR_UNSUPPORTED_DTYPE, "{}: io_dtype is {}, but must be f16 or bf16", call.name(),
         tc_dtype_name(d.io_dtype));
  if (d.accum_dtype != TC_DTYPE_F32)
    fail(TC_ERR_UNSUPPORTED_DTYPE, "{}: accum_dtype is {}, but must be f32", call.name(), tc_dtype_name(d.accum_dtype));
  require(std::isfinite(d.softmax_scale) && d.softmax_scale > 0, "{}: softmax_scale is {}, but must be finite and > 0",
          call.name(), d.softmax_scale);
  require(d.window_size >= 0, "{}: window_size is {}, but must be 0 (all keys) or the number of keys before the query",
          call.name(), d.window_size);
}

tc_tensor queries(const Call& call, const char* name, const tc_buffer* buffer, const tc_attention_desc& d) {
  return call.tensor(name, buffer, d.io_dtype, {d.batch, d.heads, d.seq_q, d.head_dim});
}
tc_tensor keys(const Call& call, const char* name, const tc_buffer* buffer, const tc_attention_desc& d) {
  return call.tensor(name, buffer, d.io_dtype, {d.batch, kv_heads_of(d), d.seq_kv, d.head_dim});
}
tc_tensor log_sums(const Call& call, const tc_buffer* buffer, const tc_attention_desc& d) {
  return call.tensor("LSE", buffer, TC_DTYPE_F32, {d.batch, d.heads, d.seq_q});
}

// The options, which forward and backward have in common. They come last: the slopes are as many as the heads, which by
// then are known to fit the buffers.
template <class A>
void set_options(Call& call, const tc_attention_desc& d, A& args) {
  args.causal = d.causal;
  args.scale = d.softmax_scale;
  if (d.window_size > 0) args.window_left = d.window_size;
  if (d.alibi_slopes) args.alibi_slopes = call.copied(d.alibi_slopes, d.heads);
}

tc_status_t forward(const char* name, const tc_context* ctx, const tc_attention_desc* desc, const tc_buffer* Q,
                    const tc_buffer* K, const tc_buffer* V, tc_buffer* O, tc_buffer* LSE, const tc_stream* stream) {
  return call(
      name, ctx, {Q, K, V, O, LSE},
      [&](Call& call) {
        require_valid(call, desc);
        auto args = tcx_attention_forward_args_default();
        args.q = queries(call, "Q", Q, *desc);
        args.k = keys(call, "K", K, *desc);
        args.v = keys(call, "V", V, *desc);
        args.o = queries(call, "O", O, *desc);
        if (desc->return_lse) args.lse = log_sums(call, LSE, *desc);
        set_options(call, *desc, args);
        call.add(tcx_attention_forward, tcx_attention_forward_workspace, args);
      },
      stream);
}

}  // namespace
}  // namespace tc::kit

using namespace tc::kit;  // NOLINT(google-build-using-namespace): the C face of this namespace

tc_status_t tc_attention_forward(tc_context* ctx, const tc_attention_desc* desc, const tc_buffer* Q, const tc_buffer* K,
                                 const tc_buffer* V, tc_buffer* O, tc_buffer* LSE) {
  return forward("tc_attention_forward", ctx, desc, Q, K, V, O, LSE, nullptr);
}

tc_status_t tc_attention_forward_async(tc_context* ctx, const tc_attention_desc* desc, const tc_buffer* Q,
                                       const tc_buffer* K, const tc_buffer* V, tc_buffer* O, tc_buffer* LSE,
                                       tc_stream* stream) {
  return forward("tc_attention_forward_async", ctx, desc, Q, K, V, O, LSE, stream);
}

tc_status_t tc_attention_backward(tc_context* ctx, const tc_attention_desc* desc, const tc_buffer* Q,
                                  const tc_buffer* K, const tc_buffer* V, const tc_buffer* O, const tc_buffer* dO,
                                  const tc_buffer* LSE, tc_buffer* dQ, tc_buffer* dK, tc_buffer* dV) {
  return call("tc_attention_backward", ctx, {Q, K, V, O, dO, LSE, dQ, dK, dV}, [&](Call& call) {
    require_valid(call, desc);
    auto args = tcx_attention_backward_args_default();
    args.q = queries(call, "Q", Q, *desc);
    args.k = keys(call, "K", K, *desc);
    args.v = keys(call, "V", V, *desc);
    args.o = queries(call, "O", O, *desc);
    args.dout = queries(call, "dO", dO, *desc);
    args.lse = log_sums(call, LSE, *desc);
    args.dq = queries(call, "dQ", dQ, *desc);
    args.dk = keys(call, "dK", dK, *desc);
    args.dv = keys(call, "dV", dV, *desc);
    set_options(call, *desc, args);
    call.add(tcx_attention_backward, tcx_attention_backward_workspace, args);
  });
}
