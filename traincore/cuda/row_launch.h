// From a RowPlan to a grid and to the kernel template that serves it.
#pragma once
#include <type_traits>

#include "traincore/cuda/launch.h"
#include "traincore/cuda/row_shape.h"

namespace tc::cuda {

template <int kLanes>
class Lanes;
class Block;

// A row kernel's compile-time shape: who shares a row, 16-byte accesses or single elements, and how many of them a
// thread keeps. 0: none, the row is read again for every pass over it.
template <class G, bool kIsWide, int kVectorCount>
struct RowTile {
  using Group = G;
  static constexpr int kVectors = kVectorCount;
  static constexpr int kMostThreads = std::is_same_v<G, Block> ? 512 : 128;  // as plan_rows() has it
  template <class T>
  static constexpr int kVec = kIsWide ? 16 / int(sizeof(T)) : 1;
};

inline Grid grid_of(const RowPlan& plan) { return {plan.blocks, plan.threads, plan.cluster, 0}; }
inline Grid grid_of(const ColumnPlan& plan) { return {plan.tiles * plan.slabs, kColumnThreads}; }
inline Grid grid_of(const RowPlan& plan, const AheadPlan& ahead) {
  return {plan.blocks, plan.threads, plan.cluster, static_cast<size_t>(ahead.shared)};
}
// A group of blocks per slab, with shared memory for the rows ahead and for adding up what a block's rows came to.
inline Grid grid_of(const RowPlan& plan, const SlabPlan& slabs) {
  return {slabs.slabs * plan.cluster, plan.threads, plan.cluster, static_cast<size_t>(slabs.shared)};
}

using WideTile = RowTile<Block, true, 8>;
inline Grid wide_grid(const RowPlan& plan, int64_t rows) {
  return {wide_groups(plan, rows) * plan.cluster, kWideThreads, plan.cluster,
          size_t{kWideStages} * WideTile::kVectors * 16 * kWideThreads};
}

// Calls body.operator()<Tile>() for the plan's tile.
template <class F>
void with_row_tile(const RowPlan& plan, F&& body) {
  switch (plan.variant) {
    case RowVariant::lanes8_x2:
      return body.template operator()<RowTile<Lanes<8>, true, 2>>();
    case RowVariant::lanes16_x4:
      return body.template operator()<RowTile<Lanes<16>, true, 4>>();
    case RowVariant::warp_x4:
      return body.template operator()<RowTile<Lanes<32>, true, 4>>();
    case RowVariant::block_x4:
      return body.template operator()<RowTile<Block, true, 4>>();
    case RowVariant::block_loop:
      return body.template operator()<RowTile<Block, true, 0>>();
    case RowVariant::warp_scalar:
      return body.template operator()<RowTile<Lanes<32>, false, 0>>();
    case RowVariant::block_scalar:
      return body.template operator()<RowTile<Block, false, 0>>();
  }
}

}  // namespace tc::cuda
