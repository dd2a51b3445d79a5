#include "traincore/cpu/gemm.h"

#include <dnnl.h>

#include <algorithm>

#include "traincore/core/arena.h"
#include "traincore/core/dispatch.h"
#include "traincore/core/fail.h"
#include "traincore/cpu/parallel.h"
#include "traincore/cpu/vector.h"

namespace tc {
namespace {

constexpr int64_t blocks(int64_t n, int64_t size) { return (n + size - 1) / size; }
constexpr int64_t round_up(int64_t n, int64_t multiple) { return blocks(n, multiple) * multiple; }
// The size of an even number of tiles that share n out evenly, none larger than `largest`.
constexpr int64_t even_tile(int64_t n, int64_t largest) {
  const int64_t pairs = blocks(n, 2 * largest);
  return n <= largest ? n : std::min(n, round_up(blocks(n, 2 * pairs), 16));
}

const void* at(const void* data, int32_t dtype, int64_t offset) {
  return static_cast<const std::byte*>(data) + offset * static_cast<int64_t>(tc_dtype_size(dtype));
}
void* at(void* data, int32_t dtype, int64_t offset) {
  return static_cast<std::byte*>(data) + offset * static_cast<int64_t>(tc_dtype_size(dtype));
}

// A block of A or B as oneDNN takes it: f32 rows `stride` apart, of the block or of its transpose.
struct Panel {
  const float* data;
  int64_t stride;
  char transposed;
};

// Lines are padded so that they do not fall a multiple of 4096 bytes apart, which costs oneDNN half its speed.
constexpr int64_t padded(int64_t line) { return round_up(line, 16) + 16; }
constexpr int64_t panel_size(int64_t rows, int64_t cols) { return std::max(rows * padded(cols), cols * padded(rows)); }

void copy_line(const void* from, int32_t dtype, int64_t stride, int64_t n, float* to) {
  if (stride == 1 || n == 1) return widen(dtype, from, n, to);
  for (int64_t i = 0; i < n; ++i) widen(dtype, at(from, dtype, i * stride), 1, to + i);
}

// Copies a block to f32, keeping the direction in which it is contiguous.
Panel pack(const GemmInput& x, int64_t row, int64_t col, int64_t rows, int64_t cols, float* to) {
  const bool transposed = x.col_stride != 1 && x.row_stride == 1;
  const int64_t lines = transposed ? cols : rows, length = transposed ? rows : cols;
  const int64_t line_stride = transposed ? x.col_stride : x.row_stride;
  const int64_t element_stride = transposed ? x.row_stride : x.col_stride;
  const int64_t start = row * x.row_stride + col * x.col_stride, stride = padded(length);
  for (int64_t i = 0; i < lines; ++i)
    copy_line(at(x.data, x.dtype, start + i * line_stride), x.dtype, element_stride, length, to + i * stride);
  return {to, stride, transposed ? 'T' : 'N'};
}

// A block where it lies, if oneDNN can read it there: f32, with rows or columns contiguous.
bool readable(const GemmInput& x, int64_t row, int64_t col, int64_t rows, int64_t cols, Panel& panel) {
  const bool by_rows = x.col_stride == 1 && x.row_stride >= cols,
             by_columns = x.row_stride == 1 && x.col_stride >= rows;
  if (x.dtype != TC_DTYPE_F32 || !(by_rows || by_columns)) return false;
  panel.data = static_cast<const float*>(x.data) + row * x.row_stride + col * x.col_stride;
  panel.stride = by_rows ? x.row_stride : x.col_stride;
  panel.transposed = by_rows ? 'N' : 'T';
  return true;
}

// A and B of a tile over [k, k + size). They are copied where oneDNN reads them slowly as they lie, unless too few rows
// or columns of the tile meet them to pay for that.
struct Panels {
  Panel a, b;
};
Panels panels_of(const Gemm& gemm, const GemmTile& t, int64_t k, int64_t size, float* packed_a, float* packed_b) {
  constexpr int64_t kFew = 64;
  const bool few = std::min(t.rows, t.cols) <= kFew;
  Panels p;
  if (!readable(gemm.a, t.row, k, t.rows, size, p.a) || (p.a.transposed == 'T' && !few))
    p.a = pack(gemm.a, t.row, k, t.rows, size, packed_a);
  if (!few || !readable(gemm.b, k, t.col, size, t.cols, p.b)) p.b = pack(gemm.b, k, t.col, size, t.cols, packed_b);
  return p;
}

void multiply(const GemmTile& c, int64_t k, float alpha, const Panel& a, const Panel& b, float beta) {
  const SingleThread alone;  // the order of sums in A^T products depends on oneDNN's number of threads
  const dnnl_status_t status = dnnl_sgemm(a.transposed, b.transposed, c.rows, c.cols, k, alpha, a.data, a.stride,
                                          b.data, b.stride, beta, c.values, c.stride);
  if (status != dnnl_success)
    fail(TC_ERR_PIPELINE, "gemm: oneDNN's dnnl_sgemm failed with status {} on a {} x {} x {} block",
         static_cast<int>(status), c.rows, c.cols, k);
}

struct Call {
  const Gemm& gemm;
  int threads;
  GemmPlan plan;

