// The front door of attention: what its arguments are, what is checked, where it goes.
#include "traincore/ops/attention/attention.h"

#include "traincore/core/op.h"
#include "traincore/ops/attention/plan.h"

namespace tc::ops::attention {

using Forward = tcx_attention_forward_args;
using Backward = tcx_attention_backward_args;

void forward_cpu(const Forward&, const tc_exec&);
void backward_cpu(const Backward&, const tc_exec&);

namespace {

constexpr Field forward_fields[] = {
    in("q", offsetof(Forward, q), "batch heads seq_q head_dim"),
    in("k", offsetof(Forward, k), "batch kv_heads seq_k head_dim"),
    in("v", offsetof(Forward, v), "batch kv_heads seq_k value_dim"),
    in("mask", offsetof(Forward, mask), "mask_batch mask_heads mask_q mask_k", booleans).optional(),
    in("bias", offsetof(Forward, bias), "bias_batch bias_heads bias_q bias_k", any_float).optional(),
    in("alibi_slopes", offsetof(Forward, alibi_slopes), "heads", any_float).optional(),
    in("cu_seqlens_q", offsetof(Forward, cu_seqlens_q), "sequences+1", dtypes({TC_DTYPE_I32})).optional(),
    in("cu_seqlens_k", offsetof(Forward, cu_seqlens_k), "sequences+1", dtypes({TC_DTYPE_I32})).optional(),
    out("o", offsetof(Forward, o), "batch heads seq_q value_dim"),
    tensor(Role::saved, "precise_output", offsetof(Forward, precise_output), "batch heads seq_q value_dim", f32)
        .optional(),
    saved("row_max", offsetof(Forward, row_max), "batch heads seq_q"),
    saved("row_log_sum", offsetof(Forward, row_log_sum), "batch heads seq_q"),
    out("lse", offsetof(Forward, lse), "batch heads seq_q", f32).optional().strided(),
    flag("causal", offsetof(Forward, causal)),
    number("scale", offsetof(Forward, scale)),
    number("softcap", offsetof(Forward, softcap)),
    number("dropout", offsetof(Forward, dropout)),
    integer("causal_offset", offsetof(Forward, causal_offset), INT64_MIN),
    integer("window_left", offsetof(Forward, window_left), -1),
    integer("window_right", offsetof(Forward, window_right), -1),
    integer("seed", offsetof(Forward, seed)),
};
constexpr Field backward_fields[] = {
    in("q", offsetof(Backward, q), "batch heads seq_q head_dim"),
    in("k", offsetof(Backward, k), "batch kv_heads seq_k head_dim"),
    in("v", offsetof(Backward, v), "batch kv_heads seq_k value_dim"),
    in("mask", offsetof(Backward, mask), "mask_batch mask_heads mask_q mask_k", booleans).optional(),
    in("bias", offsetof(Backward, bias), "bias_batch bias_heads bias_q bias_k", any_float).optional(),
    in("alibi_slopes", offsetof(Backward, alibi_slopes), "heads", any_float).optional(),
    in("cu_seqlens_q", offsetof(Backward, cu_seqlens_q), "sequences+1", dtypes({TC_DTYPE_I32})).optional(),
    in("cu_seqlens_k", offsetof(Backward, cu_seqlens_k), "sequences+1", dtypes({TC_DTYPE_I32})).optional(),
    in("o", offsetof(Backward, o), "batch heads seq_q value_dim").optional(),
    in("precise_output", offsetof(Backward, precise_output), "batch heads seq_q value_dim", f32).optional(),
    in("row_max", offsetof(Backward, row_max), "batch heads seq_q", f32).optional().strided(),
    in("row_log_sum", offsetof(Backward, row_log_sum), "batch heads seq_q", f32).optional().strided(),
    in("lse", offsetof(Backward, lse), "batch heads seq_q", f32).optional().strided(),
    in("do", offsetof(Backward, dout), "batch heads seq_q value_dim"),
    out("dq", offsetof(Backward, dq), "batch heads seq_q head_dim").optional(),
    out("dk", offsetof(Backward, dk), "batch kv_heads seq_k head_dim").optional(),
    out("dv", offsetof(Backward, dv), "batch kv_heads seq_k value_dim").optional(),
    out("dbias", offsetof(Backward, dbias), "bias_batch bias_heads bias_q bias_k", any_float).optional().accumulated(),
    out("dalibi_slopes", offsetof(Backward, dalibi_slopes), "heads", any_float).optional().accumulated(),
    flag("causal", offsetof(Backward, causal)),
    flag("accumulate", offsetof(Backward, accumulate)),
    number("scale", offsetof(Backward, scale)),
    number("softcap", offsetof(Backward, softcap)),
    number("dropout", offsetof(Backward, dropout)),
    integer("causal_offset", offsetof(Backward, causal_offset), INT64_MIN),
    integer("window_left", offsetof(Backward, window_left), -1),
    integer("window_right", offsetof(Backward, window_right), -1),
    integer("seed", offsetof(Backward, seed)),
};

void check_extents(const char* pass, const Dims& dims) {
  require(dims["head_dim"] > 0, "{}: q and k have width 0, but head_dim must be at least 1", pass);
  require(dims["value_dim"] > 0, "{}: v has width 0, but value_dim must be at least 1", pass);
  const int64_t heads = dims["heads"], kv_heads = dims["kv_heads"];
  if (kv_heads ? heads % kv_heads != 0 : heads != 0)
    fail(TC_ERR_INVALID_SHAPE, "{}: q has {} heads, but that must be a multiple of the {} heads of k and v", pass,
         heads, kv_heads);
}

void check_broadcast(const char* pass, const char* name, const tc_tensor& t, const Dims& dims) {
  if (!given(t)) return;
  const int64_t whole[] = {dims["batch"], dims["heads"], dims["seq_q"], dims["seq_k"]};
  for (int i = 0; i < 4; ++i)
    if (t.shape[i] != 1 && t.shape[i] != whole[i])
      fail(TC_ERR_INVALID_SHAPE, "{}: {} has shape [{}, {}, {}, {}], which does not broadcast to [{}, {}, {}, {}]",
           pass, name, t.shape[0], t.shape[1], t.shape[2], t.shape[3], whole[0], whole[1], whole[2], whole[3]);
}

void check_window(const char* pass, const char* name, int64_t value) {
  require(value >= -1, "{}: {} is {}, but must be -1 (all keys) or the number of keys beside the query, 0 or more",
          pass, name, value);
}

// What both passes share.
template <class A>
void check_common(const char* pass, const A& a, const Dims& dims) {
  check_extents(pass, dims);
  check_broadcast(pass, "mask", a.mask, dims);
  check_broadcast(pass, "bias", a.bias, dims);
  check_window(pass, "window_left", a.window_left);
  check_window(pass, "window_right", a.window_right);
  require(a.scale >= 0, "{}: scale is {}, but must be > 0, or 0 for 1/sqrt(head_dim)", pass, a.scale);
  require(a.softcap >= 0, "{}: softcap is {}, but must be > 0, or 0 for none", pass, a.softcap);
  require(a.dropout >= 0 && a.dropout < 1, "{}: dropout is {}, but must be a probability below 1", pass, a.dropout);
  require(given(a.cu_seqlens_q) == given(a.cu_seqlens_k), "{}: cu_seqlens_q and cu_seqlens_k must be given together",
          pass);
  if (given(a.cu_seqlens_q) && dims["batch"] != 1)
    fail(TC_ERR_INVALID_SHAPE, "{}: batch is {}, but packed sequences (cu_seqlens_q) need a batch of 1", pass,
         dims["batch"]);
}

void check_forward(const Forward& a, const Dims& dims) { check_common("attention_forward", a, dims); }

void check_backward(const Backward& a, const Dims& dims) {
  check_common("attention_backward", a, dims);
  require(given(a.o) || given(a.precise_output),
          "attention_backward: o is missing, and so is precise_output; pass one");
  require(given(a.row_max) == given(a.row_log_sum),
          "attention_backward: row_max and row_log_sum must be given together");
  require(given(a.row_max) || given(a.lse),
          "attention_backward: row_max and row_log_sum are missing, and so is lse; pass what forward saved");
  require(given(a.dq) || given(a.dk) || given(a.dv) || given(a.dbias) || given(a.dalibi_slopes),
          "attention_backward: none of dq, dk, dv, dbias and dalibi_slopes is given, so there is nothing to compute");
  require(!given(a.dbias) || given(a.bias), "attention_backward: dbias is given, but bias is not");
  require(!given(a.dalibi_slopes) || given(a.alibi_slopes),
          "attention_backward: dalibi_slopes is given, but alibi_slopes is not");
}

double forward_flops(const Forward& a, const Dims& dims) {
  return visible_pairs(a) * static_cast<double>(dims["heads"] * 2 * (dims["head_dim"] + dims["value_dim"]));
}
// dbias takes scores and do.v of its own.
double backward_flops(const Backward& a, const Dims& dims) {
  const int64_t again = given(a.dbias) ? 1 : 0;
  return visible_pairs(a) *
         static_cast<double>(dims["heads"] * 2 * ((3 + again) * dims["head_dim"] + (2 + again) * dims["value_dim"]));
}

std::string explain_forward(const Forward& a, const Dims&) {
  const Extents e = extents_of(a);
  const int64_t units = tiles(e.seq_q) * e.group;
  return fmt::format(
      "{} key heads; for each, {} tiles of {} queries, {} of them to one traversal of the keys in tiles of {}; tiles "
      "that no query sees are skipped",
      e.batch * e.kv_heads, units, kTile, std::min(units, kForwardUnits), kTile);
}
std::string explain_backward(const Backward& a, const Dims&) {
  const Extents e = extents_of(a);
  const int64_t units = tiles(e.seq_q) * e.group;
  return fmt::format(
      "one traversal of the tiles of {} queries x {} keys gives every gradient{}; {} key heads, for each dk and dv are "
      "summed over {} tiles of queries in {} slabs, then the slabs in order",
      kTile, kTile, given(a.dbias) ? " but dbias, which has one of its own" : "", e.batch * e.kv_heads, units,
      slabs_of(a));
}

// A query's output depends on its own keys alone, in tiles counted from key 0; dk and dv are sums over queries, cut by
// how many there are.
constexpr uint32_t kBackwardOffers = kOffersAll & ~uint32_t{kBatchInvariant};

constexpr Pass list[] = {
    {.name = "attention_forward",
     .formula = "o = softmax(scale q k^T) v over the visible keys, in tiles",
     .fields = forward_fields,
     .args_size = sizeof(Forward),
     .check = Erase<Forward>::check<check_forward>,
     .cpu = Erase<Forward>::run<forward_cpu>,
     .flops = Erase<Forward>::flops<forward_flops>,
     .explain = Erase<Forward>::explain<explain_forward>},
    {.name = "attention_backward",
     .formula = "dv = P^T do; ds = P (do v^T - sum(do o)); dq = scale ds k; dk = scale ds^T q",
     .fields = backward_fields,
     .args_size = sizeof(Backward),
     .offers = kBackwardOffers,
     .check = Erase<Backward>::check<check_backward>,
     .workspace = Erase<Backward>::workspace<carve_backward>,
     .cpu = Erase<Backward>::run<backward_cpu>,
     .flops = Erase<Backward>::flops<backward_flops>,
     .explain = Erase<Backward>::explain<explain_backward>},
};

}  // namespace

extern const std::span<const Pass> passes;
const std::span<const Pass> passes = list;

}  // namespace tc::ops::attention

TC_EXPORT_PASS(attention_forward, tc::ops::attention::list[0])
TC_EXPORT_PASS(attention_backward, tc::ops::attention::list[1])
