// Rows sorted by id on the GPU.
#pragma once
#include <algorithm>

#include "traincore/core/arena.h"

namespace tc::ops::embedding {

// A row under its id; one whose id is not in the table is under `vocab`, after all others.
struct Key {
  int64_t id, row;
};

// A stable radix sort, the low digits of the ids first, in two passes at least. Each tile is a block's, the same rows in
// every pass; there is one even of no rows.
struct SortPlan {
  static constexpr int kMostBits = 9, kMostDigits = 1 << kMostBits, kMostTiles = 64, kLeastTileBits = 10;
  int32_t passes, digit_bits, tile_bits;  // a tile has 1 << tile_bits rows
  int64_t rows, tiles;
  SortPlan(int64_t rows_, int64_t vocab) : passes(0), digit_bits(1), tile_bits(kLeastTileBits), rows(rows_) {
    int32_t bits = 1;  // of `vocab`
    while (vocab >> bits) ++bits;
    passes = std::max((bits + kMostBits - 1) / kMostBits, 2);
    digit_bits = (bits + passes - 1) / passes;
    while (int64_t{kMostTiles} << tile_bits < rows) ++tile_bits;
    tiles = std::max<int64_t>((rows + (int64_t{1} << tile_bits) - 1) >> tile_bits, 1);
  }
};

struct SortScratch {
  Key *sorted, *other;  // [rows]
  uint32_t* counts;     // [passes, tiles, kMostDigits]: keys of each digit in each tile
};
inline SortScratch carve_sort(const SortPlan& plan, Arena& arena) {
  return {arena.take<Key>(plan.rows), arena.take<Key>(plan.rows),
          arena.take<uint32_t>(plan.passes * plan.tiles * SortPlan::kMostDigits)};
}

struct Unnamed;  // of cuda_unnamed.cuh

// Fills scratch.sorted, and zeroes what is unnamed. An id outside [0, vocab) sets TC_BAD_ID.
void sort_rows(const tc_tensor& ids, int64_t vocab, const SortPlan& plan, const SortScratch& scratch,
               const Unnamed& unnamed, const tc_exec& exec);

}  // namespace tc::ops::embedding