  int64_t tile_size() const { return plan.tile_m * plan.tile_n; }
  size_t panel_bytes() const {
    return (panel_size(plan.tile_m, plan.panel_k) + panel_size(plan.panel_k, plan.tile_n)) * sizeof(float);
  }
  GemmTile tile(int64_t index, float* values) const {
    const int64_t row = index / plan.tiles_n * plan.tile_m, col = index % plan.tiles_n * plan.tile_n;
    const int64_t rows = std::min(plan.tile_m, gemm.m - row), cols = std::min(plan.tile_n, gemm.n - col);
    return {row, col, rows, cols, values, cols};
  }
  void* stored(const GemmTile& t, int64_t i) const {
    const GemmOutput& c = gemm.c;
    return at(c.data, c.dtype, (t.row + i) * c.row_stride + t.col);
  }
};

// t = alpha A B over [begin, end) of K, plus beta t.
void sum_k(const Call& call, const GemmTile& t, int64_t begin, int64_t end, float beta) {
  const ThreadScratch scratch(call.panel_bytes());
  float* const packed_a = static_cast<float*>(scratch.data());
  float* const packed_b = packed_a + panel_size(call.plan.tile_m, call.plan.panel_k);
  for (int64_t k = begin; k < end; k += call.plan.panel_k) {
    const int64_t size = std::min(call.plan.panel_k, end - k);
    const Panels p = panels_of(call.gemm, t, k, size, packed_a, packed_b);
    multiply(t, size, call.gemm.alpha, p.a, p.b, k == begin ? beta : 1);
  }
}

// C = t + beta C, where t holds the whole sum.
void finish(const Call& call, const GemmTile& t) {
  const GemmOutput& c = call.gemm.c;
  if (call.gemm.beta != 0) {
    const ThreadScratch scratch(t.cols * sizeof(float));
    auto* const line = static_cast<float*>(scratch.data());
    for (int64_t i = 0; i < t.rows; ++i) {
      float* const sum = t.values + i * t.stride;
      widen(c.dtype, call.stored(t, i), t.cols, line);
      for (int64_t j = 0; j < t.cols; ++j) sum[j] += call.gemm.beta * line[j];
    }
  }
  if (call.gemm.epilogue) (*call.gemm.epilogue)(t);
  for (int64_t i = 0; i < t.rows; ++i) narrow(c.dtype, t.values + i * t.stride, t.cols, call.stored(t, i));
}

// C is f32 memory that oneDNN can sum into.
void run_in_place(const Call& call) {
  parallel_for(call.plan.tiles, call.threads, [&](int64_t index) {
    GemmTile t = call.tile(index, nullptr);
    t.values = static_cast<float*>(call.stored(t, 0));
    t.stride = std::max(call.gemm.c.row_stride, t.cols);
    sum_k(call, t, 0, call.gemm.k, call.gemm.beta);
    if (call.gemm.epilogue) (*call.gemm.epilogue)(t);
  });
}

void run_apart(const Call& call) {
  parallel_for(call.plan.tiles, call.threads, [&](int64_t index) {
    const ThreadScratch scratch(call.tile_size() * sizeof(float));
    const GemmTile t = call.tile(index, static_cast<float*>(scratch.data()));
    if (call.gemm.k == 0) std::fill_n(t.values, call.tile_size(), 0.0f);
    sum_k(call, t, 0, call.gemm.k, 0);
    finish(call, t);
  });
}

void run_parts(const Call& call) {
  const int64_t parts = call.plan.parts, size = call.tile_size();
  const ThreadScratch scratch(call.plan.tiles * parts * size * sizeof(float));
  auto* const sums = static_cast<float*>(scratch.data());  // [tile][part][tile_m][tile_n]
  parallel_for(call.plan.tiles * parts, call.threads, [&](int64_t i) {
    const int64_t begin = i % parts * call.plan.part_k;
    const GemmTile t = call.tile(i / parts, sums + i * size);
    sum_k(call, t, begin, std::min(call.gemm.k, begin + call.plan.part_k), 0);
  });
  parallel_for(call.plan.tiles, call.threads, [&](int64_t index) {
    float* const total = sums + index * parts * size;
    const GemmTile t = call.tile(index, total);
    for (int64_t part = 1; part < parts; ++part)
      for (int64_t i = 0; i < t.rows * t.stride; ++i) total[i] += total[part * size + i];
    finish(call, t);
  });
}

}  // namespace

GemmPlan plan_gemm(int64_t m, int64_t n, int64_t k) {
  if (m == 0 || n == 0) return {};
  constexpr int64_t kEnough = 16;       // tiles, for the threads of a socket
  constexpr double kFewProducts = 1e5;  // that are not worth a tile of their own
  constexpr struct {
    int64_t m, n;
  } kTiles[] = {{512, 256}, {256, 128}, {128, 128}, {64, 64}};  // larger ones pack less
  GemmPlan p{};
  for (const auto& tile : kTiles) {
    p.tile_m = even_tile(m, tile.m), p.tile_n = even_tile(n, tile.n);
    p.tiles_n = blocks(n, p.tile_n);
    p.tiles = blocks(m, p.tile_m) * p.tiles_n;
    const double products = static_cast<double>(p.tile_m) * static_cast<double>(p.tile_n) * static_cast<double>(k);
    if (p.tiles >= kEnough || products < 2 * kFewProducts) break;
  }
  constexpr int64_t kPanel = 512;  // one of A and one of B fit the second-level cache
  constexpr int64_t kMinPart = 4 * kPanel;
  const int64_t wanted = p.tiles < kEnough / 2 ? std::clamp<int64_t>(k / kMinPart, 1, kEnough / p.tiles) : 1;
  const bool vector = p.tile_m == 1 || p.tile_n == 1;
  p.panel_k = std::min(k, vector ? kMinPart : kPanel);
  p.part_k = round_up(blocks(k, wanted), kPanel);
  p.parts = k > 0 ? blocks(k, p.part_k) : 1;
  return p;
}

void run_gemm(const Gemm& gemm, int threads) {
  const Call call{gemm, threads, plan_gemm(gemm.m, gemm.n, gemm.k)};
  if (call.plan.tiles == 0) return;
  if (call.plan.parts > 1) return run_parts(call);
  const GemmOutput& c = gemm.c;
  const bool in_place = c.dtype == TC_DTYPE_F32 && (c.row_stride >= gemm.n || gemm.m == 1) && gemm.k > 0;
  return in_place ? run_in_place(call) : run_apart(call);
}

}  // namespace tc
