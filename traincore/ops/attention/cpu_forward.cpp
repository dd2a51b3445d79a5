// The forward kernel of attention: compiled once per SIMD target, the best one is chosen at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "traincore/ops/attention/cpu_forward.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "traincore/cpu/parallel.h"
#include "traincore/ops/attention/scores-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tc::ops::attention::HWY_NAMESPACE {
namespace {

using Args = tcx_attention_forward_args;

// One unit's queries, and its sums over the keys so far, relative to the largest score so far.
struct UnitScratch {
  float* q;    // [head_dim][kTile]: transposed
  float* o;    // [kTile][padded(value_dim)]: sum of weights times v
  float* max;  // [kTile]: largest score
  float* sum;  // [kTile]: sum of weights
};

struct TaskScratch {
  float *k, *v;   // [kTile][padded(head_dim or value_dim)]: one tile of keys
  float* scores;  // [kTile keys][kTile], then weights
  float* decay;   // [kTile]: what a new largest score makes of the sums
  float* kept;    // [kTile keys][kTile]: dropout
  UnitScratch units[kForwardUnits];
};
TaskScratch carve_task(const Extents& e, const Scoring& scoring, Arena& arena) {
  TaskScratch s{arena.take<float>(kTile * padded(e.head_dim)),
                arena.take<float>(kTile * padded(e.value_dim)),
                arena.take<float>(kTile * kTile),
                arena.take<float>(kTile),
                arena.take<float>(scoring.drops() ? kTile * kTile : 0),
                {}};
  for (UnitScratch& u : s.units)
    u = {arena.take<float>(e.head_dim * kTile), arena.take<float>(kTile * padded(e.value_dim)),
         arena.take<float>(kTile), arena.take<float>(kTile)};
  return s;
}

// A few units of one key head: the keys go by once, a tile at a time.
class Task {
 public:
  Task(const Args& a, const Scoring& scoring, const KeyHead& head, Arena& arena)
      : a_(a), e_(head.e), scoring_(scoring), head_(head), scratch_(carve_task(head.e, scoring, arena)) {}

  void run(int64_t first, int64_t count) {
    Unit units[kForwardUnits];
    for (int64_t i = 0; i < count; ++i) begin(units[i] = head_.unit(first + i), scratch_.units[i]);
    for_key_tiles(a_, head_, units, count, scratch_.k, scratch_.v,
                  [&](int64_t i, const Tile& tile) HWY_ATTR { add_keys(tile, scratch_.units[i]); });
    for (int64_t i = 0; i < count; ++i) finish(units[i], scratch_.units[i]);
  }

 private:
  void begin(const Unit& u, const UnitScratch& s) {
    load_rows(a_.q, head_.sequence.batch, head_.head_of(u), head_.query_of(u), u.count, scratch_.k);
    transpose(scratch_.k, padded(e_.head_dim), u.count, e_.head_dim, s.q);
    std::fill_n(s.o, kTile * padded(e_.value_dim), 0.0f);
    std::fill_n(s.max, kTile, -kInfinity);
    std::fill_n(s.sum, kTile, 0.0f);
  }

  void add_keys(const Tile& tile, const UnitScratch& s) {
    float* const scores = scratch_.scores;
    multiply<false>(tile.keys, tile.queries, e_.head_dim, {scratch_.k, padded(e_.head_dim)}, {s.q, kTile},
                    [&](int64_t i, int64_t j, V sum) HWY_ATTR { store(scores + i * kTile + j, sum); });
    scoring_.apply(head_.window, tile, scores, nullptr);
    for_lanes(tile, [&](int64_t q) HWY_ATTR { weigh(tile, q, s); });
    if (scoring_.drops()) drop(tile);
    const int64_t stride = padded(e_.value_dim);
    multiply<true>(tile.queries, e_.value_dim, tile.keys, {scores, kTile}, {scratch_.v, stride},
                   [&](int64_t i, int64_t j, V sum) HWY_ATTR {
                     float* const o = s.o + i * stride + j;
                     store(o, hn::MulAdd(load(o), set(scratch_.decay[i]), sum));
                   });
  }

