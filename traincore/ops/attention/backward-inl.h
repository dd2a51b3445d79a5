// What every traversal of attention's backward does to a tile: from q, k, v, do and what forward saved to the
// probabilities and to dz.
#if defined(TRAINCORE_OPS_ATTENTION_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRAINCORE_OPS_ATTENTION_BACKWARD_INL_H_
#undef TRAINCORE_OPS_ATTENTION_BACKWARD_INL_H_
#else
#define TRAINCORE_OPS_ATTENTION_BACKWARD_INL_H_
#endif

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

// Tiles of one key head.
class Differentiation {
 public:
  Differentiation(const Args& a, const Scoring& scoring, const KeyHead& head, const TaskScratch& scratch)
      : a_(a), e_(head.e), scoring_(scoring), head_(head), scratch_(scratch) {}

  // A unit's queries, their cotangents and what forward saved.
  void begin(const Unit& u, const UnitScratch& s) const {
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
  }

  // Leaves the tile's probabilities, after dropout, in scores, its dz in dscores, and dcap where there is a soft cap;
  // scratch holds the tile's keys and values.
  void run(const Tile& tile, const UnitScratch& s) const {
    const int64_t k_stride = padded(e_.head_dim), v_stride = padded(e_.value_dim);
    float *const scores = scratch_.scores, *const dscores = scratch_.dscores;
    multiply<false>(tile.keys, tile.queries, e_.head_dim, {scratch_.k, k_stride}, {s.q_t, kTile},
                    [&](int64_t i, int64_t j, V sum) HWY_ATTR { store(scores + i * kTile + j, sum); });
    multiply<false>(tile.keys, tile.queries, e_.value_dim, {scratch_.v, v_stride}, {s.dout_t, kTile},
                    [&](int64_t i, int64_t j, V sum) HWY_ATTR { store(dscores + i * kTile + j, sum); });
    scoring_.apply(head_.window, tile, scores, scratch_.dcap);
    if (scoring_.drops()) scoring_.keep(tile, scratch_.kept);
    for_lanes(tile, [&](int64_t q) HWY_ATTR { differentiate(tile, q, s); });
  }

 private:
  // What forward saved for query i of a unit, and its delta.
  void load_saved(const Unit& u, int64_t i, const UnitScratch& s) const {
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

  // Scores become probabilities, after dropout, and do.v becomes dz, for the queries in the lanes from q on.
  HWY_INLINE void differentiate(const Tile& tile, int64_t q, const UnitScratch& s) const {
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

  const Args& a_;
  const Extents& e_;
  const Scoring& scoring_;
  const KeyHead& head_;
  const TaskScratch& scratch_;
};

}  // namespace
}  // namespace tc::ops::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // TRAINCORE_OPS_ATTENTION_BACKWARD_INL_H_
