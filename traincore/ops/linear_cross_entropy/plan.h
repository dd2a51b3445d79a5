// How linear cross entropy is cut into chunks of rows, and its scratch: from the shape alone.
#pragma once
#include <algorithm>

#include "traincore/core/arena.h"
#include "traincore/cpu/loss.h"
#include "traincore/ops/linear_cross_entropy/extents.h"

namespace tc::ops::linear_cross_entropy {

// Valid rows whose logits are in memory together: enough for the products to run at full speed.
constexpr int64_t chunk_rows(const Extents& e) {
  constexpr int64_t kElements = int64_t{1} << 24, kFewest = 16, kMost = 1024;
  const int64_t most = std::clamp(kElements / std::max<int64_t>(e.classes, 1), kFewest, kMost);
  return std::clamp<int64_t>(e.rows, 1, most);
}

// Length of a row of f32 scratch: an odd number of cache lines, so that the rows of a tile do not share cache sets.
constexpr int64_t line(int64_t width) { return ((width + 15) / 16 | 1) * 16; }

// Some of the valid rows, gathered.
struct Chunk {
  const int64_t* rows;  // where they are in the tensors
  int64_t count, width, classes;
  float* hidden;  // [count, line(width)], then dhidden
  float* logits;  // [count, line(classes)], then dlogits
};

struct Parts {
  int64_t* valid;       // [rows]: those that are not ignored
  float* class_weight;  // [classes] in f32
  float* bias;          // [classes] in f32
  float* dbias;         // [classes]
  float* hidden;        // [chunk_rows, line(width)], then dhidden
  float* logits;        // [chunk_rows, line(classes)], then dlogits
  float* dweight;       // [classes, width], where it is not stored in f32
};
template <class A>
Parts carve_parts(const A& a, Arena& arena) {
  const Extents e = extents_of(a);
  const auto classes_if = [&](const tc_tensor& t) { return arena.take<float>(given(t) ? e.classes : 0); };
  const bool narrow = given(a.dweight) && a.dweight.dtype != TC_DTYPE_F32;
  return {.valid = arena.take<int64_t>(e.rows),
          .class_weight = classes_if(a.class_weight),
          .bias = classes_if(a.bias),
          .dbias = classes_if(a.dbias),
          .hidden = arena.take<float>(product(chunk_rows(e), line(e.width))),
          .logits = arena.take<float>(product(chunk_rows(e), line(e.classes))),
          .dweight = arena.take<float>(narrow ? product(e.classes, e.width) : 0)};
}

struct ForwardScratch {
  Parts parts;
  float* loss;         // [rows], where loss is reduced
  float* z_loss_part;  // [rows], where it is wanted and reduced
};
inline ForwardScratch carve_forward(const tcx_linear_cross_entropy_forward_args& a, Arena& arena) {
  const int64_t rows = element_count(a.target);
  return {carve_parts(a, arena), arena.take<float>(reduced_count(a.reduction, a.loss, rows)),
          arena.take<float>(reduced_count(a.reduction, a.z_loss_part, rows))};
}
inline Parts carve_backward(const tcx_linear_cross_entropy_backward_args& a, Arena& arena) {
  return carve_parts(a, arena);
}

}  // namespace tc::ops::linear_cross_entropy
