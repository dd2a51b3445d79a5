// From a RowPlan to a grid and to the kernel template that serves it.
#pragma once
#include <type_traits>

#include "traincore/cuda/launch.h"
#include "traincore/cuda/row_shape.h"

namespace tc::cuda {

template <int kLanes>
class Lanes;
class Block;
class Cluster;

// A row kernel's compile-time shape: who shares a row, 16-byte accesses or single elements, and how many of them a
// thread keeps. 0: none, the row is read again for every pass over it.
template <class G, bool kIsWide, int kVectorCount>
struct RowTile {
  using Group = G;
  static constexpr int kVectors = kVectorCount;
  static constexpr int kMostThreads =
      std::is_same_v<G, Block> || std::is_same_v<G, Cluster> ? 512 : 128;  // as plan_rows() has it
  template <class T>
  static constexpr int kVec = kIsWide ? 16 / int(sizeof(T)) : 1;
};

inline Grid grid_of(const RowPlan& plan) { return {plan.blocks, plan.threads}; }
inline Grid grid_of(const ColumnPlan& plan) { return {plan.tiles * plan.slabs, kColumnThreads}; }
inline Grid grid_of(const AheadPlan& plan) {
  return {plan.groups * plan.cluster, plan.threads, plan.cluster, static_cast<size_t>(plan.shared)};
}

// For kernels that begin with follow_stream().
inline Grid following(Grid grid) {
  grid.overlaps = true;
  return grid;
}

template <int kVectors>
using AheadTile = RowTile<Cluster, true, kVectors>;

// Calls body.operator()<Tile>() for the plan's tile. kHasEight: the plan may be one of eight vectors.
template <bool kHasEight = false, class F>
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
    case RowVariant::block_x8:
      if constexpr (kHasEight) body.template operator()<RowTile<Block, true, 8>>();
      return;
    case RowVariant::block_loop:
      return body.template operator()<RowTile<Block, true, 0>>();
    case RowVariant::warp_scalar:
      return body.template operator()<RowTile<Lanes<32>, false, 0>>();
    case RowVariant::block_scalar:
      return body.template operator()<RowTile<Block, false, 0>>();
    case RowVariant::mixed:
    case RowVariant::mixed_scalar:
      break;  // kernels of their own serve them
  }
}

// Threads that an SM has of a kernel which holds the rows that it takes in turn: each has 128 registers.
inline constexpr int kHeldThreadsPerSm = 512;
static_assert(kSoftmaxAhead.threads * kSoftmaxAhead.blocks == kHeldThreadsPerSm);
static_assert(kSoftmaxBackwardTwoAhead.threads * kSoftmaxBackwardTwoAhead.blocks == kHeldThreadsPerSm);

// The same for such kernels. A thread has as much of a row that starts at any address as of one that 16-byte accesses fit.
template <class T, int kVectors, class F>
void with_anywhere_tile(const AheadPlan& plan, F&& body) {
  constexpr int kElements = kVectors * 16 / int(sizeof(T));
  if (plan.lanes) return body.template operator()<RowTile<Lanes<32>, false, kElements>>();
  body.template operator()<RowTile<Cluster, false, kElements>>();
}
template <class T, int kVectors, class F>
void with_held_tile(const AheadPlan& plan, F&& body) {
  if (plan.anywhere) return with_anywhere_tile<T, kVectors>(plan, body);
  body.template operator()<RowTile<Cluster, true, kVectors>>();
}

}  // namespace tc::cuda
