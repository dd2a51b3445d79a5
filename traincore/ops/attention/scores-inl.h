// What both passes of attention do to a tile besides products: rows in and out of scratch, and everything between
// q.k and the exponent. A tile of scores is [key][kTile], with the queries in the lanes.
#if defined(TRAINCORE_OPS_ATTENTION_SCORES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRAINCORE_OPS_ATTENTION_SCORES_INL_H_
#undef TRAINCORE_OPS_ATTENTION_SCORES_INL_H_
#else
#define TRAINCORE_OPS_ATTENTION_SCORES_INL_H_
#endif

#include <cmath>
#include <limits>

#include "traincore/core/dispatch.h"
#include "traincore/core/random.h"
#include "traincore/cpu/math-inl.h"
#include "traincore/ops/attention/plan.h"
#include "traincore/ops/attention/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tc::ops::attention::HWY_NAMESPACE {
namespace {

constexpr double kLog2E = 1.4426950408889634;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// ---------------------------------------------------------------- rows in and out of scratch

// `count` rows to f32, `stride` floats apart: zeros up to a whole vector, and up to a whole group of rows.
template <class T>
void load_rows(const T* from, int64_t from_stride, int64_t count, int64_t width, float* to, int64_t stride) {
  const int64_t step = lanes(), whole = width / step * step;
  for (int64_t r = 0; r < count; ++r, from += from_stride, to += stride) {
    for (int64_t i = 0; i < whole; i += step) store(to + i, load(from + i));
    if (whole < width) store(to + whole, load_n(from + whole, width - whole));
  }
  const int64_t rest = (count + kGroup - 1) / kGroup * kGroup - count;
  std::fill_n(to, rest * stride, 0.0f);
}

// Rows first .. first + count - 1 of one head of a [batch, heads, seq, width] tensor.
void load_rows(const tc_tensor& t, int64_t batch, int64_t head, int64_t first, int64_t count, float* to) {
  with_type(FloatTypes{}, t.dtype, [&]<class T>() HWY_ATTR {
    const T* from = static_cast<const T*>(t.data) + batch * t.stride[0] + head * t.stride[1] + first * t.stride[2];
    load_rows(from, t.stride[2], count, t.shape[3], to, padded(t.shape[3]));
  });
}

// step(i, tile) for each of `count` units and each tile of keys that it sees, the keys in order; k and v then hold
// them.
template <class A, class F>
HWY_INLINE void for_key_tiles(const A& a, const KeyHead& head, const Unit* units, int64_t count, float* k, float* v,
                              F&& step) {
  const Unit& last = units[count - 1];
  const int64_t end = head.window.end(last.first + last.count - 1);
  for (int64_t key = head.window.begin(units[0].first) / kTile * kTile; key < end; key += kTile) {
    const int64_t keys = std::min(kTile, head.sequence.keys - key);
    load_rows(a.k, head.sequence.batch, head.index, head.sequence.first_key + key, keys, k);
    load_rows(a.v, head.sequence.batch, head.index, head.sequence.first_key + key, keys, v);
    for (int64_t i = 0; i < count; ++i)
      if (head.sees(units[i], key, keys)) step(i, head.tile(units[i], key, keys));
  }
}

// to[column][row] = from[row][column], a row of `to` being kTile long; zeros beyond the last row.
void transpose(const float* from, int64_t stride, int64_t rows, int64_t columns, float* to) {
  for (int64_t c = 0; c < columns; ++c) {
    for (int64_t r = 0; r < rows; ++r) to[c * kTile + r] = from[r * stride + c];
    std::fill(to + c * kTile + rows, to + (c + 1) * kTile, 0.0f);
  }
}

// f(at) for every place of one row of a [batch, heads, seq, width] tensor, stored.
template <class F>
void store_row(const tc_tensor& t, int64_t batch, int64_t head, int64_t row, F&& f) {
  with_type(FloatTypes{}, t.dtype, [&]<class T>() HWY_ATTR {
    T* to = static_cast<T*>(t.data) + batch * t.stride[0] + head * t.stride[1] + row * t.stride[2];
    for_row(t.shape[3], [&](auto at) HWY_ATTR { at.store(to, f(at)); });
  });
}

// Where query `row` has its value in a [batch, heads, seq] tensor of f32.
float* value_at(const tc_tensor& t, int64_t batch, int64_t head, int64_t row) {
  return static_cast<float*>(t.data) + batch * t.stride[0] + head * t.stride[1] + row * t.stride[2];
}

// ---------------------------------------------------------------- from q.k to the exponent

// 2^x for x <= 0, 1.1 ulp; 0 below the smallest normal number, so that the -inf of a key that is not seen is exactly 0.
// NaN stays.
HWY_INLINE V weight(V x) {
  const V lowest = set(-126.0f), shift = set(0x1.8p23f + 127);  // an ulp of 1: adding it rounds to an integer
  const V bounded = at_least(x, lowest);
  const V shifted = hn::Add(bounded, shift);
  const V f = hn::Sub(bounded, hn::Sub(shifted, shift));
  const V scale = power_of_two(hn::BitCast(U32(), shifted));
  // 2^f = 1 + f p(f) for |f| <= 1/2: minimax, 2^-28.
  const V p =
      polynomial(f, 0x1.62e43p-1f, 0x1.ebfbdcp-3f, 0x1.c6af7cp-5f, 0x1.3b2dep-7f, 0x1.5f082ep-10f, 0x1.416b56p-13f);
  return hn::IfThenZeroElse(hn::Lt(x, lowest), hn::MulAdd(hn::Mul(f, scale), p, scale));
}

// f(q) for every vector of queries: lanes q, q + 1, ...
template <class F>
HWY_INLINE void for_lanes(const Tile& tile, F&& f) {
  for (int64_t q = 0; q < tile.queries; q += lanes()) f(q);
}

// f(i) for every vector of scores of a tile, i being its offset.
template <class F>
HWY_INLINE void for_scores(const Tile& tile, F&& f) {
  for (int64_t k = 0; k < tile.keys; ++k)
    for (int64_t q = 0; q < tile.queries; q += lanes()) f(k * kTile + q);
}

// Where the element of a mask or a bias for query q and key 0 of a tile is; a dimension of extent 1 broadcasts.
struct PairRow {
  int64_t offset, key_stride;
};
inline PairRow pair_row(const tc_tensor& t, const Tile& tile, int64_t q) {
  const auto stride = [&](int i) { return t.shape[i] == 1 ? 0 : t.stride[i]; };
  return {tile.batch * stride(0) + tile.head * stride(1) + (tile.query + q) * stride(2) + tile.key * stride(3),
          stride(3)};
}

// One element of a float tensor, whatever its dtype.
inline float element(const tc_tensor& t, int64_t offset) {
  float value = 0;
  with_type(FloatTypes{}, t.dtype,
            [&]<class T>() { value = static_cast<float>(static_cast<const T*>(t.data)[offset]); });
  return value;
}

// Everything between q.k and the exponent, for either pass.
class Scoring {
 public:
  template <class A>
  Scoring(const A& a, const Extents& e)
      : mask_(a.mask),
        bias_(a.bias),
        slopes_(a.alibi_slopes),
        e_(e),
        softcap_(static_cast<float>(a.softcap)),
        dropout_(a.dropout),
        seed_(static_cast<uint64_t>(a.seed)),
        plain_(a.softcap == 0 && !given(a.bias) && !given(a.alibi_slopes)),
        scale_(a.scale > 0 ? a.scale : 1 / std::sqrt(static_cast<double>(e.head_dim))) {}

