// A norm's backward pass: which kernel makes dx and the sums over rows that the parameter gradients are. Pure.
#pragma once
#include <iterator>
#include <utility>

#include "traincore/cuda/row_plan.h"

namespace tc::cuda {

// A kernel whose blocks take rows in turn, the next ones on their way into shared memory, and keep their part of the sums
// in registers, or one gradient's in shared memory.
struct SlabKernel {
  int32_t sums;            // that it makes; 0: one or two
  int32_t tensors;         // that it reads at most; fewer than four have no residual among them
  int32_t lanes;           // of a warp that share a row; 0: a block does, or a cluster of blocks
  int32_t vectors;         // of 16 bytes that a thread has of a row
  int32_t stages;          // rows in shared memory at once
  int32_t threads_per_sm;  // for as many there are registers
  int32_t most_threads;    // of a block
  int32_t most_cluster;
  bool shares_sums;                        // it has those of the bias gradient in shared memory
  int32_t sends_from = 0, stays_from = 0;  // as AheadShape has them
  bool operator==(const SlabKernel&) const = default;
};

// The first that takes a row serves it. Measured on an H200: two rows ahead are faster than one for what has few threads.
inline constexpr SlabKernel kSlabKernels[] = {
    {1, 3, 8, 2, 3, 768, 256, 1, false},          // parts of a warp, and a warp
    {0, 4, 8, 2, 3, 512, 256, 1, false},          //
    {1, 2, 16, 4, 2, 512, 256, 1, false},         //
    {1, 2, 32, 4, 2, 512, 256, 1, false},         //
    {0, 4, 16, 2, 3, 512, 256, 1, false},         //
    {0, 4, 32, 2, 3, 512, 256, 1, false},         //
    {1, 2, 0, 4, 2, 512, 512, 2, false},          // blocks, and clusters
    {1, 2, 0, 4, 3, 512, 512, 16, false, 0, 16},  //
    {0, 4, 0, 2, 3, 512, 512, 1, false},          //
    {2, 2, 0, 4, 2, 512, 512, 16, true, 4},       //
    {0, 4, 0, 2, 3, 512, 512, 16, false},         //
};

struct SlabPlan {
  SlabKernel kernel;
  int32_t threads, cluster;
  int64_t groups;  // of blocks: they take all rows in turn
  int32_t shared;  // bytes a block
  bool sends;      // for rows before it loads them
  bool stays;      // what it writes, in the caches
};

struct SlabPass {
  bool has_residual, has_more;  // beside dy and x
  int sums;
};

// Rows and sums in one kernel where the device can take rows of that shape in turn; else in two. How many partial sums
// there are depends on which of the two it is, and on the shape, but on nothing else of the device.
struct SlabbedPlan {
  std::optional<SlabPlan> slabs;
  RowPlan rows;
  ColumnPlan columns;
  int64_t count() const { return slabs ? slabs->groups : columns.slabs; }  // of partial sums
};
// The rows, where no sums are wanted: one pass or, where they are kept nowhere, two.
inline bool takes_slabs(const SlabbedPlan& p, bool has_sums) {
  return p.slabs && (has_sums || p.rows.variant == RowVariant::block_loop);
}
SlabbedPlan plan_slabbed(const RowShape& shape, const SlabPass& pass, const DeviceInfo& device);

std::string describe(const SlabbedPlan& plan, bool has_sums, bool has_rows);

}  // namespace tc::cuda
