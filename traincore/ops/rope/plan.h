// How rope's tensors are addressed, and the scratch of its passes.
#pragma once
#include "traincore/core/arena.h"
#include "traincore/core/view.h"
#include "traincore/ops/rope/rope.h"

namespace tc::ops::rope {

// q or k as [batch, heads, seq, dim], whatever its rank and strides; an absent tensor has no heads.
template <class T>
struct Heads {
  Rows<T> batch;
  int64_t heads, seq, dim, head_stride, seq_stride;

  explicit Heads(const tc_tensor& t) : batch(rows_of<T>(t, t.rank > 3 ? t.rank - 3 : 0)) {
    const auto extent = [&](int back) { return t.rank >= back ? t.shape[t.rank - back] : int64_t{given(t)}; };
    const auto stride = [&](int back) { return t.rank >= back ? t.stride[t.rank - back] : int64_t{0}; };
    heads = extent(3), seq = extent(2), dim = extent(1);
    head_stride = stride(3), seq_stride = stride(2);
  }
  TC_ALWAYS_INLINE TC_HD T* at(int64_t b, int64_t head, int64_t s) const {
    return batch[b] + head * head_stride + s * seq_stride;
  }
};

// Which row of the tables turns position s of sequence b.
class TableRow {
 public:
  TableRow(const tc_tensor& cos, const tc_tensor& positions, int64_t seq)
      : positions_(positions),
        gathers_(given(positions)),
        batch_stride_((gathers_ ? positions.rank : cos.rank - 1) > 1 ? seq : 0) {}
  int64_t operator()(int64_t b, int64_t s) const {
    const int64_t row = b * batch_stride_ + s;
    return gathers_ ? positions_[row] : row;
  }

 private:
  Indices positions_;
  bool gathers_;
  int64_t batch_stride_;
};

// Positions choose rows of a table that has `rows` of them.
inline void require_in_table(const char* pass, const tc_tensor& positions, int64_t rows) {
  if (!given(positions)) return;
  const Indices values(positions);
  for (int64_t i = 0; i < values.count(); ++i)
    require(values[i] >= 0 && values[i] < rows,
            "{}: positions[{}] (counted row by row) is {}, but cos has {} rows, so it must be in [0, {})", pass, i,
            values[i], rows, rows);
}

// Whether a GPU turns dq_out and dk_out where it reads them for the tables' gradients: each position has a row of its own,
// and nothing of a row is to be copied.
inline bool turns_with_tables(const tcx_rope_backward_args& a) {
  const int64_t turning = 2 * a.cos.shape[a.cos.rank - 1], dim = a.dq_out.shape[a.dq_out.rank - 1];
  return (given(a.dcos) || given(a.dsin)) && !given(a.positions) && turning == dim;
}

struct BackwardScratch {
  float* dcos;  // as cos, in f32
  float* dsin;
};
inline BackwardScratch carve_backward(const tcx_rope_backward_args& a, Arena& arena) {
  const int64_t n = given(a.dcos) || given(a.dsin) ? element_count(a.cos) : 0;
  return {arena.take<float>(n), arena.take<float>(n)};
}

}  // namespace tc::ops::rope
