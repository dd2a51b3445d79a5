// Which threads share a row of a [rows, cols] tensor, and what they keep of it: pure, so that it is tested without a GPU.
#pragma once
#include <optional>
#include <string>

#include "traincore/cuda/device.h"

namespace tc::cuda {

// The kernels that every row op has. "x4": a thread keeps up to four 16-byte vectors of each tensor in registers.
enum class RowVariant : int32_t {
  lanes8_x2,    // 8 threads a row
  lanes16_x4,   // 16 threads a row
  warp_x4,      // a warp a row
  block_x4,     // a block a row
  block_x8,     // the same with up to eight, where a row op has room for them
  block_loop,   // any width: the row is read again for every pass over it
  warp_scalar,  // rows that no 16-byte access fits (odd width, stride or address), element by element
  block_scalar,
  mixed,         // full-size tensors of several dtypes: a block a row, read again for every pass over it
  mixed_scalar,  // the same, element by element
};

struct RowShape {
  int64_t rows = 0, cols = 0;
  int32_t element_bytes = 4;  // of the full-size tensors
  bool aligned = true;        // every row of every tensor starts at a multiple of 16 bytes, and cols fills vectors
  bool mixed = false;         // they differ in dtype: columns are counted as f32
};

struct RowPlan {
  RowVariant variant;
  int32_t threads;
  int64_t rows_per_block;
  int64_t blocks;  // of a full grid, one row (or set of rows) a block
};
// most_vectors: 4 or 8, that a thread may keep of a row.
RowPlan plan_rows(const RowShape& shape, int32_t most_vectors = 4);
bool is_mixed(RowVariant variant);

// Kernels that take rows in turn, the next ones on their way into shared memory.
struct AheadShape {
  int32_t threads, blocks;  // of a block at most; of such blocks on an SM
  int32_t vectors;          // that a thread has of a row
  int32_t stages;           // rows in shared memory at once
};
// Norms: as many vectors as leave room for the gain, and the bias, in registers. Softmax and losses are bound by what they
// compute, and want threads.
inline constexpr int32_t kNormStages = 3;
inline constexpr AheadShape kNormAhead{512, 1, 8, kNormStages}, kFullNormAhead{512, 1, 4, kNormStages};
inline constexpr AheadShape kSoftmaxAhead{256, 3, 8, 2}, kSoftmaxBackwardAhead{512, 1, 4, 3};

// Forward rows in registers, of which two tensors leave room for half as many vectors.
inline int32_t most_vectors_forward(bool has_residual) { return has_residual ? 4 : 8; }

struct AheadPlan {
  int32_t lanes;  // of a warp that share a row; 0: a block does, or a cluster of blocks
  int32_t vectors, stages;
  int32_t threads, cluster;
  int64_t groups;    // of blocks: they take all rows in turn
  int32_t shared;    // bytes a block
  bool shares_gain;  // the gain is in shared memory too
};
// None where no 16-byte access fits, dtypes differ, a row takes more blocks than a cluster has, or the device has too
// little shared memory. `values`: that the warps of a row tell each other.
std::optional<AheadPlan> plan_ahead(const RowShape& shape, const AheadShape& kernel, int tensors, int values,
                                    const DeviceInfo& device);

// Rows that no block keeps are taken ahead where that can be.
struct RowsPlan {
  RowPlan rows;
  std::optional<AheadPlan> ahead;
};
RowsPlan plan_rows(const RowShape& shape, const AheadShape& kernel, int tensors, int values, const DeviceInfo& device,
                   int32_t most_vectors = 4);

// Sums over rows in a pass of their own: blocks of kColumnThreads threads, one or one vector of columns each.
inline constexpr int kColumnThreads = 256;
struct ColumnPlan {
  bool is_wide;  // 16-byte accesses
  int64_t tiles, slabs;
};
ColumnPlan plan_columns(const RowShape& shape);

// KERNEL_NOT_FOUND for wider rows than a kernel serves: inside a row offsets have 32 bits.
void require_cols(const char* op, const char* argument, int64_t cols, int64_t most = INT32_MAX);
// KERNEL_NOT_FOUND where TC_STRICT is asked of a kernel whose exponentials of 16-bit storage are ex2.approx.
void require_exact_exponentials(const char* pass, int32_t dtype, const tc_exec& exec);
// A backward pass over dy, x and maybe a residual and more, with `sums` sums over rows: rows and sums in one kernel, which
// keeps its part of the sums in registers, where the device can take rows of that shape ahead; else in two. How many parts
// there are depends on which of the two it is, and on the shape, but on nothing else of the device.
struct SlabbedPlan {
  std::optional<AheadPlan> ahead;
  RowPlan rows;
  ColumnPlan columns;
  int64_t count() const { return ahead ? ahead->groups : columns.slabs; }  // of partial sums
};
// The rows, where no sums are wanted: one pass or, where they are kept nowhere, two.
inline bool takes_rows_ahead(const SlabbedPlan& p, bool has_sums) {
  return p.ahead && (has_sums || p.rows.variant == RowVariant::block_loop);
}
struct Slabbed {
  bool has_residual, has_more;
  int sums;
  bool gain_is_exact;  // in the rows' dtype
};
SlabbedPlan plan_slabbed(const RowShape& shape, const Slabbed& pass, const DeviceInfo& device);

std::string describe(const RowPlan& plan);
std::string describe(const RowsPlan& plan);
std::string describe(const SlabbedPlan& plan, bool has_sums, bool has_rows);

}  // namespace tc::cuda
