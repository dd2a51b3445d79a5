// The definition of attention: plain loops, shares nothing with the kernels. Real is double (the truth) or float (the
// honest formula that the error budget is measured with); every float tensor of a call has that type.
#include <cmath>
#include <limits>
#include <vector>

#include "traincore/core/random.h"
#include "traincore/core/view.h"
#include "traincore/ops/attention/attention.h"

namespace tc::ops::attention {
namespace {

// Where a tensor's element, or with fewer indices its row, begins; a dimension of extent 1 broadcasts.
template <class T>
T* at(const tc_tensor& t, std::initializer_list<int64_t> indices) {
  auto* p = static_cast<T*>(t.data);
  int axis = 0;
  for (const int64_t i : indices) {
    if (t.shape[axis] != 1) p += i * t.stride[axis];
    ++axis;
  }
  return p;
}

// The queries and keys that belong together.
struct Span {
  int64_t batch, query, queries, key, keys;
};
template <class A>
std::vector<Span> spans_of(const A& a) {
  std::vector<Span> spans;
  if (!given(a.cu_seqlens_q))
    for (int64_t b = 0; b < a.q.shape[0]; ++b) spans.push_back({b, 0, a.q.shape[2], 0, a.k.shape[2]});
  else
    for (int64_t n = 0; n + 1 < a.cu_seqlens_q.shape[0]; ++n) {
      const int64_t query = *at<const int32_t>(a.cu_seqlens_q, {n}), key = *at<const int32_t>(a.cu_seqlens_k, {n});
      const int64_t query_end = *at<const int32_t>(a.cu_seqlens_q, {n + 1});
      const int64_t key_end = *at<const int32_t>(a.cu_seqlens_k, {n + 1});
      spans.push_back({0, query, query_end - query, key, key_end - key});
    }
  return spans;
}

// One query's scores against the keys of its span, whose key j is key span.key + j of the tensors.
template <class Real, class A>
class Query {
 public:
  const A& a;
  const Span span;
  const int64_t head, kv_head, index, position;  // index: in the tensors
  const bool plain;                              // the scores are q.k; else they are z
  const Real scale, factor;                      // factor: of the score in the exponent
  std::vector<Real> score, slope;                // -inf where not visible; dz / d(scale s)
  Real max = -std::numeric_limits<Real>::infinity();

  Query(const A& args, const Span& s, int64_t h, int64_t i)
      : a(args),
        span(s),
        head(h),
        kv_head(h / (args.q.shape[1] / args.k.shape[1])),
        index(s.query + i),
        position(i + (args.causal_offset == INT64_MIN ? s.keys - s.queries : args.causal_offset)),
        plain(args.softcap == 0 && !given(args.bias) && !given(args.alibi_slopes)),
        scale(args.scale > 0 ? Real(args.scale) : Real(1) / std::sqrt(Real(args.q.shape[3]))),
        factor(plain ? scale : Real(1)),
        score(static_cast<size_t>(s.keys)),
        slope(static_cast<size_t>(s.keys), Real(1)) {
    for (int64_t j = 0; j < s.keys; ++j) {
      const Real z = score[static_cast<size_t>(j)] = visible(j) ? score_of(j) : kNone;
      max = z > max || std::isnan(z) ? z : max;
    }
  }

  bool sees_nothing() const { return max == kNone; }
  Real distance(int64_t j) const { return Real(std::abs(position - j)); }
  // What dropout makes of a probability: a factor.
  Real kept(int64_t j) const {
    if (a.dropout == 0) return 1;
    const int64_t key = span.key + j, row = (span.batch * a.q.shape[1] + head) * a.q.shape[2] + index;
    const Words4 w =
        Philox{static_cast<uint64_t>(a.seed)}(static_cast<uint64_t>(row * ((a.k.shape[2] + 3) / 4) + key / 4));
    const uint32_t words[] = {w.x, w.y, w.z, w.w};
    return static_cast<double>(uniform01(words[key % 4])) < a.dropout ? Real(0) : Real(1 / (1 - a.dropout));
  }
  template <class T>
  T* of(const tc_tensor& t) const {  // this query's row of o, lse, ...
    return at<T>(t, {span.batch, head, index});
  }
  template <class T>
  T* of_key(const tc_tensor& t, int64_t j) const {  // key j's row of k, v, ...
    return at<T>(t, {span.batch, kv_head, span.key + j});
  }
  template <class T>
  T* of_pair(const tc_tensor& t, int64_t j) const {
    return at<T>(t, {span.batch, head, index, span.key + j});
  }

