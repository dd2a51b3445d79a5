// Which threads share a row of a [rows, cols] tensor, and what they keep of it: pure, so that it is tested without a GPU.
#pragma once
#include <string>

#include "traincore/cuda/device.h"

namespace tc::cuda {

// The kernels that every row op has. "x4": a thread keeps up to four 16-byte vectors of each tensor in registers.
enum class RowVariant : int32_t {
  lanes8_x2,    // 8 threads a row
  lanes16_x4,   // 16 threads a row
  warp_x4,      // a warp a row
  block_x4,     // a block a row, or a cluster of blocks
  block_loop,   // any width: the row is read again for every pass over it
  warp_scalar,  // rows that no 16-byte access fits (odd width, stride or address), element by element
  block_scalar,
};

struct RowShape {
  int64_t rows = 0, cols = 0;
  int32_t element_bytes = 4;  // of the full-size tensors
  bool aligned = true;        // every row of every tensor starts at a multiple of 16 bytes, and cols fills vectors
};

struct RowPlan {
  RowVariant variant;
  int32_t threads, cluster;
  int64_t rows_per_block;
  int64_t blocks;  // of a full grid, one row (or set of rows) a block
};

RowPlan plan_rows(const RowShape& shape, const DeviceInfo& device);
// The kernel keeps rows in registers, and with them can keep sums of columns.
bool keeps(RowVariant variant);
// A kernel that keeps sums of columns: how many slabs of rows it makes, fixed by the shape and the variant alone; how many
// rows stand in shared memory at once (all but one on their way while that is worked on); room for the gain beside them.
struct SlabPlan {
  int64_t slabs;
  int32_t stages;
  int32_t shared;  // bytes a block
};
SlabPlan plan_slabs(const RowShape& shape, const RowPlan& plan, int tensors);
// A kernel for clusters that loads rows ahead of their turn, and keeps no sums.
struct AheadPlan {
  int32_t stages, shared;
};
AheadPlan plan_ahead(const RowPlan& plan, int tensors);

// Rows that take a cluster, in softmax and cross entropy: half the threads a block with twice the vectors, so that what is
// done once a row costs half and a thread has registers to work on several elements at once; the next row is on its way
// meanwhile.
inline constexpr int kWideThreads = 256, kWideBlocks = 3, kWideStages = 1;  // blocks: on an SM at once
// Groups of blocks: each takes so many rows that starting it costs little, and so few that all end together.
int64_t wide_groups(const RowPlan& plan, int64_t rows);

// Sums over rows in a pass of their own: blocks of kColumnThreads threads, one or one vector of columns each.
inline constexpr int kColumnThreads = 256;
struct ColumnPlan {
  bool is_wide;  // 16-byte accesses
  int64_t tiles, slabs;
};
ColumnPlan plan_columns(const RowShape& shape);

[[noreturn]] void too_wide(int64_t cols);  // KERNEL_NOT_FOUND: inside a row offsets have 32 bits
// KERNEL_NOT_FOUND where TC_STRICT is asked of a kernel whose exponentials of 16-bit storage are ex2.approx.
void require_exact_exponentials(const char* pass, int32_t dtype, const tc_exec& exec);
// A backward pass with sums over rows: rows and sums in one kernel where the rows are kept, in two where they are not.
struct SlabbedPlan {
  RowPlan rows;
  SlabPlan slabs;
  ColumnPlan columns;
  bool keeps_rows;
  int64_t count() const { return keeps_rows ? slabs.slabs : columns.slabs; }  // of partial sums
};
SlabbedPlan plan_slabbed(const RowShape& shape, int tensors, const DeviceInfo& device);

std::string describe(const RowPlan& plan);
std::string describe(const RowPlan& plan, const AheadPlan& ahead);  // of a cluster
std::string describe_wide(const RowPlan& plan);                     // of a cluster, in softmax and cross entropy
std::string describe(const SlabbedPlan& plan, bool has_sums, bool has_rows);

}  // namespace tc::cuda
