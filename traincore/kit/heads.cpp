// Between a packed projection and heads: the same memory seen as [batch, heads, seq, head_dim], copied by cast.
#include "traincore/core/schema.h"
#include "traincore/kit/call.h"
#include "traincore/kit/training_dtype.h"
#include "traincore/ops/cast/cast.h"
#include "traincore/training.h"

namespace tc::kit {
namespace {

struct Part {
  const char* name;
  const tc_buffer* buffer;
  int64_t heads, first_head;  // within the packed row
};
struct Heads {
  const tc_buffer *qkv, *q, *k, *v;
  int batch, seq, heads, kv_heads, head_dim;
};
enum class Direction : uint8_t { split, merge };

void require_apart(const Call& call, const char* name, const tc_tensor& tensor, const char* other_name,
                   const tc_tensor& other) {
  require(!may_overlap(tensor, other), "{}: {} overlaps {}; they must be apart", call.name(), name, other_name);
}

tc_status_t move_heads(const char* name, tc_context* ctx, const Heads& h, Direction direction) {
  return call(name, ctx, {h.qkv, h.q, h.k, h.v}, [&](Call& call) {
    const int32_t dtype = training_dtype(ctx);
    call.require_positive({{"batch", h.batch}, {"seq", h.seq}, {"heads", h.heads}, {"head_dim", h.head_dim}});
    const bool q_alone = !h.k && !h.v && h.kv_heads == 0;
    if (!q_alone) call.require_positive({{"kv_heads", h.kv_heads}});
    const int64_t kv_heads = h.kv_heads, d = h.head_dim;
    int64_t row;
    if (__builtin_mul_overflow(h.heads + 2 * kv_heads, d, &row))
      fail(TC_ERR_INVALID_SHAPE,
           "{}: heads, kv_heads and head_dim are {}, {} and {}; a row of QKV passes 2^63 elements", name, h.heads,
           kv_heads, d);
    const tc_tensor packed = call.tensor("QKV", h.qkv, dtype, {h.batch, h.seq, row});
    const Part parts[] = {
        {"Q", h.q, h.heads, 0}, {"K", h.k, kv_heads, h.heads}, {"V", h.v, kv_heads, h.heads + kv_heads}};
    tc_tensor views[3];
    for (int i = 0; i < (q_alone ? 1 : 3); ++i) {
      const Part& part = parts[i];
      views[i] = call.tensor(part.name, part.buffer, dtype, {h.batch, part.heads, h.seq, d});
      require_apart(call, part.name, views[i], "QKV", packed);
      for (int j = 0; j < i && direction == Direction::split; ++j)
        require_apart(call, part.name, views[i], parts[j].name, views[j]);
      tc_tensor inside = call.tensor("QKV", h.qkv, dtype, {h.batch, part.heads, h.seq, d}, {h.seq * row, d, row, 1});
      inside.data = static_cast<std::byte*>(inside.data) + part.first_head * d * int64_t(tc_dtype_size(dtype));
      tcx_cast_args a = tcx_cast_args_default();
      a.x = direction == Direction::split ? inside : views[i];
      a.y = direction == Direction::split ? views[i] : inside;
      call.add(tcx_cast, tcx_cast_workspace, a);
    }
  });
}

}  // namespace
}  // namespace tc::kit

using namespace tc::kit;  // NOLINT(google-build-using-namespace): the C face of this namespace

tc_status_t tc_split_heads(tc_context* ctx, const tc_buffer* QKV, tc_buffer* Q, tc_buffer* K, tc_buffer* V, int batch,
                           int seq, int heads, int kv_heads, int head_dim) {
  return move_heads("tc_split_heads", ctx, {QKV, Q, K, V, batch, seq, heads, kv_heads, head_dim}, Direction::split);
}

tc_status_t tc_merge_heads(tc_context* ctx, const tc_buffer* Q, const tc_buffer* K, const tc_buffer* V, tc_buffer* QKV,
                           int batch, int seq, int heads, int kv_heads, int head_dim) {
  return move_heads("tc_merge_heads", ctx, {QKV, Q, K, V, batch, seq, heads, kv_heads, head_dim}, Direction::merge);
}
