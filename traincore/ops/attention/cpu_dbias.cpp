// The gradient of attention's bias: compiled once per SIMD target, the best one is chosen at run time. A traversal of
// its own, by tiles of dbias: whatever was broadcast is summed by the task that owns the tile, in one order, so no sum
// is shared between tasks and none is quadratic in scratch.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "traincore/ops/attention/cpu_dbias.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "traincore/cpu/parallel.h"
#include "traincore/ops/attention/backward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tc::ops::attention::HWY_NAMESPACE {
namespace {

constexpr int64_t kKeyTiles = 8;  // tiles of keys of one task: a tile of queries is prepared once for them

// How a call's dbias falls into tasks. A dimension of extent 1 is summed, the others are tasks' own.
struct Owners {
  const Args& a;
  const Extents e;
  const bool packed = given(a.cu_seqlens_q);
  const bool sums_queries = a.dbias.shape[2] == 1, sums_keys = a.dbias.shape[3] == 1;
  // Packed sequences own their queries and keys, so only a sum over both goes over sequences.
  const bool sums_sequences = packed ? sums_queries && sums_keys : a.dbias.shape[0] == 1;
  const bool sums_heads = a.dbias.shape[1] == 1;

  int64_t sequences() const { return sums_sequences ? 1 : e.sequences; }
  int64_t query_tiles() const { return sums_queries ? 1 : tiles(packed ? longest(a, e, &Sequence::queries) : e.seq_q); }
  int64_t key_blocks() const {
    const int64_t keys = packed ? longest(a, e, &Sequence::keys) : e.seq_k;
    return sums_keys ? 1 : (tiles(keys) + kKeyTiles - 1) / kKeyTiles;
  }
  int64_t count() const { return sequences() * a.dbias.shape[1] * query_tiles() * key_blocks(); }
};

// [begin, end) of a sum, or the one index that a task owns.
struct Range {
  int64_t begin, end;
  Range(bool sums, int64_t own, int64_t all) : begin(sums ? 0 : own), end(sums ? all : own + 1) {}
};

// One task: a tile of queries of dbias, or their sum, against a few tiles of keys, or the sum of all.
class Task {
 public:
  Task(const Owners& owners, const Scoring& scoring, int64_t index, Arena& arena)
      : o_(owners), scoring_(scoring), scratch_(carve_task(owners.e, scoring, arena)) {
    sums_ = arena.take<double>(kTile * kTile);
    key_block_ = index % o_.key_blocks(), index /= o_.key_blocks();
    query_tile_ = index % o_.query_tiles(), index /= o_.query_tiles();
    head_ = index % o_.a.dbias.shape[1], sequence_ = index / o_.a.dbias.shape[1];
  }

  void run() {
    if (o_.sums_keys) return run_tile(0);
    for (int64_t tile = key_block_ * kKeyTiles; tile < (key_block_ + 1) * kKeyTiles; ++tile) run_tile(tile);
  }

 private:
  // One tile of dbias.
  void run_tile(int64_t key_tile) {
    std::fill_n(sums_, kTile * kTile, 0.0);
    const Range sequences(o_.sums_sequences, sequence_, o_.e.sequences), heads(o_.sums_heads, head_, o_.e.heads);
    for (int64_t s = sequences.begin; s < sequences.end; ++s)
      for (int64_t h = heads.begin; h < heads.end; ++h) add_head(s, h, key_tile);
    store_tile(key_tile);
  }

  void add_head(int64_t sequence, int64_t h, int64_t key_tile) {
    const KeyHead head = key_head_of(o_.a, o_.e, sequence, h / o_.e.group);
    const Differentiation differentiation(o_.a, scoring_, head, scratch_);
    const Range queries(o_.sums_queries, query_tile_, tiles(head.sequence.queries));
    const Range keys(o_.sums_keys, key_tile, tiles(head.sequence.keys));
    for (int64_t q = queries.begin; q < queries.end && q * kTile < head.sequence.queries; ++q) {
      const Unit unit = head.unit(q * o_.e.group + h % o_.e.group);
      for (int64_t k = keys.begin; k < keys.end; ++k) {
        const int64_t first = k * kTile, count = std::min(kTile, head.sequence.keys - first);
        if (count <= 0 || !head.sees(unit, first, count)) continue;
        prepare(differentiation, unit, sequence, h);
        load_rows(o_.a.k, head.sequence.batch, head.index, head.sequence.first_key + first, count, scratch_.k);
        load_rows(o_.a.v, head.sequence.batch, head.index, head.sequence.first_key + first, count, scratch_.v);
        const Tile tile = head.tile(unit, first, count);
        differentiation.run(tile, scratch_.units[0]);
        add(tile);
      }
    }
  }

