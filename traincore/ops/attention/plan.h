// How attention is cut into tiles and tasks, and which keys a query sees: from shapes and options alone.
#pragma once
#include <algorithm>
#include <initializer_list>

#include "traincore/core/arena.h"
#include "traincore/core/fail.h"
#include "traincore/core/view.h"
#include "traincore/ops/attention/attention.h"

namespace tc::ops::attention {

// Queries and keys are taken kTile at a time: whole vectors and whole groups of rows of the products in tile-inl.h.
inline constexpr int64_t kTile = 48;
// How many tiles of queries share one copy of the keys and values.
inline constexpr int64_t kForwardUnits = 4, kBackwardUnits = 2;

constexpr int64_t tiles(int64_t n) { return (n + kTile - 1) / kTile; }

// Length of a row of f32 scratch for `width` values: whole vectors, and an odd number of cache lines, so that the rows
// of a tile do not share cache sets.
constexpr int64_t padded(int64_t width) { return ((width + 15) / 16 | 1) * 16; }

// The extents of a call. `sequences` is the batch, or the number of packed sequences.
struct Extents {
  int64_t batch, heads, kv_heads, group, seq_q, seq_k, head_dim, value_dim, sequences;
};

template <class A>
Extents extents_of(const A& a) {
  Extents e{a.q.shape[0], a.q.shape[1], a.k.shape[1], 0, a.q.shape[2], a.k.shape[2], a.q.shape[3], a.v.shape[3], 0};
  e.group = e.kv_heads ? e.heads / e.kv_heads : 0;
  e.sequences = given(a.cu_seqlens_q) ? a.cu_seqlens_q.shape[0] - 1 : e.batch;
  return e;
}

// The queries and keys that belong together.
struct Sequence {
  int64_t batch, first_query, queries, first_key, keys;
};

template <class A>
Sequence sequence_of(const A& a, const Extents& e, int64_t index) {
  if (!given(a.cu_seqlens_q)) return {index, 0, e.seq_q, 0, e.seq_k};
  const Rows<const int32_t> q = values_of<const int32_t>(a.cu_seqlens_q), k = values_of<const int32_t>(a.cu_seqlens_k);
  return {0, *q[index], *q[index + 1] - *q[index], *k[index], *k[index + 1] - *k[index]};
}

// The most queries or keys that a sequence has.
template <class A>
int64_t longest(const A& a, const Extents& e, int64_t Sequence::*count) {
  int64_t most = 0;
  const int64_t n = given(a.cu_seqlens_q) ? e.sequences : std::min<int64_t>(e.sequences, 1);
  for (int64_t i = 0; i < n; ++i) most = std::max(most, sequence_of(a, e, i).*count);
  return most;
}

// Which keys each query of a sequence sees, as far as causality and the window say: [begin(i), end(i)), and neither
// ever falls from one query to the next.
struct Window {
  int64_t offset, left, right, keys;
  int64_t begin(int64_t query) const { return std::clamp<int64_t>(query + offset - left, 0, keys); }
  int64_t end(int64_t query) const { return std::clamp<int64_t>(query + offset + right + 1, 0, keys); }
};

template <class A>
Window window_of(const A& a, const Sequence& s) {
  constexpr int64_t kFarOffset = int64_t{1} << 60, kUnlimited = int64_t{1} << 61;  // sums of them stay in 64 bits
  const auto limit = [&](int64_t keys) { return keys < 0 ? kUnlimited : std::min(keys, kUnlimited); };
  const bool corner = a.causal_offset == INT64_MIN;
  return {corner ? s.keys - s.queries : std::clamp(a.causal_offset, -kFarOffset, kFarOffset), limit(a.window_left),
          a.causal ? 0 : limit(a.window_right), s.keys};
}

// Sum of clamp(i + first, 0, most) over i = 0 .. count - 1.
inline double sum_of_clamped(int64_t first, int64_t count, int64_t most) {
  const int64_t rising = std::clamp<int64_t>(-first, 0, count),
                whole = std::clamp<int64_t>(most - first, rising, count);
  const auto at = [&](int64_t i) { return static_cast<double>(i + first); };
  const double ramp = whole > rising ? (at(rising) + at(whole - 1)) / 2 * static_cast<double>(whole - rising) : 0;
  return ramp + static_cast<double>(count - whole) * static_cast<double>(most);
}

// (query, key) pairs of one head that the window lets through, over all sequences; packed ones count as equally long,
// so that no tensor is read.
template <class A>
double visible_pairs(const A& a) {
  const Extents e = extents_of(a);
  const int64_t shared = given(a.cu_seqlens_q) ? std::max<int64_t>(e.sequences, 1) : 1;
  const Sequence s{0, 0, e.seq_q / shared, 0, e.seq_k / shared};
  const Window w = window_of(a, s);
  return static_cast<double>(e.sequences) * (sum_of_clamped(w.offset + w.right + 1, s.queries, s.keys) -
                                             sum_of_clamped(w.offset - w.left, s.queries, s.keys));
}

// A unit is one tile of queries of one head: the head within its group, the queries within their sequence.
struct Unit {
  int64_t head, first, count;
};

// A unit against a tile of keys: where they are in the tensors, and where in their sequence.
struct Tile {
  int64_t batch, head;
  int64_t query, queries, key, keys;
  int64_t local_query, local_key;
};

// One key head of one sequence, and the queries that read it. Units are numbered head fastest, so that neighbours see
// nearly the same keys.
struct KeyHead {
  Extents e;
  Sequence sequence;
  Window window;
  int64_t index;

