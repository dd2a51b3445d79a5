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
constexpr int64_t kFewestBytes = 512;      // of a row of any address that goes through shared memory
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
  return {variant, kLaneThreads, per_block, std::min((rows + per_block - 1) / per_block, kMostBlocks)};
}

RowPlan one_row_a_block(RowVariant variant, int64_t threads, int64_t rows) {
  return {variant, static_cast<int32_t>(threads), 1, std::min(rows, kMostBlocks)};
}

RowPlan mixed_rows(const RowShape& s) {
  const int64_t loads = s.aligned ? s.cols * s.element_bytes / kVectorBytes : s.cols;
  const int64_t threads = std::clamp<int64_t>(round_up(loads, kWarp), kFewestThreads, kMostThreads);
  return one_row_a_block(s.aligned ? RowVariant::mixed : RowVariant::mixed_scalar, threads, s.rows);
}

}  // namespace

// By the occupancy query: the SMs of a cluster must be neighbours, and some are left over.
int64_t clusters_at_once(int32_t cluster, int64_t blocks) {
  switch (cluster) {
    case 1:
      return 132 * blocks;
    case 2:
      return 66 * blocks;
    case 4:
      return (blocks > 1 ? 31 : 30) * blocks;
    case 8:
      return 15 * blocks;
    default:
      return 7 * blocks;
  }
}

// Two sets of slots: of the block's warps and, in a cluster, of its blocks, which need a barrier too.
int64_t told_bytes(int values, int32_t threads, int32_t cluster) {
  const int64_t blocks = cluster > 1 ? cluster : 0;
  return (int64_t{2} * values * (threads / kWarp + blocks) + (cluster > 1)) * 8;
}

bool is_mixed(RowVariant v) { return v == RowVariant::mixed || v == RowVariant::mixed_scalar; }

void require_cols(const char* op, const char* argument, int64_t cols, int64_t most) {
  constexpr int64_t kMost = INT32_MAX - (1 << 14);  // which the last step of a loop over columns goes past
  most = std::min(most, kMost);
  if (cols > most)
    fail(TC_ERR_KERNEL_NOT_FOUND, "{}: {} has rows of {} elements, but its GPU kernels serve rows of up to {}", op,
         argument, cols, most);
}

void require_exact_exponentials(const char* pass, int32_t dtype, const tc_exec& exec) {
  if (exec.precision == TC_STRICT && dtype != TC_DTYPE_F32)
    fail(TC_ERR_KERNEL_NOT_FOUND,
         "{}: on a GPU no variant for {} offers TC_STRICT; it serves TC_STANDARD, and f32 serves both", pass,
         tc_dtype_name(dtype));
}

RowPlan plan_rows(const RowShape& s, int32_t most_vectors) {
  if (s.mixed) return mixed_rows(s);
  if (!s.aligned)
    return s.cols <= kWarpScalarCols ? several_rows_a_block(RowVariant::warp_scalar, kWarp, s.rows)
                                     : one_row_a_block(RowVariant::block_scalar, kMostThreads, s.rows);
  const int64_t vectors = s.cols * s.element_bytes / kVectorBytes;
  for (const Row& row : kByWarp)
    if (vectors <= int64_t{row.lanes} * row.vectors) return several_rows_a_block(row.variant, row.lanes, s.rows);
  if (vectors > int64_t{most_vectors} * kMostThreads)
    return one_row_a_block(RowVariant::block_loop, kMostThreads, s.rows);
  if (vectors > int64_t{kVectors} * kMostThreads) return one_row_a_block(RowVariant::block_x8, kMostThreads, s.rows);
  const int64_t threads = round_up((vectors + kVectors - 1) / kVectors, kWarp);
  return one_row_a_block(RowVariant::block_x4, std::max<int64_t>(threads, kFewestThreads), s.rows);
}

