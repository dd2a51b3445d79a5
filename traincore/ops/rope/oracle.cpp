// The definition of rope: plain loops, shares nothing with the kernels but the addressing of tensors. Real is double
// (the truth) or float (the honest formula that the error budget is measured with); every float tensor of a call has
// that type.
#include <algorithm>

#include "traincore/ops/rope/plan.h"

namespace tc::ops::rope {
namespace {

struct Pair {
  int64_t one, two;  // where its elements are in a row
};
Pair pair_at(int32_t pairing, int64_t half, int64_t i) {
  return pairing == TC_ROPE_HALF ? Pair{i, i + half} : Pair{2 * i, 2 * i + 1};
}

// visit(b, head, s, row of the tables) for every row of q or k.
template <class Real, class F>
void for_each_row(const Heads<Real>& x, const tc_tensor& cos, const tc_tensor& positions, F visit) {
  const TableRow table_row(cos, positions, x.seq);
  for (int64_t b = 0; b < x.batch.count; ++b)
    for (int64_t head = 0; head < x.heads; ++head)
      for (int64_t s = 0; s < x.seq; ++s) visit(b, head, s, table_row(b, s));
}

template <class Real>
void forward_side(const tcx_rope_forward_args& a, const tc_tensor& in, const tc_tensor& out) {
  const Heads<const Real> x(in);
  const Heads<Real> y(out);
  const auto cos = rows_of<const Real>(a.cos), sin = rows_of<const Real>(a.sin);
  for_each_row(y, a.cos, a.positions, [&](int64_t b, int64_t head, int64_t s, int64_t row) {
    const Real* from = x.at(b, head, s);
    Real* to = y.at(b, head, s);
    for (int64_t i = 0; i < cos.cols; ++i) {
      const Pair p = pair_at(a.pairing, cos.cols, i);
      to[p.one] = from[p.one] * cos[row][i] - from[p.two] * sin[row][i];
      to[p.two] = from[p.two] * cos[row][i] + from[p.one] * sin[row][i];
    }
    for (int64_t c = 2 * cos.cols; c < x.dim; ++c) to[c] = from[c];
  });
}

template <class Real>
void backward_side(const tcx_rope_backward_args& a, const tc_tensor& cotangent, const tc_tensor& gradient) {
  const Heads<const Real> g(cotangent);
  const Heads<Real> dx(gradient);
  const auto cos = rows_of<const Real>(a.cos), sin = rows_of<const Real>(a.sin);
  for_each_row(dx, a.cos, a.positions, [&](int64_t b, int64_t head, int64_t s, int64_t row) {
    const Real* from = g.at(b, head, s);
    Real* to = dx.at(b, head, s);
    for (int64_t i = 0; i < cos.cols; ++i) {
      const Pair p = pair_at(a.pairing, cos.cols, i);
      to[p.one] = from[p.one] * cos[row][i] + from[p.two] * sin[row][i];
      to[p.two] = from[p.two] * cos[row][i] - from[p.one] * sin[row][i];
    }
    for (int64_t c = 2 * cos.cols; c < g.dim; ++c) to[c] = from[c];
  });
}

template <class Real>
void add_table_gradients(const tcx_rope_backward_args& a, const tc_tensor& input, const tc_tensor& cotangent) {
  const Heads<const Real> x(input), g(cotangent);
  const auto dcos = rows_of<Real>(a.dcos), dsin = rows_of<Real>(a.dsin);
  const int64_t half = a.cos.shape[a.cos.rank - 1];
  for_each_row(g, a.cos, a.positions, [&](int64_t b, int64_t head, int64_t s, int64_t row) {
    const Real *xr = x.at(b, head, s), *gr = g.at(b, head, s);
    for (int64_t i = 0; i < half; ++i) {
      const Pair p = pair_at(a.pairing, half, i);
      if (dcos.data) dcos[row][i] += gr[p.one] * xr[p.one] + gr[p.two] * xr[p.two];
      if (dsin.data) dsin[row][i] += gr[p.two] * xr[p.one] - gr[p.one] * xr[p.two];
    }
  });
}

template <class Real>
void clear(const tc_tensor& t) {
  const auto rows = rows_of<Real>(t);
  for (int64_t r = 0; rows.data && r < rows.count; ++r) std::fill_n(rows[r], rows.cols, Real(0));
}

}  // namespace

template <class Real>
void forward_oracle(const tcx_rope_forward_args& a) {
  forward_side<Real>(a, a.q, a.q_out);
  if (given(a.k)) forward_side<Real>(a, a.k, a.k_out);
}

template <class Real>
void backward_oracle(const tcx_rope_backward_args& a) {
  backward_side<Real>(a, a.dq_out, a.dq);
  backward_side<Real>(a, a.dk_out, a.dk);
  if (!given(a.dcos) && !given(a.dsin)) return;
  if (!a.accumulate) clear<Real>(a.dcos), clear<Real>(a.dsin);
  add_table_gradients<Real>(a, a.q, a.dq_out);
  add_table_gradients<Real>(a, a.k, a.dk_out);
}

template void forward_oracle<double>(const tcx_rope_forward_args&);
template void forward_oracle<float>(const tcx_rope_forward_args&);
template void backward_oracle<double>(const tcx_rope_backward_args&);
template void backward_oracle<float>(const tcx_rope_backward_args&);

}  // namespace tc::ops::rope