  bool capped() const { return softcap_ > 0; }
  bool drops() const { return dropout_ > 0; }
  float scale() const { return static_cast<float>(scale_); }
  // What multiplies a score in e^x, and in 2^x: the scale, unless z has it already.
  double factor() const { return plain_ ? scale_ : 1; }
  float exponent() const { return static_cast<float>(factor() * kLog2E); }

  // q.k becomes z, unless it is plain; a pair that is not seen becomes -inf. dcap, if asked for, takes dz / d(scale s).
  void apply(const Window& w, const Tile& t, float* scores, float* dcap) const {
    if (!plain_) to_z(w, t, scores, dcap);
    const bool sees_all =
        w.begin(t.local_query + t.queries - 1) <= t.local_key && w.end(t.local_query) >= t.local_key + t.keys;
    if (!sees_all) hide_outside(w, t, scores);
    if (given(mask_)) hide_masked(t, scores);
  }

  // Whether neither mask nor bias lets query q of a tile see any of the tile's keys.
  bool hides_all(const Tile& t, int64_t q) const {
    bool seen = !given(mask_) && !given(bias_);
    for (int64_t k = 0; k < t.keys && !seen; ++k) {
      seen = !given(mask_) || mask_of(t, q)[k * pair_row(mask_, t, q).key_stride] != 0;
      const PairRow bias = pair_row(bias_, t, q);
      if (seen && given(bias_)) seen = element(bias_, bias.offset + k * bias.key_stride) > -kInfinity;
    }
    return !seen;
  }