  // Scores become weights, e^(factor (score - largest)), for the queries in the lanes from q on.
  HWY_INLINE void weigh(const Tile& tile, int64_t q, const UnitScratch& s) {
    float* const scores = scratch_.scores + q;
    const V before = load(s.max + q), exponent = set(scoring_.exponent());
    V max = before;
    for (int64_t k = 0; k < tile.keys; ++k) max = hn::Max(max, load(scores + k * kTile));
    const V base = hn::IfThenZeroElse(hn::Eq(max, set(-kInfinity)), max);  // no key seen: -inf - 0 has weight 0
    V sum = hn::Zero(F32());
    for (int64_t k = 0; k < tile.keys; ++k) {
      const V p = weight(hn::Mul(hn::Sub(load(scores + k * kTile), base), exponent));
      store(scores + k * kTile, p);
      sum = hn::Add(sum, p);
    }
    const V decay = weight(hn::Mul(hn::Sub(before, base), exponent));
    store(scratch_.decay + q, decay);
    store(s.max + q, max);
    store(s.sum + q, hn::MulAdd(load(s.sum + q), decay, sum));
  }

  void drop(const Tile& tile) {
    scoring_.keep(tile, scratch_.kept);
    for_scores(tile, [&](int64_t i) HWY_ATTR {
      store(scratch_.scores + i, hn::Mul(load(scratch_.scores + i), load(scratch_.kept + i)));
    });
  }

  void finish(const Unit& u, const UnitScratch& s) {
    const int64_t batch = head_.sequence.batch, head = head_.head_of(u);
    for (int64_t i = 0; i < u.count; ++i) {
      const int64_t query = head_.query_of(u) + i;
      const bool none = s.sum[i] == 0;
      const float* const o = s.o + i * padded(e_.value_dim);
      const auto value = [&](auto at) HWY_ATTR { return none ? hn::Zero(F32()) : hn::Div(at.load(o), set(s.sum[i])); };
      store_row(a_.o, batch, head, query, value);
      if (given(a_.precise_output)) store_row(a_.precise_output, batch, head, query, value);
      const float max = none ? 0 : s.max[i], log_sum = none ? 0 : std::log(s.sum[i]);
      const auto keep = [&](const tc_tensor& t, double x) {
        if (given(t)) *value_at(t, batch, head, query) = static_cast<float>(x);
      };
      keep(a_.row_max, max);
      keep(a_.row_log_sum, log_sum);
      keep(a_.lse, none ? -kInfinity : max * scoring_.factor() + log_sum);
    }
  }

  const Args& a_;
  const Extents& e_;
  const Scoring& scoring_;
  const KeyHead& head_;
  const TaskScratch scratch_;
};

void forward(const Args& a, const tc_exec& exec) {
  const Extents e = extents_of(a);
  const Scoring scoring(a, e);
  Arena counting;
  carve_task(e, scoring, counting);
  const int64_t blocks = (tiles(longest(a, e, &Sequence::queries)) * e.group + kForwardUnits - 1) / kForwardUnits;
  parallel_for(e.sequences * e.kv_heads * blocks, exec.threads, [&](int64_t i) {
    const KeyHead head = key_head_of(a, e, i / blocks / e.kv_heads, i / blocks % e.kv_heads);
    const int64_t first = (blocks - 1 - i % blocks) * kForwardUnits;  // causal: the last queries have most to do
    const int64_t count = std::min(kForwardUnits, head.units() - first);
    if (count <= 0) return;
    const ThreadScratch memory(counting.used());
    Arena arena(memory.data());
    Task(a, scoring, head, arena).run(first, count);
  });
}

}  // namespace
}  // namespace tc::ops::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tc::ops::attention {

HWY_EXPORT(forward);
void forward_cpu(const tcx_attention_forward_args& a, const tc_exec& exec) {
  check_sequences("attention_forward", a);
  HWY_DYNAMIC_DISPATCH(forward)(a, exec);
}

}  // namespace tc::ops::attention
#endif
