// The backward kernel of attention: compiled once per SIMD target, the best one is chosen at run time. One traversal of
// the tiles gives every gradient but dbias (cpu_dbias.cpp): dq is summed over the keys of a tile of queries, dk and dv
// over the queries in slabs.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "traincore/ops/attention/cpu_backward.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "traincore/cpu/parallel.h"
#include "traincore/cpu/vector.h"
#include "traincore/ops/attention/backward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tc::ops::attention::HWY_NAMESPACE {
namespace {

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
      : a_(a),
        e_(head.e),
        scoring_(scoring),
        head_(head),
        sums_(sums),
        scratch_(carve_task(head.e, scoring, arena)),
        tiles_(a, scoring, head, scratch_) {}

  // A few units: the keys go by once, a tile at a time.
  void run(int64_t first, int64_t count) {
    Unit units[kBackwardUnits];
    for (int64_t i = 0; i < count; ++i) {
      tiles_.begin(units[i] = head_.unit(first + i), scratch_.units[i]);
      std::fill_n(scratch_.units[i].dq, kTile * padded(e_.head_dim), 0.0f);
    }
    for_key_tiles(a_, head_, units, count, scratch_.k, scratch_.v,
                  [&](int64_t i, const Tile& tile) HWY_ATTR { add_keys(units[i], tile, scratch_.units[i]); });
    for (int64_t i = 0; i < count && given(a_.dq); ++i) store_dq(units[i], scratch_.units[i]);
  }

 private:
  void add_keys(const Unit& u, const Tile& tile, const UnitScratch& s) {
    const int64_t k_stride = padded(e_.head_dim), v_stride = padded(e_.value_dim);
    float *const scores = scratch_.scores, *const dscores = scratch_.dscores;
    tiles_.run(tile, s);
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
  const Differentiation tiles_;
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

void dbias_cpu(const tcx_attention_backward_args&, const tc_exec&);

HWY_EXPORT(backward);
void backward_cpu(const tcx_attention_backward_args& a, const tc_exec& exec) {
  check_sequences("attention_backward", a);
  if (given(a.dq) || given(a.dk) || given(a.dv) || given(a.dalibi_slopes)) HWY_DYNAMIC_DISPATCH(backward)(a, exec);
  if (given(a.dbias)) dbias_cpu(a, exec);
}

}  // namespace tc::ops::attention
#endif
