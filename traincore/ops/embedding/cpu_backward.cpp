// The scatter-add, turned around: each row of dweight sums the rows of dy that name it, so nothing is contended and the
// order is that of the rows.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "traincore/ops/embedding/cpu_backward.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include <cstring>

#include "traincore/core/dispatch.h"
#include "traincore/cpu/parallel.h"
#include "traincore/cpu/rows-inl.h"
#include "traincore/cpu/vector.h"
#include "traincore/ops/embedding/plan.h"

HWY_BEFORE_NAMESPACE();
namespace tc::ops::embedding::HWY_NAMESPACE {
namespace {

using namespace tc::HWY_NAMESPACE;  // NOLINT(google-build-using-namespace): the SIMD vocabulary of this target

constexpr int64_t kColumns = 1024;  // summed at a time
constexpr int64_t kRows = 256;      // summed before the sum joins the total, so that errors grow with neither alone

HWY_INLINE void add(const float* from, int64_t n, float* to) {
  for_row(n, [&](auto at) HWY_ATTR { at.store(to, hn::Add(at.load(to), at.load(from))); });
}

// total = sum of dy[order[i]] over n columns from `column` on.
template <class T>
void sum_rows(const Rows<const T>& dy, const int64_t* order, int64_t count, int64_t column, int64_t n, float* total) {
  float partial[kColumns];
  std::fill_n(total, n, 0.0f);
  for (int64_t begin = 0; begin < count; begin += kRows) {
    float* const sum = begin == 0 ? total : partial;
    if (begin > 0) std::fill_n(sum, n, 0.0f);
    for (int64_t i = begin; i < std::min(begin + kRows, count); ++i) {
      const T* const row = dy[order[i]] + column;
      for_row(n, [&](auto at) HWY_ATTR { at.store(sum, hn::Add(at.load(sum), at.load(row))); });
    }
    if (begin > 0) add(partial, n, total);
  }
}

template <class T>
void backward_rows(const tcx_embedding_backward_args& a, const BackwardScratch& sorted, const tc_exec& exec) {
  const auto dy = rows_of<const T>(a.dy);
  const AnyRows dweight(a.dweight);
  const int64_t dim = dy.cols;
  parallel_blocks(
      dweight.count(), rows_per_block(dweight.count(), dim), exec.threads, [&](int64_t first, int64_t last) HWY_ATTR {
        float total[kColumns];
        for (int64_t v = first; v < last; ++v) {
          const int64_t begin = sorted.starts[v], count = sorted.starts[v + 1] - begin;
          if (count == 0) {
            if (!a.accumulate) std::memset(dweight.at(v), 0, static_cast<size_t>(dim) * tc_dtype_size(a.dweight.dtype));
            continue;
          }
          for (int64_t column = 0; column < dim; column += kColumns) {
            const int64_t n = std::min(kColumns, dim - column);
            sum_rows(dy, sorted.order + begin, count, column, n, total);
            store_as(tc_tensor_dense(dweight.at(v, column), a.dweight.dtype, 1, &n), total, a.accumulate != 0);
          }
        }
      });
}

void backward(const tcx_embedding_backward_args& a, const BackwardScratch& sorted, const tc_exec& exec) {
  with_type(FloatTypes{}, a.dy.dtype, [&]<class T>() { backward_rows<T>(a, sorted, exec); });
}

}  // namespace
}  // namespace tc::ops::embedding::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tc::ops::embedding {
namespace {

// A counting sort: stable, because rows are placed from the last one down.
void sort_by_id(const Indices& ids, int64_t vocab, const BackwardScratch& sorted) {
  std::fill_n(sorted.starts, vocab + 1, int64_t{0});
  for (int64_t r = 0; r < ids.count(); ++r) ++sorted.starts[ids[r]];
  for (int64_t v = 0, end = 0; v <= vocab; ++v) sorted.starts[v] = end += sorted.starts[v];
  for (int64_t r = ids.count() - 1; r >= 0; --r) sorted.order[--sorted.starts[ids[r]]] = r;
}

}  // namespace

HWY_EXPORT(backward);
void backward_cpu(const tcx_embedding_backward_args& a, const tc_exec& exec) {
  const Indices ids(a.ids);
  const int64_t vocab = a.dweight.shape[0];
  require_in_vocabulary("embedding_backward", ids, vocab);
  const Scratch sorted(carve_backward, a, exec);
  sort_by_id(ids, vocab, *sorted);
  HWY_DYNAMIC_DISPATCH(backward)(a, *sorted, exec);
}

}  // namespace tc::ops::embedding
#endif
