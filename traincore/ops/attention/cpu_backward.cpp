// The backward kernel of attention: compiled once per SIMD target, the best one is chosen at run time. One traversal of
// the tiles gives every gradient: dq is summed over the keys of a tile of queries, dk and dv over the queries in slabs.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "traincore/ops/attention/cpu_backward.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "traincore/cpu/parallel.h"
#include "traincore/cpu/vector.h"
#include "traincore/ops/attention/scores-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tc::ops::attention::HWY_NAMESPACE {
namespace {

using Args = tcx_attention_backward_args;

struct UnitScratch {
  float *q, *dout;        // [kTile][padded(head_dim or value_dim)]
  float *q_t, *dout_t;    // [head_dim or value_dim][kTile]: transposed
  float* dq;              // [kTile][padded(head_dim)], without its scale
  float *max, *log2_sum;  // [kTile]: probability = 2^(exponent (score - max) - log2_sum)
  float* delta;           // [kTile]: sum of do o
  bool* none;             // [kTile]: the query sees no key
};

struct TaskScratch {
  float *k, *v;             // [kTile][padded(head_dim or value_dim)]: one tile of keys
  float *scores, *dscores;  // [kTile keys][kTile]: then probabilities and dz, then ds without its scale
  float *dcap, *kept;       // [kTile keys][kTile]: derivative of the soft cap, dropout
  UnitScratch units[kBackwardUnits];
};
TaskScratch carve_task(const Extents& e, const Scoring& scoring, Arena& arena) {
  constexpr int64_t kScores = kTile * kTile;
  const auto rows = [&](int64_t width) { return arena.take<float>(kTile * padded(width)); };
  TaskScratch s{rows(e.head_dim),
                rows(e.value_dim),
                arena.take<float>(kScores),
                arena.take<float>(kScores),
                arena.take<float>(scoring.capped() ? kScores : 0),
                arena.take<float>(scoring.drops() ? kScores : 0),
                {}};
  for (UnitScratch& u : s.units)
    u = {rows(e.head_dim),
         rows(e.value_dim),
         arena.take<float>(e.head_dim * kTile),
         arena.take<float>(e.value_dim * kTile),
         rows(e.head_dim),
         arena.take<float>(kTile),
         arena.take<float>(kTile),
         arena.take<float>(kTile),
         arena.take<bool>(kTile)};
  return s;
}

// The dot product of one row of a [batch, heads, seq, width] tensor with f32 numbers.
float dot_row(const tc_tensor& t, int64_t batch, int64_t head, int64_t row, const float* with) {
  float dot = 0;
  with_type(FloatTypes{}, t.dtype, [&]<class T>() HWY_ATTR {
    const T* from = static_cast<const T*>(t.data) + batch * t.stride[0] + head * t.stride[1] + row * t.stride[2];
    dot = sum_row(t.shape[3], [&](auto at) HWY_ATTR { return hn::Mul(at.load(from), at.load(with)); });
  });
  return dot;
}

// Where one slab sums the gradients of one sequence's keys: rows of padded(width). NULL: not asked for.
struct Sums {
  float *dk, *dv;
  double* dslopes;  // [group]
};

HWY_INLINE void add_to(float* p, V v) { store(p, hn::Add(load(p), v)); }

// Units of one key head, in one slab.
class Task {
 public:
  Task(const Args& a, const Scoring& scoring, const KeyHead& head, const Sums& sums, Arena& arena)
      : a_(a), e_(head.e), scoring_(scoring), head_(head), sums_(sums), scratch_(carve_task(head.e, scoring, arena)) {}

  // A few units: the keys go by once, a tile at a time.
  void run(int64_t first, int64_t count) {
    Unit units[kBackwardUnits];
    for (int64_t i = 0; i < count; ++i) begin(units[i] = head_.unit(first + i), scratch_.units[i]);
    for_key_tiles(a_, head_, units, count, scratch_.k, scratch_.v,
                  [&](int64_t i, const Tile& tile) HWY_ATTR { add_keys(units[i], tile, scratch_.units[i]); });
    for (int64_t i = 0; i < count && given(a_.dq); ++i) store_dq(units[i], scratch_.units[i]);
  }

