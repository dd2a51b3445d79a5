// The definition of embedding: plain loops, shares nothing with the kernels. Real is double (the truth) or float (the
// honest formula that the error budget is measured with); every float tensor of a call has that type.
#include "traincore/core/view.h"
#include "traincore/ops/embedding/embedding.h"

namespace tc::ops::embedding {

template <class Real>
void forward_oracle(const tcx_embedding_forward_args& a) {
  const Indices ids(a.ids);
  const auto weight = rows_of<const Real>(a.weight);
  const auto y = rows_of<Real>(a.y);
  for (int64_t r = 0; r < y.count; ++r)
    for (int64_t c = 0; c < y.cols; ++c) y[r][c] = weight[ids[r]][c];
}

template <class Real>
void backward_oracle(const tcx_embedding_backward_args& a) {
  const Indices ids(a.ids);
  const auto dy = rows_of<const Real>(a.dy);
  const auto dweight = rows_of<Real>(a.dweight);
  for (int64_t v = 0; v < dweight.count && !a.accumulate; ++v)
    for (int64_t c = 0; c < dweight.cols; ++c) dweight[v][c] = 0;
  for (int64_t r = 0; r < dy.count; ++r)
    for (int64_t c = 0; c < dy.cols; ++c) dweight[ids[r]][c] += dy[r][c];
}

template void forward_oracle<double>(const tcx_embedding_forward_args&);
template void forward_oracle<float>(const tcx_embedding_forward_args&);
template void backward_oracle<double>(const tcx_embedding_backward_args&);
template void backward_oracle<float>(const tcx_embedding_backward_args&);

}  // namespace tc::ops::embedding
