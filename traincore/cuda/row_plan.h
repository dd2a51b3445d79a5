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
  int64_t blocks;         // of a full grid, one row (or set of rows) a block
  int64_t in_flight = 0;  // rows that are worked on at once, where a block sends for the row so far ahead of its own
};
// most_vectors: 4 or 8, that a thread may keep of a row.
RowPlan plan_rows(const RowShape& shape, int32_t most_vectors = 4);
bool is_mixed(RowVariant variant);

// Kernels that take rows in turn, the next ones on their way into shared memory.
struct AheadShape {
  int32_t threads, blocks;  // of a block at most; of such blocks on an SM
  int32_t vectors;          // that a thread has of a row
  int32_t stages;           // rows in shared memory at once
  int32_t kept = 0;         // vectors that a thread has there for all rows
  int32_t sends_from = 0;   // blocks a row from which on rows are sent for before they are loaded; 0: never
  int32_t stays_from = 0;   // and from which on what is written leaves the caches in its turn, not first; 0: never
};
// Norms: as many vectors as leave room for the gain in registers, and for the bias there or in shared memory, if 16 bits
// hold what is given in 16. Softmax and losses hold a row's elements in registers, in f32. "Two" blocks of an SM fill each
// other's waits, but leave a row to twice as many of them: which is faster where was measured.
inline constexpr AheadShape kNormAhead{.threads = 512, .blocks = 1, .vectors = 8, .stages = 2, .stays_from = 4},
    kBiasedNormAhead{.threads = 512, .blocks = 1, .vectors = 8, .stages = 2, .kept = 8, .sends_from = 4},
    kFullNormAhead{512, 1, 4, 3};
inline constexpr AheadShape kSoftmaxAhead{512, 1, 8, 3}, kSoftmaxTwoAhead{256, 2, 8, 3},
    kSoftmaxBackwardAhead{512, 1, 4, 3}, kSoftmaxBackwardTwoAhead{256, 2, 4, 3};
// Whether one kernel serves both.
constexpr bool share_kernel(const AheadShape& a, const AheadShape& b) {
  return a.vectors == b.vectors && a.stages == b.stages && a.threads * a.blocks == b.threads * b.blocks;
}
static_assert(share_kernel(kSoftmaxAhead, kSoftmaxTwoAhead));
static_assert(share_kernel(kSoftmaxBackwardAhead, kSoftmaxBackwardTwoAhead));

// Forward rows in registers, of which two tensors leave room for half as many vectors.
inline int32_t most_vectors_forward(bool has_residual) { return has_residual ? 4 : 8; }

struct AheadPlan {
  int32_t lanes;  // 32: a warp has a row; 0: a block does, or a cluster of blocks
  int32_t vectors, stages;
  int32_t threads, cluster;
  int64_t groups;  // of blocks: they take all rows in turn
  int32_t shared;  // bytes a block
  bool anywhere;   // rows start at any address
  bool sends;      // for rows before it loads them
  bool stays;      // what it writes, in the caches
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
// The same for an op with kernels of the shape `anywhere` for rows that no 16-byte access fits: they take all but narrow ones.
RowsPlan plan_rows_anywhere(const RowShape& shape, const AheadShape& kernel, const AheadShape& anywhere, int tensors,
                            int values, const DeviceInfo& device, int32_t most_vectors = 4);

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
// For plans of the same kind elsewhere.
constexpr bool reaches(int32_t cluster, int32_t from) { return from > 0 && cluster >= from; }  // so many blocks a row
int64_t clusters_at_once(int32_t cluster, int64_t blocks);         // on an H200, so many blocks an SM
int64_t told_bytes(int values, int32_t threads, int32_t cluster);  // of AllReduce's slots
std::string who_shares_a_row(int32_t lanes, int32_t threads, int32_t cluster);

std::string describe(const RowPlan& plan);
std::string describe(const RowsPlan& plan);

}  // namespace tc::cuda