  // The unit's queries in scratch, unless they are there already.
  void prepare(const Differentiation& differentiation, const Unit& unit, int64_t sequence, int64_t head) {
    const Prepared wanted{sequence, head, unit.first};
    if (wanted == prepared_) return;
    differentiation.begin(unit, scratch_.units[0]);
    prepared_ = wanted;
  }

  void add(const Tile& tile) {
    for (int64_t k = 0; k < tile.keys; ++k)
      for (int64_t q = 0; q < tile.queries; ++q)
        sums_[(o_.sums_keys ? 0 : k * kTile) + (o_.sums_queries ? 0 : q)] +=
            static_cast<double>(scratch_.dscores[k * kTile + q]);
  }

  void store_tile(int64_t key_tile) {
    const tc_tensor& t = o_.a.dbias;
    const Sequence s = o_.packed && o_.sums_sequences ? Sequence{} : sequence_of(o_.a, o_.e, sequence_);
    const auto count = [](bool sums, int64_t tile, int64_t extent) {
      return sums ? 1 : std::min(kTile, extent - tile * kTile);
    };
    const int64_t row = o_.sums_queries ? 0 : s.first_query + query_tile_ * kTile;
    const int64_t column = o_.sums_keys ? 0 : s.first_key + key_tile * kTile;
    const int64_t rows = count(o_.sums_queries, query_tile_, s.queries);
    const int64_t columns = count(o_.sums_keys, key_tile, s.keys);
    const int64_t start = (t.shape[0] == 1 ? 0 : sequence_ * t.stride[0]) + head_ * t.stride[1];
    with_type(FloatTypes{}, t.dtype, [&]<class T>() {
      for (int64_t q = 0; q < rows; ++q) {
        T* const to = static_cast<T*>(t.data) + start + (row + q) * t.stride[2] + column;
        for (int64_t k = 0; k < columns; ++k)
          to[k] =
              T(static_cast<float>(sums_[k * kTile + q] + (o_.a.accumulate ? static_cast<double>(float(to[k])) : 0)));
      }
    });
  }

  struct Prepared {
    int64_t sequence, head, first;
    bool operator==(const Prepared&) const = default;
  };

  const Owners& o_;
  const Scoring& scoring_;
  const TaskScratch scratch_;
  double* sums_;  // [kTile keys][kTile]
  int64_t sequence_, head_, query_tile_, key_block_;
  Prepared prepared_{-1, -1, -1};
};

// Pairs of different packed sequences have a bias that nothing reads.
void clear(const tc_tensor& t) {
  const AnyRows rows(t);
  for (int64_t r = 0; r < rows.count(); ++r)
    std::memset(rows.at(r), 0, static_cast<size_t>(rows.cols()) * tc_dtype_size(t.dtype));
}

void dbias(const Args& a, const tc_exec& exec) {
  const Owners owners{a, extents_of(a)};
  const Scoring scoring(a, owners.e);
  if (owners.packed && !a.accumulate) clear(a.dbias);
  Arena counting;
  carve_task(owners.e, scoring, counting);
  counting.take<double>(kTile * kTile);
  parallel_for(owners.count(), exec.threads, [&](int64_t i) {
    const ThreadScratch memory(counting.used());
    Arena arena(memory.data());
    Task(owners, scoring, i, arena).run();
  });
}

}  // namespace
}  // namespace tc::ops::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tc::ops::attention {

HWY_EXPORT(dbias);
void dbias_cpu(const tcx_attention_backward_args& a, const tc_exec& exec) { HWY_DYNAMIC_DISPATCH(dbias)(a, exec); }

}  // namespace tc::ops::attention
#endif