  // |position of query q - key k|, for the queries in the lanes from q on.
  HWY_INLINE V distance(const Window& w, const Tile& t, int64_t q, int64_t k) const {
    const auto first = static_cast<float>(t.local_query + w.offset - t.local_key);
    return hn::Abs(hn::Add(set(first), hn::Iota(F32(), static_cast<float>(q - k))));
  }

  // What dropout makes of each probability: 0 or 1 / (1 - dropout).
  void keep(const Tile& t, float* kept) const {
    const Philox philox{seed_};
    const auto whole = static_cast<float>(1 / (1 - dropout_));
    for (int64_t q = 0; q < t.queries; ++q) {
      const int64_t row = (t.batch * e_.heads + t.head) * e_.seq_q + t.query + q;
      uint32_t words[4] = {};
      for (int64_t k = 0; k < t.keys; ++k) {
        const int64_t key = t.key + k;
        if (k == 0 || key % 4 == 0) {
          const Words4 w = philox(static_cast<uint64_t>(row * ((e_.seq_k + 3) / 4) + key / 4));
          words[0] = w.x, words[1] = w.y, words[2] = w.z, words[3] = w.w;
        }
        kept[k * kTile + q] = static_cast<double>(uniform01(words[key % 4])) < dropout_ ? 0 : whole;
      }
    }
  }

 private:
  const uint8_t* mask_of(const Tile& t, int64_t q) const {
    return static_cast<const uint8_t*>(mask_.data) + pair_row(mask_, t, q).offset;
  }

  void to_z(const Window& w, const Tile& t, float* scores, float* dcap) const {
    const float slope = given(slopes_) ? element(slopes_, t.head) : 0;
    for_lanes(t, [&](int64_t q) HWY_ATTR {
      for (int64_t k = 0; k < t.keys; ++k) {
        float* const s = scores + k * kTile + q;
        V z = hn::Mul(load(s), set(scale()));
        if (capped()) {
          const V tanh_z = tanh(hn::Div(z, set(softcap_)));
          z = hn::Mul(tanh_z, set(softcap_));
          if (dcap) store(dcap + k * kTile + q, hn::NegMulAdd(tanh_z, tanh_z, set(1)));
        }
        if (given(slopes_)) z = hn::NegMulAdd(set(slope), distance(w, t, q, k), z);
        store(s, z);
      }
    });
    if (given(bias_)) add_bias(t, scores);
  }

  void add_bias(const Tile& t, float* scores) const {
    with_type(FloatTypes{}, bias_.dtype, [&]<class T>() {
      for (int64_t q = 0; q < t.queries; ++q) {
        const PairRow row = pair_row(bias_, t, q);
        const T* bias = static_cast<const T*>(bias_.data) + row.offset;
        for (int64_t k = 0; k < t.keys; ++k) scores[k * kTile + q] += static_cast<float>(bias[k * row.key_stride]);
      }
    });
  }

  void hide_masked(const Tile& t, float* scores) const {
    for (int64_t q = 0; q < t.queries; ++q) {
      const uint8_t* mask = mask_of(t, q);
      const int64_t stride = pair_row(mask_, t, q).key_stride;
      for (int64_t k = 0; k < t.keys; ++k)
        if (mask[k * stride] == 0) scores[k * kTile + q] = -kInfinity;
    }
  }

  static void hide_outside(const Window& w, const Tile& t, float* scores) {
    float begin[kTile] = {}, end[kTile] = {};
    for (int64_t q = 0; q < t.queries; ++q) {
      const auto local = [&](int64_t key) {
        return static_cast<float>(std::clamp<int64_t>(key - t.local_key, 0, t.keys));
      };
      begin[q] = local(w.begin(t.local_query + q));
      end[q] = local(w.end(t.local_query + q));
    }
    for_lanes(t, [&](int64_t q) HWY_ATTR {
      for (int64_t k = 0; k < t.keys; ++k) {
        const V key = set(static_cast<float>(k));
        const auto seen = hn::And(hn::Ge(key, load(begin + q)), hn::Lt(key, load(end + q)));
        float* const s = scores + k * kTile + q;
        store(s, hn::IfThenElse(seen, load(s), set(-kInfinity)));
      }
    });
  }

  const tc_tensor &mask_, &bias_, &slopes_;
  const Extents& e_;
  const float softcap_;
  const double dropout_;
  const uint64_t seed_;
  const bool plain_;  // scores stay q.k, and the scale is left to the exponent
  const double scale_;
};

}  // namespace
}  // namespace tc::ops::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // TRAINCORE_OPS_ATTENTION_SCORES_INL_H_