 private:
  void begin(const Unit& u, const UnitScratch& s) {
    load_rows(a_.q, head_.sequence.batch, head_.head_of(u), head_.query_of(u), u.count, s.q);
    load_rows(a_.dout, head_.sequence.batch, head_.head_of(u), head_.query_of(u), u.count, s.dout);
    for (int64_t i = 0; i < kTile; ++i) {
      s.max[i] = s.log2_sum[i] = s.delta[i] = 0;
      s.none[i] = false;
      if (i < u.count) load_saved(u, i, s);
      if (!s.none[i]) continue;  // whatever its do and q hold, it adds nothing
      std::fill_n(s.q + i * padded(e_.head_dim), padded(e_.head_dim), 0.0f);
      std::fill_n(s.dout + i * padded(e_.value_dim), padded(e_.value_dim), 0.0f);
      s.max[i] = s.log2_sum[i] = s.delta[i] = 0;
    }
    transpose(s.q, padded(e_.head_dim), u.count, e_.head_dim, s.q_t);
    transpose(s.dout, padded(e_.value_dim), u.count, e_.value_dim, s.dout_t);
    std::fill_n(s.dq, kTile * padded(e_.head_dim), 0.0f);
  }

  // What forward saved for query i of a unit, and its delta.
  void load_saved(const Unit& u, int64_t i, const UnitScratch& s) {
    const int64_t batch = head_.sequence.batch, head = head_.head_of(u), query = head_.query_of(u) + i;
    if (given(a_.row_max)) {
      s.max[i] = *value_at(a_.row_max, batch, head, query);
      s.log2_sum[i] = static_cast<float>(*value_at(a_.row_log_sum, batch, head, query) * kLog2E);
    } else {
      s.max[i] = static_cast<float>(*value_at(a_.lse, batch, head, query) / scoring_.factor());
    }
    s.none[i] = sees_nothing(u, i, s);
    const tc_tensor& o = given(a_.precise_output) ? a_.precise_output : a_.o;
    const float* const dout = s.dout + i * padded(e_.value_dim);
    s.delta[i] = dot_row(o, batch, head, query, dout);
  }

  // Forward saved zeros, or an lse of -inf, for a query that sees no key; zeros may also be another's.
  bool sees_nothing(const Unit& u, int64_t i, const UnitScratch& s) const {
    const int64_t begin = head_.window.begin(u.first + i), end = head_.window.end(u.first + i);
    if (begin >= end || s.max[i] == -kInfinity) return true;
    if (s.max[i] != 0 || s.log2_sum[i] != 0) return false;
    return scoring_.hides_all(head_.tile({u.head, u.first + i, 1}, begin, end - begin), 0);
  }

  void add_keys(const Unit& u, const Tile& tile, const UnitScratch& s) {
    const int64_t k_stride = padded(e_.head_dim), v_stride = padded(e_.value_dim);
    float *const scores = scratch_.scores, *const dscores = scratch_.dscores;
    multiply<false>(tile.keys, tile.queries, e_.head_dim, {scratch_.k, k_stride}, {s.q_t, kTile},
                    [&](int64_t i, int64_t j, V sum) HWY_ATTR { store(scores + i * kTile + j, sum); });
    multiply<false>(tile.keys, tile.queries, e_.value_dim, {scratch_.v, v_stride}, {s.dout_t, kTile},
                    [&](int64_t i, int64_t j, V sum) HWY_ATTR { store(dscores + i * kTile + j, sum); });
    scoring_.apply(head_.window, tile, scores, scratch_.dcap);
    if (scoring_.drops()) scoring_.keep(tile, scratch_.kept);
    for_lanes(tile, [&](int64_t q) HWY_ATTR { differentiate(tile, q, s); });
    if (sums_.dslopes) sums_.dslopes[u.head] -= sum_of_distances(tile);
    if (scoring_.capped())
      for_scores(tile,
                 [&](int64_t i) HWY_ATTR { store(dscores + i, hn::Mul(load(dscores + i), load(scratch_.dcap + i))); });
    if (sums_.dv)
      multiply<false>(tile.keys, e_.value_dim, tile.queries, {scores, kTile}, {s.dout, v_stride},
                      [&](int64_t i, int64_t j, V sum)
                          HWY_ATTR { add_to(sums_.dv + (tile.local_key + i) * v_stride + j, sum); });
    if (sums_.dk)
      multiply<false>(tile.keys, e_.head_dim, tile.queries, {dscores, kTile}, {s.q, k_stride},
                      [&](int64_t i, int64_t j, V sum)
                          HWY_ATTR { add_to(sums_.dk + (tile.local_key + i) * k_stride + j, sum); });
    if (given(a_.dq))
      multiply<true>(tile.queries, e_.head_dim, tile.keys, {dscores, kTile}, {scratch_.k, k_stride},
                     [&](int64_t i, int64_t j, V sum) HWY_ATTR { add_to(s.dq + i * k_stride + j, sum); });
  }

