#include "traincore/cuda/slab_plan.h"

#include <fmt/format.h>

#include <algorithm>

namespace tc::cuda {
namespace {

constexpr int32_t kVectorBytes = 16, kWarp = 32, kFewestThreads = 64;
// From so many turns on, groups are as few as need no more of them, so that few are left over in the last one. With fewer
// turns a slot that stays empty costs more than that saves (measured).
constexpr int64_t kManyTurns = 16;

int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// Kernels that may read one more have room for it, whether or not it is there.
int32_t tensors_in_shared(const SlabKernel& k, const SlabPass& pass) {
  const int32_t tensors = 2 + pass.has_residual;
  return tensors + (k.tensors > tensors);
}

std::optional<SlabPlan> plan_slabs(const RowShape& s, const SlabKernel& k, const SlabPass& pass,
                                   const DeviceInfo& device) {
  const int32_t tensors = pass.has_residual ? 4 : 2 + pass.has_more;
  if ((k.sums && k.sums != pass.sums) || tensors > k.tensors) return {};
  const int64_t vectors = s.cols * s.element_bytes / kVectorBytes;
  SlabPlan p{k, k.most_threads, 1, 0, 0, false, false};
  if (k.lanes) {
    if (vectors > int64_t{k.lanes} * k.vectors) return {};
  } else {
    const int64_t threads = round_up((vectors + k.vectors - 1) / k.vectors, kWarp);
    p.threads = static_cast<int32_t>(std::clamp<int64_t>(threads, kFewestThreads, k.most_threads));
    while (int64_t{p.cluster} * p.threads * k.vectors < vectors && p.cluster <= k.most_cluster) p.cluster *= 2;
    if (p.cluster > (device.code >= 90 ? k.most_cluster : 1)) return {};
  }
  p.sends = reaches(p.cluster, k.sends_from);
  p.stays = reaches(p.cluster, k.stays_from);
  const int64_t rows_per_block = k.lanes ? p.threads / k.lanes : 1;
  const int64_t at_once = clusters_at_once(p.cluster, k.threads_per_sm / p.threads);
  const int64_t blocks = std::max<int64_t>((s.rows + rows_per_block - 1) / rows_per_block, 1);
  const int64_t turns = (blocks + at_once - 1) / at_once;
  p.groups = turns < kManyTurns ? std::min(blocks, at_once) : (blocks + turns - 1) / turns;
  const int64_t of_row = int64_t{k.vectors} * kVectorBytes * p.threads;
  const int64_t rows = of_row * k.stages * tensors_in_shared(k, pass);
  const int64_t kept = k.shares_sums ? of_row / s.element_bytes * int64_t{sizeof(float)} : 0;
  const int64_t sums = rows_per_block > 1 ? rows_per_block * s.cols * 4 : 0;
  p.shared =
      static_cast<int32_t>(std::max(rows + kept + (k.lanes ? 0 : told_bytes(pass.sums, p.threads, p.cluster)), sums));
  if (p.shared > device.shared_per_block) return {};
  return p;
}

}  // namespace

SlabbedPlan plan_slabbed(const RowShape& shape, const SlabPass& pass, const DeviceInfo& device) {
  SlabbedPlan plan{{}, plan_rows(shape), plan_columns(shape)};
  if (!shape.aligned || shape.mixed) return plan;
  for (const SlabKernel& kernel : kSlabKernels)
    if (!plan.slabs) plan.slabs = plan_slabs(shape, kernel, pass, device);
  return plan;
}

std::string describe(const SlabbedPlan& p, bool has_sums, bool has_rows) {
  if (takes_slabs(p, has_sums))
    return fmt::format("{}, {} rows in shared memory at once",
                       who_shares_a_row(p.slabs->kernel.lanes, p.slabs->threads, p.slabs->cluster),
                       p.slabs->kernel.stages) +
           (has_sums ? fmt::format("; {} slabs of rows, whose sums are then added in order", p.slabs->groups) : "");
  if (!has_sums) return describe(p.rows);
  const std::string sums = fmt::format("sums of columns over {} slabs of rows, then added in order", p.columns.slabs);
  return has_rows ? fmt::format("{}; {}", sums, describe(p.rows)) : sums;
}

}  // namespace tc::cuda
