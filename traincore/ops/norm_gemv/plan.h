// Which way norm_gemv goes, how its products are cut, and its scratch: from the shapes alone.
#pragma once
#include <algorithm>
#include <array>

#include "traincore/core/arena.h"
#include "traincore/core/view.h"
#include "traincore/cuda/device.h"
#include "traincore/ops/norm_gemv/norm_gemv.h"

namespace tc::ops::norm_gemv {

inline constexpr int64_t kFewRows = 8;  // up to here a matrix is read once, by one kernel
inline constexpr int kMatrices = 3;

struct Matrix {
  const tc_tensor* w;
  const tc_tensor* y;
};
// Those that are given come first.
inline std::array<Matrix, kMatrices> matrices(const tcx_norm_gemv_args& a) {
  std::array<Matrix, kMatrices> all = {Matrix{&a.w, &a.y}, Matrix{&a.w2, &a.y2}, Matrix{&a.w3, &a.y3}};
  std::stable_partition(all.begin(), all.end(), [](const Matrix& m) { return given(*m.w); });
  return all;
}

// The tasks of one product v W of few rows. An output is a sum over `parts` runs of k, each in order, the runs in order.
struct GemvPlan {
  int64_t columns, strips;  // of W's n outputs, a task makes at most `columns`
  int64_t part_k, parts;    // of k, a task sums at most part_k
  int64_t tasks() const { return strips * parts; }
};
inline GemvPlan plan_gemv(int64_t rows, int64_t k, int64_t n, bool transposed) {
  const auto cut = [](int64_t total, int64_t piece) { return (total + piece - 1) / piece; };
  // Rows of W are dot products, each by itself: a task is a run of them.
  if (transposed) return {64, cut(n, 64), k, 1};
  // Columns of W: the sums of a strip stay in the first-level cache while k goes by; narrow matrices are also cut in k.
  constexpr int64_t kSums = 4096, kTasks = 16, kShortest = 256;
  const int64_t columns = kSums / std::max<int64_t>(rows, 1), strips = cut(n, columns);
  const int64_t parts = std::clamp<int64_t>(kTasks / std::max<int64_t>(strips, 1), 1, cut(k, kShortest));
  const int64_t part_k = cut(cut(k, parts), 8) * 8;
  return {columns, strips, part_k, cut(k, part_k)};
}

inline int64_t rows_in(const tc_tensor& x) { return AnyRows(x).count(); }
inline int64_t outputs_of(const Matrix& m) { return given(*m.y) ? AnyRows(*m.y).cols() : 0; }

struct MatrixScratch {
  float* sums;  // few rows: [parts, rows, n]; more: [rows, n] where y's rows are not evenly spaced
};
struct Scratches {
  float *gain, *bias;  // [k]: weight_offset + weight, or 1; bias, or 0
  float* normalised;   // [rows, k]: v
  std::array<MatrixScratch, kMatrices> products;
};
inline bool evenly_spaced(const tc_tensor& y) { return rows_of<const std::byte>(y).rank <= 1; }

inline Scratches carve(const tcx_norm_gemv_args& a, Arena& arena) {
  const int64_t rows = rows_in(a.x), k = AnyRows(a.x).cols();
  Scratches s = {arena.take<float>(k), arena.take<float>(k), arena.take<float>(rows * k), {}};
  int i = 0;
  for (const Matrix& m : matrices(a)) {
    const int64_t n = outputs_of(m), whole = given(*m.y) && !evenly_spaced(*m.y) ? 1 : 0;
    const int64_t copies = rows <= kFewRows ? plan_gemv(rows, k, n, a.transpose_w != 0).parts : whole;
    s.products[i++].sums = arena.take<float>(copies * rows * n);
  }
  return s;
}

// ---------------------------------------------------------------- on a GPU

// A kernel serves a group of at most kFewRows rows, and is compiled for 1, 4 and 8 of them; where it reads single
// elements, which is the exception, for 1 and 8.
constexpr int gpu_rows(int64_t rows, int32_t width) { return rows <= 1 ? 1 : rows <= 4 && width > 1 ? 4 : 8; }
inline constexpr int kGpuThreads = 512, kGpuWarp = 32, kGpuWarps = kGpuThreads / kGpuWarp;
// A thread has kGpuStages steps of kGpuLoads loads on their way: that many registers it can spare beside its sums.
inline constexpr int kGpuLoads = 4;
constexpr int gpu_stages(int rows) { return rows == 8 ? 2 : 4; }
inline constexpr int kGpuDotsAhead = 2;   // steps of W that a warp sends for while the kernel ahead still runs
inline constexpr int kGpuRowsAtOnce = 2;  // whose sums the threads of a strip add up together

// Of the kernels for tensor cores: a box of W has 4 KB, rows of 64 elements; outputs and places of k that it has.
inline constexpr int kGpuTileThreads = 512, kGpuTileWarps = kGpuTileThreads / kGpuWarp, kGpuBoxBytes = 4 << 10;
constexpr int gpu_tile_outputs(bool transposed) { return transposed ? 16 : 64; }
constexpr int gpu_tile_places(bool transposed) { return transposed ? 128 : 32; }
// Bytes of shared memory for a box of every warp and what announces it.
inline constexpr int kGpuTileRing = kGpuTileWarps * (kGpuBoxBytes + 8);

inline constexpr int kGpuNormWide = 8;  // columns of x, weight and bias that are read together where all of them fit
// Whether kernels for W of a dtype read x of another so: each such way is some 25 KB of a kernel's code.
constexpr bool reads_x_together(int32_t x, int32_t w) { return x == w || x == TC_DTYPE_F32 || w == TC_DTYPE_F32; }

// What one launch multiplies by: matrices of one dtype, read `width` elements at a time.
struct GpuProduct {
  int64_t rows, k;
  std::array<int64_t, kMatrices> outputs;  // 0: there is no such matrix
  int32_t width, dtype;
  std::array<Matrix, kMatrices> matrices;
  bool has_boxes = true;  // rows of W lie as the copy engine wants them
};
struct GpuProducts {
  std::array<GpuProduct, kMatrices> list;
  int count;
};
// The launches of a call's first group of rows.
GpuProducts gpu_products(const tcx_norm_gemv_args& a);

// W [n, k]: a warp makes dot products of kGpuLoads rows of W at a time, of a run of rows that is as long for every warp.
// v stands in shared memory, `part` of k at a time; sums over several parts are kept in the workspace.
struct DotsPlan {
  int64_t blocks;
  int64_t part, parts;
  size_t shared;  // bytes a block
  bool overlaps;  // with the kernel ahead of it on the stream
};
DotsPlan plan_dots(const GpuProduct& product, const cuda::DeviceInfo& device);

// W [k, n]: a block sums over `share` of k the columns of a strip, a vector of them in each of `lanes` threads, its other
// threads further down; the `cluster` blocks of a strip add up what they have.
struct StripsPlan {
  int64_t blocks;
  int32_t cluster, lanes;
  int64_t share, part;  // of k: a block's, and what of its v stands in shared memory at once
  size_t shared;
  bool overlaps;
  int slots() const { return kGpuThreads / lanes; }
};
StripsPlan plan_strips(const GpuProduct& product, const cuda::DeviceInfo& device);
// W of 16-bit elements, on tensor cores. A cluster has a run of units of outputs, as many as a box has, each of its blocks
// `share` of k, for which all of v stands in shared memory. Of a block's warps `abreast` have outputs side by side, and each
// of these `slices` warps every slices-th box of the share, `steps` of them. The sums of `batch` outputs are kept, then added
// up over slices and blocks.
struct TilesPlan {
  int64_t blocks, units;
  int32_t cluster, share, slices, steps, abreast, batch;
  int32_t boxes;   // on their way to a warp
  int32_t stride;  // from row to row of v
  size_t shared;
  bool serves;  // v fits, and there are such instructions
};
TilesPlan plan_tiles(const GpuProduct& product, bool transposed, const cuda::DeviceInfo& device);

inline int64_t strips_of(int64_t outputs, int32_t width, int32_t lanes) {
  const int64_t columns = int64_t{width} * lanes;
  return (outputs + columns - 1) / columns;
}

}  // namespace tc::ops::norm_gemv