  // Scores become probabilities, after dropout, and do.v becomes dz, for the queries in the lanes from q on.
  HWY_INLINE void differentiate(const Tile& tile, int64_t q, const UnitScratch& s) {
    const V exponent = set(scoring_.exponent()), max = load(s.max + q), log2_sum = load(s.log2_sum + q);
    const V delta = load(s.delta + q);
    const bool drops = scoring_.drops();
    for (int64_t k = 0; k < tile.keys; ++k) {
      float *const score = scratch_.scores + k * kTile + q, *const dscore = scratch_.dscores + k * kTile + q;
      const V p = weight(hn::MulSub(hn::Sub(load(score), max), exponent, log2_sum));
      const V kept = drops ? load(scratch_.kept + k * kTile + q) : set(1);
      const V dz = hn::Mul(p, hn::MulSub(load(dscore), kept, delta));
      store(dscore, hn::IfThenZeroElse(hn::Eq(p, hn::Zero(F32())), dz));  // even where v or do is not finite
      store(score, hn::Mul(p, kept));
    }
  }

  // The sum of dz |position - key| over a tile.
  double sum_of_distances(const Tile& tile) const {
    double sum = 0;
    for (int64_t k = 0; k < tile.keys; ++k)
      sum += sum_row(tile.queries, [&](auto at) HWY_ATTR {
        return hn::Mul(at.load(scratch_.dscores + k * kTile), scoring_.distance(head_.window, tile, at.i, k));
      });
    return sum;
  }

  void store_dq(const Unit& u, const UnitScratch& s) {
    for (int64_t i = 0; i < u.count; ++i) {
      const float* const dq = s.dq + i * padded(e_.head_dim);
      store_row(a_.dq, head_.sequence.batch, head_.head_of(u), head_.query_of(u) + i, [&](auto at) HWY_ATTR {
        return s.none[i] ? hn::Zero(F32()) : hn::Mul(at.load(dq), set(scoring_.scale()));
      });
    }
  }

  const Args& a_;
  const Extents& e_;
  const Scoring& scoring_;
  const KeyHead& head_;
  const Sums sums_;
  const TaskScratch scratch_;
};

// A tile of dk or dv from key `first` of a sequence on: the slabs' sums in order, `slab` floats apart.
void add_slabs(const tc_tensor& t, const KeyHead& head, int64_t first, const float* sums, int64_t slabs, int64_t slab,
               float scale) {
  const int64_t end = std::min(first + kTile, head.sequence.keys);
  for (int64_t key = first; key < end; ++key) {
    const float* const row = sums + key * padded(t.shape[3]);
    store_row(t, head.sequence.batch, head.index, head.sequence.first_key + key, [&](auto at) HWY_ATTR {
      V sum = at.load(row);
      for (int64_t n = 1; n < slabs; ++n) sum = hn::Add(sum, at.load(row + n * slab));
      return hn::Mul(sum, set(scale));
    });
  }
}

// How the sums lie in scratch.
struct Slabs {
  const Args& a;
  const Extents e;
  const BackwardScratch& scratch;
  const int64_t count = slabs_of(a), rows = slab_rows(a);

