// dcos and dsin: sums over every row of q and k that a row of the tables turned. Pairs are cut over threads, and each
// takes the rows in their order, so positions may repeat.
#include <algorithm>

#include "traincore/core/dispatch.h"
#include "traincore/cpu/parallel.h"
#include "traincore/cpu/vector.h"
#include "traincore/ops/rope/plan.h"

namespace tc::ops::rope {
namespace {

constexpr int64_t kPairs = 16;  // a cache line of f32

// Both elements of pairs first .. first + n - 1 of a row, in f32.
struct Pairs {
  float one[kPairs], two[kPairs];
  template <class T>
  Pairs(const T* row, int32_t pairing, int64_t half, int64_t first, int64_t n) {
    const bool halves = pairing == TC_ROPE_HALF;
    const int64_t start = halves ? first : 2 * first, step = halves ? 1 : 2, partner = halves ? half : 1;
    for (int64_t i = 0; i < n; ++i) {
      one[i] = static_cast<float>(row[start + i * step]);
      two[i] = static_cast<float>(row[start + i * step + partner]);
    }
  }
};

template <class T>
void add_heads(const tcx_rope_backward_args& a, const Heads<const T>& x, const Heads<const T>& g, int64_t first,
               int64_t n, const BackwardScratch& sums) {
  const int64_t half = a.cos.shape[a.cos.rank - 1];
  const TableRow table_row(a.cos, a.positions, g.seq);
  for (int64_t b = 0; b < g.batch.count; ++b)
    for (int64_t head = 0; head < g.heads; ++head)
      for (int64_t s = 0; s < g.seq; ++s) {
        const Pairs gp(g.at(b, head, s), a.pairing, half, first, n), xp(x.at(b, head, s), a.pairing, half, first, n);
        const int64_t at = table_row(b, s) * half + first;
        for (int64_t i = 0; i < n; ++i) {
          sums.dcos[at + i] += gp.one[i] * xp.one[i] + gp.two[i] * xp.two[i];
          sums.dsin[at + i] += gp.two[i] * xp.one[i] - gp.one[i] * xp.two[i];
        }
      }
}

void store_table(const tc_tensor& table, const float* values, bool accumulate, const tc_exec& exec) {
  if (!given(table)) return;
  const AnyRows rows(table);
  const int64_t cols = rows.cols();
  parallel_blocks(rows.count(), rows_per_block(rows.count(), cols), exec.threads, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      store_as(tc_tensor_dense(rows.at(r), table.dtype, 1, &cols), values + r * cols, accumulate);
  });
}

}  // namespace

void table_gradients_cpu(const tcx_rope_backward_args& a, const tc_exec& exec) {
  const Scratch sums(carve_backward, a, exec);
  const int64_t size = element_count(a.cos), half = a.cos.shape[a.cos.rank - 1];
  std::fill_n(sums->dcos, size, 0.0f);
  std::fill_n(sums->dsin, size, 0.0f);
  with_type(FloatTypes{}, a.dq_out.dtype, [&]<class T>() {
    const Heads<const T> q(a.q), dq_out(a.dq_out), k(a.k), dk_out(a.dk_out);
    parallel_blocks(half, kPairs, exec.threads, [&](int64_t begin, int64_t end) {
      add_heads(a, q, dq_out, begin, end - begin, *sums);
      add_heads(a, k, dk_out, begin, end - begin, *sums);
    });
  });
  store_table(a.dcos, sums->dcos, a.accumulate != 0, exec);
  store_table(a.dsin, sums->dsin, a.accumulate != 0, exec);
}

}  // namespace tc::ops::rope
