#include "traincore/cuda/row_plan.h"

#include <algorithm>

#include "traincore/core/fail.h"

namespace tc::cuda {
namespace {

constexpr int32_t kVectorBytes = 16;
constexpr int32_t kWarp = 32;
constexpr int32_t kMostThreads = 512;  // of a block
constexpr int32_t kVectors = 4;        // that a thread keeps of a row
constexpr int32_t kFewestThreads = 64;
constexpr int32_t kLaneThreads = 128;  // of a block that serves several rows
constexpr int32_t kMostCluster = 16;
constexpr int64_t kWarpScalarCols = 1024;  // wider rows get a block
constexpr int64_t kMostBlocks = (int64_t{1} << 31) - 1;

struct Row {
  RowVariant variant;
  int32_t lanes, vectors;
};
// The first row that holds a whole row in registers wins; wider ones get a block.
constexpr Row kByWarp[] = {
    {RowVariant::lanes8_x2, 8, 2},
    {RowVariant::lanes16_x4, 16, kVectors},
    {RowVariant::warp_x4, 32, kVectors},
};

int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

RowPlan several_rows_a_block(RowVariant variant, int32_t lanes, int64_t rows) {
  const int64_t per_block = kLaneThreads / lanes;
  return {variant, kLaneThreads, 1, per_block, std::min((rows + per_block - 1) / per_block, kMostBlocks)};
}

// How many clusters of 512-thread blocks run at once on an H200's 132 SMs at one block an SM, by the occupancy query: the
// SMs of a cluster must be neighbours, and some are left over.
int64_t clusters_at_once(int32_t cluster) {
  switch (cluster) {
    case 1:
      return 132;
    case 2:
      return 66;
    case 4:
      return 30;
    case 8:
      return 15;
    default:
      return 7;
  }
}

// Clusters are slow to start, so those that fit at once, two blocks an SM, take all rows.
RowPlan clusters(int32_t cluster, int64_t rows) {
  return {RowVariant::block_x4, kMostThreads, cluster, 1, std::min(rows, 2 * clusters_at_once(cluster)) * cluster};
}

RowPlan one_row_a_block(RowVariant variant, int64_t threads, int32_t cluster, int64_t rows) {
  return {variant, static_cast<int32_t>(threads), cluster, 1, std::min(rows, kMostBlocks / cluster) * cluster};
}

}  // namespace

void too_wide(int64_t cols) {
  fail(TC_ERR_KERNEL_NOT_FOUND, "a row has {} elements, but GPU kernels serve rows of up to 2147483647", cols);
}

void require_exact_exponentials(const char* pass, int32_t dtype, const tc_exec& exec) {
  if (exec.precision == TC_STRICT && dtype != TC_DTYPE_F32)
    fail(TC_ERR_KERNEL_NOT_FOUND,
         "{}: on a GPU no variant for {} offers TC_STRICT; it serves TC_STANDARD, and f32 serves both", pass,
         tc_dtype_name(dtype));
}

RowPlan plan_rows(const RowShape& s, const DeviceInfo& device) {
  if (!s.aligned)
    return s.cols <= kWarpScalarCols ? several_rows_a_block(RowVariant::warp_scalar, kWarp, s.rows)
                                     : one_row_a_block(RowVariant::block_scalar, kMostThreads, 1, s.rows);
  const int64_t vectors = s.cols * s.element_bytes / kVectorBytes;
  for (const Row& row : kByWarp)
    if (vectors <= int64_t{row.lanes} * row.vectors) return several_rows_a_block(row.variant, row.lanes, s.rows);
  const int64_t per_block = int64_t{kVectors} * kMostThreads;
  if (vectors <= per_block) {
    const int64_t threads = round_up((vectors + kVectors - 1) / kVectors, kWarp);
    return one_row_a_block(RowVariant::block_x4, std::max<int64_t>(threads, kFewestThreads), 1, s.rows);
  }
  int32_t cluster = 2;
  while (cluster * per_block < vectors) cluster *= 2;
  if (device.sm >= 90 && cluster <= kMostCluster) return clusters(cluster, s.rows);
  return one_row_a_block(RowVariant::block_loop, kMostThreads, 1, s.rows);
}

SlabPlan plan_slabs(const RowShape& shape, const RowPlan& plan, int tensors) {
  constexpr int64_t kSharedPerSm = 192 << 10;  // of an H200
  const bool is_narrow = plan.variant == RowVariant::lanes8_x2;
  const int64_t threads_per_sm = is_narrow ? 1024 : 512, shared_per_thread = kSharedPerSm / threads_per_sm;
  const int64_t groups = clusters_at_once(plan.cluster) * threads_per_sm / plan.threads;
  const int32_t vectors = is_narrow ? 2 : kVectors;
  const int32_t a_stage = tensors * vectors * kVectorBytes;
  const int32_t gain = vectors * kVectorBytes * 4 / shape.element_bytes;
  const auto stages = static_cast<int32_t>(std::clamp<int64_t>((shared_per_thread - gain) / a_stage, 1, 4));
  const int64_t sums = plan.rows_per_block > 1 ? plan.rows_per_block * shape.cols * 4 : 0;
  return {std::clamp<int64_t>((shape.rows + plan.rows_per_block - 1) / plan.rows_per_block, 1,
                              std::max<int64_t>(groups, 1)),
          stages, static_cast<int32_t>(std::max<int64_t>(int64_t{stages * a_stage + gain} * plan.threads, sums))};
}

AheadPlan plan_ahead(const RowPlan& plan, int tensors) {
  constexpr int32_t kSharedPerBlock = 112 << 10;  // two blocks an SM
  const int32_t a_stage = plan.threads * kVectors * kVectorBytes * tensors;
  const int32_t stages = std::clamp(kSharedPerBlock / a_stage, 1, 4);
  return {stages, stages * a_stage};
}

bool keeps(RowVariant v) {
  return v != RowVariant::block_loop && v != RowVariant::warp_scalar && v != RowVariant::block_scalar;
}

int64_t wide_groups(const RowPlan& plan, int64_t rows) {
  constexpr int64_t kSms = 132, kRounds = 16, kMostRows = 8;
  const int64_t at_once = kSms * kWideBlocks / plan.cluster;
  const int64_t per_group = std::clamp<int64_t>(rows / (kRounds * at_once), 1, kMostRows);
  return (rows + per_group - 1) / per_group;
}

ColumnPlan plan_columns(const RowShape& s) {
  constexpr int64_t kBlocks = int64_t{132} * 8;
  const int64_t per_tile = int64_t{kColumnThreads} * (s.aligned ? kVectorBytes / s.element_bytes : 1);
  const int64_t tiles = (s.cols + per_tile - 1) / per_tile;
  return {s.aligned, tiles, std::clamp<int64_t>(kBlocks / tiles, 1, std::max<int64_t>(s.rows, 1))};
}

SlabbedPlan plan_slabbed(const RowShape& shape, int tensors, const DeviceInfo& device) {
  const RowPlan rows = plan_rows(shape, device);
  return {rows, plan_slabs(shape, rows, tensors), plan_columns(shape), keeps(rows.variant)};
}

namespace {

std::string who_shares_a_row(const RowPlan& p) {
  switch (p.variant) {
    case RowVariant::lanes8_x2:
      return "8 threads a row";
    case RowVariant::lanes16_x4:
      return "16 threads a row";
    case RowVariant::warp_x4:
    case RowVariant::warp_scalar:
      return "a warp a row";
    case RowVariant::block_x4:
      return p.cluster > 1 ? fmt::format("a cluster of {} blocks of {} threads a row", p.cluster, p.threads)
                           : fmt::format("a block of {} threads a row", p.threads);
    case RowVariant::block_loop:
    case RowVariant::block_scalar:
      return fmt::format("a block of {} threads a row", p.threads);
  }
  return {};
}

}  // namespace

std::string describe(const RowPlan& p) {
  const std::string who = who_shares_a_row(p);
  if (keeps(p.variant)) return who + ", the row in registers";
  if (p.variant == RowVariant::block_loop)
    return who + ", which is too wide for registers and is read once for every pass over it";
  return who + ", element by element: the width, a stride or an address is no multiple of 16 bytes";
}

std::string describe(const RowPlan& plan, const AheadPlan& ahead) {
  return fmt::format("{}, {} rows in shared memory at once", who_shares_a_row(plan), ahead.stages);
}

std::string describe_wide(const RowPlan& plan) {
  return fmt::format("a cluster of {} blocks of {} threads a row, the row in registers and the next on its way",
                     plan.cluster, kWideThreads);
}

std::string describe(const SlabbedPlan& p, bool has_sums, bool has_rows) {
  if (!has_sums) return describe(p.rows);
  if (p.keeps_rows)
    return fmt::format("{}, {} rows in shared memory at once; {} slabs of rows, whose sums are then added in order",
                       who_shares_a_row(p.rows), p.slabs.stages, p.slabs.slabs);
  const std::string sums = fmt::format("sums of columns over {} slabs of rows, then added in order", p.columns.slabs);
  return has_rows ? fmt::format("{}; {}", sums, describe(p.rows)) : sums;
}

}  // namespace tc::cuda
