// How a GPU divides the products of norm_gemv: every multiprocessor has one block, and as much to read as any other.
#include "traincore/ops/norm_gemv/plan.h"

#include <numeric>

#include "traincore/cuda/row_shape.h"

namespace tc::ops::norm_gemv {
namespace {

// Bytes of shared memory that v may take: the rest is the first-level cache's, through which all of W goes.
constexpr int64_t kMostShared = 128 << 10;
constexpr int64_t kFixedShared = 2 << 10;  // what the kernels have beside it

// Has clusters of blocks, and kernels that overlap; it alone has boxes, whose code every build has.
constexpr int32_t kHopper = 90;

int64_t cut(int64_t total, int64_t piece) { return (total + piece - 1) / piece; }
int64_t round_up(int64_t n, int64_t multiple) { return cut(n, multiple) * multiple; }

// The longest part of `total`, a multiple of `step`, whose v fits into `bytes`; all parts are about as long.
int64_t part_of(int64_t total, int64_t step, int rows, int64_t bytes) {
  const int64_t most = bytes / (rows * static_cast<int64_t>(sizeof(float))) / step * step;
  return round_up(cut(total, cut(round_up(total, step), most)), step);
}

int64_t shared_for_v(const cuda::DeviceInfo& device) {
  return std::min<int64_t>(kMostShared, device.shared_per_block - kFixedShared);
}

int64_t strips_in(const GpuProduct& p, int32_t lanes) {
  int64_t strips = 0;
  for (const int64_t n : p.outputs) strips += strips_of(n, p.width, lanes);
  return strips;
}

// The narrowest strips that are not more than `most`. Four lanes at a time: whole memory accesses of 64 bytes, and what
// stands behind a strip's sums in shared memory is aligned to 16.
int32_t lanes_for(const GpuProduct& p, int64_t most) {
  constexpr int32_t kFewestLanes = 8, kMostLanes = 128, kStep = 4;
  int32_t lanes = kFewestLanes;
  while (lanes < kMostLanes && strips_in(p, lanes) > most) lanes += kStep;
  return lanes;
}

// That an SM has all at once: larger clusters find 16 multiprocessors in each group of 16 or 18.
int64_t clusters_of(int32_t blocks, const cuda::DeviceInfo& device) {
  const int64_t whole = blocks > 2 ? device.multiprocessors / 16 * 16 : device.multiprocessors;
  return std::max<int64_t>(1, whole / blocks);
}

// How k and the outputs are divided where a cluster has so many blocks; no batch where v leaves no room for sums.
TilesPlan tiles_of(const GpuProduct& p, bool transposed, int32_t cluster, const cuda::DeviceInfo& device) {
  constexpr int64_t kManyBoxes = 8;  // of a warp
  constexpr int64_t kApart = 8;      // floats: lanes read pairs of [k, n]'s v, of two rows at once
  const int64_t row_bytes = gpu_rows(p.rows, p.width) * static_cast<int64_t>(sizeof(float));
  const int64_t outputs = gpu_tile_outputs(transposed), places = gpu_tile_places(transposed);
  TilesPlan plan{};
  for (const int64_t n : p.outputs) plan.units += cut(n, outputs);
  const int64_t most_clusters = std::min(clusters_of(cluster, device), plan.units);
  const int64_t units = cut(plan.units, most_clusters);  // of a cluster, at most
  plan.cluster = cluster;
  plan.abreast = static_cast<int32_t>(transposed ? 1 : cut(units, cut(units, kGpuTileWarps)));
  plan.slices = kGpuTileWarps / plan.abreast;
  plan.share = static_cast<int32_t>(round_up(cut(p.k, cluster), places));
  plan.steps = static_cast<int32_t>(cut(plan.share, plan.slices * places));
  plan.stride = static_cast<int32_t>(int64_t{plan.steps} * plan.slices * places + (transposed ? 0 : kApart));
  const int64_t v = plan.stride * row_bytes, unit_bytes = plan.slices * row_bytes * outputs;
  // Where there is much to read: a longer ring, and [n, k] is faster (2 %) in blocks of as much each, if few multiprocessors
  // are idle then.
  const bool is_much = cluster == 1 && cut(units, plan.abreast) * plan.steps >= kManyBoxes;
  const int64_t even = cut(plan.units, units);
  plan.blocks = (transposed && is_much && even * 20 >= most_clusters * 19 ? even : most_clusters) * cluster;
  const int64_t at_once = transposed ? units : plan.abreast;  // units whose sums are kept together, if they fit
  const int64_t room = device.shared_per_block - kFixedShared - v - kGpuTileRing;
  plan.boxes = is_much && room - kGpuTileRing >= at_once * unit_bytes ? 2 : 1;
  if (room < plan.abreast * unit_bytes) return plan;
  const int64_t batch = transposed ? cut(units, cut(units, room / unit_bytes)) : plan.abreast;
  plan.batch = static_cast<int32_t>(batch * outputs);
  plan.shared = static_cast<size_t>(v + plan.boxes * kGpuTileRing + batch * unit_bytes);
  return plan;
}

int32_t width_of(const tc_tensor& w) {
  constexpr int32_t kBytes = 16;
  return cuda::fits_vectors(w) ? kBytes / static_cast<int32_t>(tc_dtype_size(w.dtype)) : 1;
}

// The copy engine takes rows that follow each other, less than a terabyte apart, and numbers them in 32 bits.
bool has_boxes(const tc_tensor& w) {
  constexpr int64_t kFarthest = int64_t{1} << 40;
  return w.stride[0] * tc_dtype_size(w.dtype) >= 16 && w.stride[0] * tc_dtype_size(w.dtype) < kFarthest &&
         w.stride[0] % 8 == 0 && std::max(w.shape[0], w.shape[1]) <= INT32_MAX;
}

}  // namespace

GpuProducts gpu_products(const tcx_norm_gemv_args& a) {
  cuda::require_cols("norm_gemv", "x", AnyRows(a.x).cols(), INT32_MAX / 2);
  GpuProducts products{};
  std::array<int, kMatrices> counts{};
  for (const Matrix& m : matrices(a)) {
    if (outputs_of(m) == 0) continue;
    const int32_t width = width_of(*m.w);
    int i = 0;
    while (i < products.count && (products.list[i].dtype != m.w->dtype || products.list[i].width != width)) ++i;
    GpuProduct& product = products.list[i];
    products.count = std::max(products.count, i + 1);
    product.rows = std::min(rows_in(a.x), kFewRows), product.k = AnyRows(a.x).cols();
    product.width = width, product.dtype = m.w->dtype;
    product.has_boxes &= has_boxes(*m.w);
    product.matrices[counts[i]] = m;
    product.outputs[counts[i]++] = outputs_of(m);
  }
  return products;
}

DotsPlan plan_dots(const GpuProduct& p, const cuda::DeviceInfo& device) {
  const int rows = gpu_rows(p.rows, p.width);
  const int64_t outputs = std::accumulate(p.outputs.begin(), p.outputs.end(), int64_t{0});
  const int64_t step = int64_t{gpu_stages(rows)} * kGpuWarp * p.width;
  DotsPlan plan{};
  plan.overlaps = device.code >= kHopper;
  plan.blocks = std::min<int64_t>(outputs, device.multiprocessors);
  plan.part = part_of(p.k, step, rows, shared_for_v(device));
  plan.parts = cut(p.k, plan.part);
  plan.shared = static_cast<size_t>(plan.part) * rows * sizeof(float);
  return plan;
}

StripsPlan plan_strips(const GpuProduct& p, const cuda::DeviceInfo& device) {
  constexpr int32_t kWideStrip = 32;  // lanes: half a KB or more of a row of W that stands together
  constexpr int64_t kShortestShare = 256;
  const int rows = gpu_rows(p.rows, p.width);
  StripsPlan plan{};
  plan.overlaps = device.code >= kHopper;
  for (int32_t cluster = 1; cluster <= 8; cluster *= 2) {
    if (cluster > 1 && (device.code < kHopper || p.k < cluster * kShortestShare || plan.lanes >= kWideStrip)) break;
    plan.cluster = cluster;
    plan.lanes = lanes_for(p, std::max(1, device.multiprocessors / cluster));
  }
  plan.blocks = strips_in(p, plan.lanes) * plan.cluster;
  plan.share = round_up(cut(p.k, plan.cluster), kGpuNormWide);
  const int64_t step = int64_t{gpu_stages(rows)} * kGpuLoads * plan.slots();
  const int64_t columns = int64_t{plan.lanes} * p.width, at_once = std::min(rows, kGpuRowsAtOnce);
  const int64_t sums = rows * columns * static_cast<int64_t>(sizeof(float));
  plan.part = part_of(plan.share, step, rows, shared_for_v(device) - sums);
  const int64_t v = plan.part * rows, slots = plan.slots() * at_once * columns;
  plan.shared = static_cast<size_t>(std::max(v, slots) * static_cast<int64_t>(sizeof(float)) + sums);
  return plan;
}

TilesPlan plan_tiles(const GpuProduct& p, bool transposed, const cuda::DeviceInfo& device) {
  constexpr int64_t kShortestShare = 256;
  // What clusters of 1, 2, 4 and 8 blocks are worth beside how many multiprocessors they keep busy: those of more than two
  // find room later, and the next kernel's with them. To make much of v is worth less.
  constexpr std::array<double, 4> kWorth = {1, 0.95, 0.7, 0.7};
  constexpr int64_t kMuch = 80 << 10;  // bytes
  const int64_t row_bytes = gpu_rows(p.rows, p.width) * static_cast<int64_t>(sizeof(float));
  TilesPlan best{};
  double best_score = 0;
  if (device.sm != kHopper || p.width * tc_dtype_size(p.dtype) != 16 || tc_dtype_size(p.dtype) != 2) return best;
  if (!p.has_boxes || (transposed && p.k % 64 != 0)) return best;
  for (int32_t i = 0, cluster = 1; cluster <= 8; ++i, cluster *= 2) {
    if (cluster > 1 && p.k < cluster * kShortestShare) break;
    const TilesPlan plan = tiles_of(p, transposed, cluster, device);
    if (plan.batch == 0 || int64_t{plan.share} * (cluster - 1) >= p.k)
      continue;  // no room, or nothing for the last block
    const auto units = static_cast<double>(cut(plan.units, plan.blocks / cluster));
    const double busy = static_cast<double>(plan.units) / units / device.multiprocessors * cluster;
    const double score = busy * kWorth[static_cast<size_t>(i)] * (plan.stride * row_bytes > kMuch ? 0.9 : 1);
    if (score > best_score) best = plan, best_score = score;
  }
  best.serves = best_score > 0;
  return best;
}

}  // namespace tc::ops::norm_gemv