namespace {

// Of rows that 16-byte accesses fit, or of rows that start at any address and whose warps then take a vector more.
std::optional<AheadPlan> plan_in_turn(const RowShape& s, const AheadShape& kernel, bool anywhere, int tensors,
                                      int values, const DeviceInfo& device) {
  const int64_t vectors = (s.cols * s.element_bytes + kVectorBytes - 1) / kVectorBytes;
  AheadPlan p{0, kernel.vectors, kernel.stages, kLaneThreads, 1, 0, 0, anywhere, false, false};
  if (anywhere && vectors <= int64_t{kWarp} * p.vectors) p.lanes = kWarp;
  if (p.lanes == 0) {
    const int64_t threads = round_up((vectors + p.vectors - 1) / p.vectors, kWarp);
    p.threads = static_cast<int32_t>(std::clamp<int64_t>(threads, kFewestThreads, kernel.threads));
    while (int64_t{p.cluster} * p.threads * p.vectors < vectors && p.cluster <= kMostCluster) p.cluster *= 2;
    if (p.cluster > (device.code >= 90 ? kMostCluster : 1)) return {};
  }
  p.sends = reaches(p.cluster, kernel.sends_from);
  p.stays = reaches(p.cluster, kernel.stays_from);
  const int64_t rows_per_block = p.lanes ? p.threads / p.lanes : 1;
  const int64_t threads_per_sm = int64_t{kernel.threads} * kernel.blocks;
  const int64_t at_once = clusters_at_once(p.cluster, threads_per_sm / p.threads);
  p.groups = std::clamp<int64_t>((s.rows + rows_per_block - 1) / rows_per_block, 1, at_once);
  const int64_t vectors_of_warp = int64_t{p.vectors} * kWarp + anywhere;
  const int64_t rows_bytes =
      (p.stages * tensors * vectors_of_warp + int64_t{kernel.kept} * kWarp) * kVectorBytes * (p.threads / kWarp);
  const int64_t exchanged = p.lanes ? 0 : told_bytes(values, p.threads, p.cluster);
  p.shared = static_cast<int32_t>(rows_bytes + exchanged);
  if (p.shared > device.shared_per_block) return {};
  return p;
}

}  // namespace

std::optional<AheadPlan> plan_ahead(const RowShape& s, const AheadShape& kernel, int tensors, int values,
                                    const DeviceInfo& device) {
  if (!s.aligned || s.mixed) return {};
  return plan_in_turn(s, kernel, false, tensors, values, device);
}

RowsPlan plan_rows(const RowShape& shape, const AheadShape& kernel, int tensors, int values, const DeviceInfo& device,
                   int32_t most_vectors) {
  const RowPlan rows = plan_rows(shape, most_vectors);
  if (rows.variant != RowVariant::block_loop) return {rows, {}};
  return {rows, plan_ahead(shape, kernel, tensors, values, device)};
}

RowsPlan plan_rows_anywhere(const RowShape& shape, const AheadShape& kernel, const AheadShape& anywhere, int tensors,
                            int values, const DeviceInfo& device, int32_t most_vectors) {
  if (shape.aligned || shape.mixed) return plan_rows(shape, kernel, tensors, values, device, most_vectors);
  const RowPlan rows = plan_rows(shape);
  if (shape.cols * shape.element_bytes < kFewestBytes) return {rows, {}};
  return {rows, plan_in_turn(shape, anywhere, true, tensors, values, device)};
}

ColumnPlan plan_columns(const RowShape& s) {
  constexpr int64_t kBlocks = int64_t{132} * 8;
  const int64_t per_tile = int64_t{kColumnThreads} * (s.aligned ? kVectorBytes / s.element_bytes : 1);
  const int64_t tiles = (s.cols + per_tile - 1) / per_tile;
  return {s.aligned, tiles, std::clamp<int64_t>(kBlocks / tiles, 1, std::max<int64_t>(s.rows, 1))};
}

std::string who_shares_a_row(int32_t lanes, int32_t threads, int32_t cluster) {
  if (lanes == kWarp) return "a warp a row";
  if (lanes) return fmt::format("{} threads a row", lanes);
  return cluster > 1 ? fmt::format("a cluster of {} blocks of {} threads a row", cluster, threads)
                     : fmt::format("a block of {} threads a row", threads);
}

namespace {

std::string describe(const AheadPlan& p) {
  return fmt::format("{}, {} rows in shared memory at once{}", who_shares_a_row(p.lanes, p.threads, p.cluster),
                     p.stages, p.anywhere ? ", each as far from a multiple of 16 bytes as in memory" : "");
}

}  // namespace

std::string describe(const RowPlan& p) {
  const bool is_by_block = p.rows_per_block == 1;
  const std::string who =
      who_shares_a_row(is_by_block ? 0 : static_cast<int32_t>(p.threads / p.rows_per_block), p.threads, 1);
  if (p.variant == RowVariant::block_loop)
    return who + ", which is too wide for registers and is read once for every pass over it";
  if (is_mixed(p.variant))
    return fmt::format(
        "{}, which is read {} for every pass over it: dtypes differ, and each is looked at while it runs", who,
        p.variant == RowVariant::mixed ? "4 elements at a time" : "element by element");
  if (p.variant == RowVariant::warp_scalar || p.variant == RowVariant::block_scalar)
    return who + ", element by element: the width, a stride or an address is no multiple of 16 bytes";
  return who + ", the row in registers";
}

std::string describe(const RowsPlan& p) { return p.ahead ? describe(*p.ahead) : describe(p.rows); }

}  // namespace tc::cuda