  int64_t size(int64_t width) const { return e.kv_heads * rows * padded(width); }
  float* at(float* sums, int64_t width, int64_t slab, int64_t sequence, int64_t head) const {
    return sums ? sums + slab * size(width) + (head * rows + slab_row(a, e, sequence)) * padded(width) : nullptr;
  }
  // The sums of one slab, cleared.
  Sums begin(int64_t slab, int64_t sequence, int64_t head) const {
    const int64_t used = slab_row(a, e, sequence + 1) - slab_row(a, e, sequence);
    const Sums s{
        at(scratch.dk, e.head_dim, slab, sequence, head), at(scratch.dv, e.value_dim, slab, sequence, head),
        scratch.dslopes ? scratch.dslopes + (slab * e.sequences + sequence) * e.heads + head * e.group : nullptr};
    if (s.dk) std::fill_n(s.dk, used * padded(e.head_dim), 0.0f);
    if (s.dv) std::fill_n(s.dv, used * padded(e.value_dim), 0.0f);
    if (s.dslopes) std::fill_n(s.dslopes, e.group, 0.0);
    return s;
  }
};

void store_slopes(const Args& a, const Slabs& slabs) {
  for (int64_t h = 0; h < slabs.e.heads; ++h) {
    double sum = 0;
    for (int64_t n = 0; n < slabs.count * slabs.e.sequences; ++n) sum += slabs.scratch.dslopes[n * slabs.e.heads + h];
    slabs.scratch.slopes[h] = static_cast<float>(sum);
  }
  store_as(a.dalibi_slopes, slabs.scratch.slopes, a.accumulate != 0);
}

void backward(const Args& a, const tc_exec& exec) {
  const Scratch scratch(carve_backward, a, exec);
  const Extents e = extents_of(a);
  const Slabs slabs{a, e, *scratch};
  const Scoring scoring(a, e);
  Arena counting;
  carve_task(e, scoring, counting);
  parallel_for(e.sequences * e.kv_heads * slabs.count, exec.threads, [&](int64_t i) {
    const int64_t slab = i % slabs.count, sequence = i / slabs.count / e.kv_heads, index = i / slabs.count % e.kv_heads;
    const KeyHead head = key_head_of(a, e, sequence, index);
    const ThreadScratch memory(counting.used());
    Arena arena(memory.data());
    Task task(a, scoring, head, slabs.begin(slab, sequence, index), arena);
    for (int64_t first = slab * kBackwardUnits; first < head.units(); first += slabs.count * kBackwardUnits)
      task.run(first, std::min(kBackwardUnits, head.units() - first));
  });
  const int64_t blocks = tiles(longest(a, e, &Sequence::keys));
  parallel_for(e.sequences * e.kv_heads * blocks, exec.threads, [&](int64_t i) {
    const int64_t sequence = i / blocks / e.kv_heads, index = i / blocks % e.kv_heads, first = i % blocks * kTile;
    const KeyHead head = key_head_of(a, e, sequence, index);
    const auto add = [&](const tc_tensor& t, float* sums, float scale) {
      if (given(t))
        add_slabs(t, head, first, slabs.at(sums, t.shape[3], 0, sequence, index), slabs.count, slabs.size(t.shape[3]),
                  scale);
    };
    add(a.dk, scratch->dk, scoring.scale());
    add(a.dv, scratch->dv, 1);
  });
  if (given(a.dalibi_slopes)) store_slopes(a, slabs);
}

}  // namespace
}  // namespace tc::ops::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tc::ops::attention {

HWY_EXPORT(backward);
void backward_cpu(const tcx_attention_backward_args& a, const tc_exec& exec) {
  check_sequences("attention_backward", a);
  HWY_DYNAMIC_DISPATCH(backward)(a, exec);
}

}  // namespace tc::ops::attention
#endif