  int64_t units() const { return tiles(sequence.queries) * e.group; }
  Unit unit(int64_t i) const {
    const int64_t first = i / e.group * kTile;
    return {i % e.group, first, std::min(kTile, sequence.queries - first)};
  }
  int64_t head_of(const Unit& u) const { return index * e.group + u.head; }
  int64_t query_of(const Unit& u) const { return sequence.first_query + u.first; }
  Tile tile(const Unit& u, int64_t key, int64_t keys) const {
    return {sequence.batch, head_of(u), query_of(u), u.count, sequence.first_key + key, keys, u.first, key};
  }
  bool sees(const Unit& u, int64_t key, int64_t keys) const {
    return window.begin(u.first) < key + keys && window.end(u.first + u.count - 1) > key;
  }
};
template <class A>
KeyHead key_head_of(const A& a, const Extents& e, int64_t sequence, int64_t index) {
  const Sequence s = sequence_of(a, e, sequence);
  return {e, s, window_of(a, s), index};
}

// What of packed sequences only their values say. Nothing has been written yet.
template <class A>
void check_sequences(const char* pass, const A& a) {
  if (!given(a.cu_seqlens_q)) return;
  const Extents e = extents_of(a);
  const auto check = [&](const char* name, const tc_tensor& t, int64_t total) {
    const Rows<const int32_t> starts = values_of<const int32_t>(t);
    require(*starts[0] == 0, "{}: {}[0] is {}, but must be 0", pass, name, *starts[0]);
    for (int64_t i = 0; i < e.sequences; ++i)
      require(*starts[i] <= *starts[i + 1], "{}: {}[{}] is {}, but must not be less than {}[{}], which is {}", pass,
              name, i + 1, *starts[i + 1], name, i, *starts[i]);
    require(*starts[e.sequences] == total, "{}: {}[{}], the end of the last sequence, is {}, but must be {}", pass,
            name, e.sequences, *starts[e.sequences], total);
  };
  check("cu_seqlens_q", a.cu_seqlens_q, e.seq_q);
  check("cu_seqlens_k", a.cu_seqlens_k, e.seq_k);
}

// ---------------------------------------------------------------- backward: dk and dv as sums over queries

// dk and dv of a key head are summed in `slabs` runs of units (unit u in run u % slabs), so that few heads still make
// work for many threads; then the runs are added in order.
template <class A>
int64_t slabs_of(const A& a) {
  constexpr int64_t kEnough = 16, kUnitsPerSlab = 4;
  const Extents e = extents_of(a);
  const int64_t heads = std::max<int64_t>(e.sequences * e.kv_heads, 1);
  const int64_t units = tiles(e.seq_q) * e.group / (given(a.cu_seqlens_q) ? std::max<int64_t>(e.sequences, 1) : 1);
  return std::max<int64_t>(std::min(kEnough / heads, units / kUnitsPerSlab), 1);
}

// The rows of a slab for one key head, and where those of a sequence begin: each sequence is followed by room for the
// padding of its last tile.
template <class A>
int64_t slab_row(const A& a, const Extents& e, int64_t sequence) {
  if (!given(a.cu_seqlens_q)) return sequence * tiles(e.seq_k) * kTile;
  return sequence * kTile + (sequence < e.sequences ? sequence_of(a, e, sequence).first_key : e.seq_k);
}
template <class A>
int64_t slab_rows(const A& a) {
  const Extents e = extents_of(a);
  return slab_row(a, e, e.sequences);
}

struct BackwardScratch {
  float *dk, *dv;   // [slabs, kv_heads, slab_rows, padded(head_dim or value_dim)]
  double* dslopes;  // [slabs, sequences, heads]
  float* slopes;    // [heads]
};
inline BackwardScratch carve_backward(const tcx_attention_backward_args& a, Arena& arena) {
  const Extents e = extents_of(a);
  const auto product = [](std::initializer_list<int64_t> extents) {
    int64_t p = 1;
    for (const int64_t n : extents)
      if (__builtin_mul_overflow(p, n, &p)) return INT64_MAX;  // refused by the arena
    return p;
  };
  const bool sums = given(a.dk) || given(a.dv);
  const int64_t rows = sums ? product({slabs_of(a), e.kv_heads, slab_rows(a)}) : 0;
  const bool slopes = given(a.dalibi_slopes);
  return {arena.take<float>(given(a.dk) ? product({rows, padded(e.head_dim)}) : 0),
          arena.take<float>(given(a.dv) ? product({rows, padded(e.value_dim)}) : 0),
          arena.take<double>(slopes ? product({slabs_of(a), e.sequences, e.heads}) : 0),
          arena.take<float>(slopes ? e.heads : 0)};
}

}  // namespace tc::ops::attention