 private:
  static constexpr Real kNone = -std::numeric_limits<Real>::infinity();
  bool visible(int64_t j) const {
    if (given(a.mask) && *of_pair<const uint8_t>(a.mask, j) == 0) return false;
    if (a.causal && j > position) return false;
    return (a.window_left < 0 || j >= position - a.window_left) &&
           (a.window_right < 0 || j <= position + a.window_right);
  }
  Real score_of(int64_t j) {
    const Real *q = of<const Real>(a.q), *k = of_key<const Real>(a.k, j);
    Real s = 0;
    for (int64_t d = 0; d < a.q.shape[3]; ++d) s += q[d] * k[d];
    if (plain) return s;
    Real z = scale * s;
    if (a.softcap > 0) {
      const Real t = std::tanh(z / Real(a.softcap));
      z = Real(a.softcap) * t;
      slope[static_cast<size_t>(j)] = 1 - t * t;
    }
    if (given(a.bias)) z += *of_pair<const Real>(a.bias, j);
    return given(a.alibi_slopes) ? z - *at<const Real>(a.alibi_slopes, {head}) * distance(j) : z;
  }
};

// visit(Query) for every query of every head.
template <class Real, class A, class F>
void for_each_query(const A& a, F&& visit) {
  for (const Span& span : spans_of(a))
    for (int64_t h = 0; h < a.q.shape[1]; ++h)
      for (int64_t i = 0; i < span.queries; ++i) visit(Query<Real, A>(a, span, h, i));
}

template <class Real>
void fill(const tc_tensor& t, Real value) {
  const auto all = values_of<Real>(t);
  for (int64_t i = 0; t.data && i < all.count; ++i) *all[i] = value;
}

// The gradients; or, of each, the sum of the magnitudes of its terms.
template <class Real, bool kMagnitudes>
void differentiate(const tcx_attention_backward_args& a) {
  const auto term = [](Real x) { return kMagnitudes ? std::abs(x) : x; };
  const auto dot = [&](const Real* x, const Real* y) {
    Real sum = 0;
    for (int64_t d = 0; d < a.v.shape[3]; ++d) sum += term(x[d] * y[d]);
    return sum;
  };
  const auto add = [&](const tc_tensor& t, Real* to, Real factor, const Real* from) {
    for (int64_t d = 0; given(t) && d < t.shape[3]; ++d) to[d] += term(factor * from[d]);
  };
  for_each_query<Real>(a, [&](const Query<Real, tcx_attention_backward_args>& query) {
    if (query.sees_nothing()) return;
    const Real max = given(a.row_max) ? *query.template of<const Real>(a.row_max) : 0;
    const Real log_sum = *query.template of<const Real>(given(a.row_max) ? a.row_log_sum : a.lse);
    const Real* dout = query.template of<const Real>(a.dout);
    const Real delta = dot(dout, query.template of<const Real>(given(a.precise_output) ? a.precise_output : a.o));
    for (int64_t j = 0; j < query.span.keys; ++j) {
      const auto index = static_cast<size_t>(j);
      const Real p = std::exp((query.score[index] - max) * query.factor - log_sum);
      if (p == 0) continue;
      const Real kept = query.kept(j);
      const Real dp = kept * dot(dout, query.template of_key<const Real>(a.v, j));
      const Real dz = kMagnitudes ? p * (dp + delta) : p * (dp - delta);
      const Real ds = dz * query.slope[index] * query.scale;
      add(a.dv, query.template of_key<Real>(a.dv, j), p * kept, dout);
      add(a.dq, query.template of<Real>(a.dq), ds, query.template of_key<const Real>(a.k, j));
      add(a.dk, query.template of_key<Real>(a.dk, j), ds, query.template of<const Real>(a.q));
      if (given(a.dbias)) *query.template of_pair<Real>(a.dbias, j) += dz;
      if (given(a.dalibi_slopes)) *at<Real>(a.dalibi_slopes, {query.head}) += term(-dz * query.distance(j));
    }
  });
}

}  // namespace

template <class Real>
void forward_oracle(const tcx_attention_forward_args& a) {
  const int64_t width = a.v.shape[3];
  for_each_query<Real>(a, [&](const Query<Real, tcx_attention_forward_args>& query) {
    const bool none = query.sees_nothing();
    std::vector<Real> o(static_cast<size_t>(width));
    Real sum = 0;
    for (int64_t j = 0; j < query.span.keys && !none; ++j) {
      const Real p = std::exp((query.score[static_cast<size_t>(j)] - query.max) * query.factor);
      const Real* v = query.template of_key<const Real>(a.v, j);
      sum += p;
      for (int64_t d = 0; p != 0 && d < width; ++d) o[static_cast<size_t>(d)] += p * query.kept(j) * v[d];
    }
    for (int64_t d = 0; d < width; ++d) {
      const Real value = none ? 0 : o[static_cast<size_t>(d)] / sum;
      query.template of<Real>(a.o)[d] = value;
      if (given(a.precise_output)) query.template of<Real>(a.precise_output)[d] = value;
    }
    if (given(a.row_max)) *query.template of<Real>(a.row_max) = none ? 0 : query.max;
    if (given(a.row_log_sum)) *query.template of<Real>(a.row_log_sum) = none ? 0 : std::log(sum);
    if (given(a.lse)) *query.template of<Real>(a.lse) = none ? query.max : query.max * query.factor + std::log(sum);
  });
}

template <class Real>
void backward_oracle(const tcx_attention_backward_args& a) {
  for (const tc_tensor* t : {&a.dq, &a.dk, &a.dv}) fill<Real>(*t, 0);
  if (!a.accumulate)
    for (const tc_tensor* t : {&a.dbias, &a.dalibi_slopes}) fill<Real>(*t, 0);
  differentiate<Real, false>(a);
}

// Adds to each output the sum of the magnitudes of its terms: dz is a difference, and may cancel.
void backward_magnitudes(const tcx_attention_backward_args& a) { differentiate<double, true>(a); }

template void forward_oracle<double>(const tcx_attention_forward_args&);
template void forward_oracle<float>(const tcx_attention_forward_args&);
template void backward_oracle<double>(const tcx_attention_backward_args&);
template void backward_oracle<float>(const tcx_attention_backward_args&);

}  // namespace tc::ops::attention
