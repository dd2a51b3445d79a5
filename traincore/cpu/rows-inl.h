// Loads, stores, traversals and sums over one row, for the SIMD target this file is being compiled for. A kernel says
// its maths once, as a lambda over a place in the row, and it runs on whole vectors and on the tail alike:
//
//   for_row(cols, [&](auto at) HWY_ATTR { at.store(y, hn::Mul(at.load(x), hn::Mul(r, at.load(w)))); });
//   const float dot = sum_row(cols, [&](auto at) HWY_ATTR { return hn::Mul(at.load(x), at.load(w)); });
//
// at.load and at.store take the start of any row of float, bf16 or f16 and convert; at.i is the element at lane 0.
// map_row does the same for outputs that are one expression each, faster: 16-bit elements are stored by the full vector,
// and large outputs past the caches.
// Nothing beyond element n - 1 is read or written. y may be x: a place is read before it is written.
#if defined(TRAINCORE_CPU_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRAINCORE_CPU_ROWS_INL_H_
#undef TRAINCORE_CPU_ROWS_INL_H_
#else
#define TRAINCORE_CPU_ROWS_INL_H_
#endif

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <type_traits>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "traincore/core/numeric.h"

HWY_BEFORE_NAMESPACE();
namespace tc::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using F32 = hn::ScalableTag<float>;
using U32 = hn::RebindToUnsigned<F32>;
using I32 = hn::RebindToSigned<F32>;
using U16 = hn::Rebind<uint16_t, F32>;     // as many lanes as F32
using Wide16 = hn::ScalableTag<uint16_t>;  // a full vector
using V = hn::Vec<F32>;

HWY_INLINE V set(float value) { return hn::Set(F32(), value); }
HWY_INLINE int64_t lanes() { return static_cast<int64_t>(hn::Lanes(F32())); }

// ---------------------------------------------------------------- conversions between storage bits and float lanes

HWY_INLINE V widen(bf16, hn::Vec<U16> bits) {
  return hn::BitCast(F32(), hn::ShiftLeft<16>(hn::PromoteTo(U32(), bits)));
}

// x86 from AVX2 on converts f16 in hardware, exactly as numeric.h does; the others follow numeric.h step by step.
#if HWY_TARGET <= HWY_AVX2
HWY_INLINE V widen(f16, hn::Vec<U16> bits) {
  V v = hn::PromoteTo(F32(), hn::BitCast(hn::Rebind<hwy::float16_t, F32>(), bits));
#if HWY_COMPILER_CLANG
  // Clang sees through the conversion and would move comparisons of v to half precision, emulated lane by lane.
  asm("" : "+v"(v.raw));
#endif
  return v;
}
#else
HWY_INLINE V widen(f16, hn::Vec<U16> bits) {
  const U32 u;
  const auto wide = hn::PromoteTo(u, bits);
  const auto magnitude = hn::ShiftLeft<13>(hn::And(wide, hn::Set(u, 0x7fff)));
  // The exponent bias differs by 112; the product is exact and normalises subnormals.
  const auto finite = hn::BitCast(u, hn::Mul(hn::BitCast(F32(), magnitude), set(0x1p112f)));
  const auto special = hn::Or(magnitude, hn::Set(u, 0x7f800000));
  const auto quiet = hn::Or(special, hn::Set(u, 0x00400000));
  const auto infinity = hn::Set(u, 0x7c00u << 13);
  const auto value =
      hn::IfThenElse(hn::Eq(magnitude, infinity), special, hn::IfThenElse(hn::Gt(magnitude, infinity), quiet, finite));
  return hn::BitCast(F32(), hn::Or(value, hn::ShiftLeft<16>(hn::And(wide, hn::Set(u, 0x8000)))));
}
#endif

// Keeps the low half of every lane; the high halves are zero.
HWY_INLINE hn::Vec<U16> low_halves(hn::Vec<U32> v) { return hn::DemoteTo(U16(), hn::BitCast(I32(), v)); }

// v rounded to bf16, whose bits are the high half of every lane; the low half is arbitrary.
HWY_INLINE hn::Vec<U32> round_number_to_bf16(V v) {
  const U32 u;
  const auto bits = hn::BitCast(u, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(u, 1));
  return hn::Add(bits, hn::Add(odd, hn::Set(u, 0x7fff)));
}
HWY_INLINE hn::Vec<U32> round_to_bf16(V v) {
  const U32 u;
  const auto quiet = hn::Or(hn::BitCast(u, v), hn::Set(u, 0x00400000));
  return hn::IfThenElse(hn::RebindMask(u, hn::IsNaN(v)), quiet, round_number_to_bf16(v));
}
HWY_INLINE hn::Vec<U16> narrow(bf16, V v) { return low_halves(hn::ShiftRight<16>(round_to_bf16(v))); }

#if HWY_TARGET <= HWY_AVX2
HWY_INLINE hn::Vec<U16> narrow(f16, V v) {
  return hn::BitCast(U16(), hn::DemoteTo(hn::Rebind<hwy::float16_t, F32>(), v));
}
#else
HWY_INLINE hn::Vec<U16> narrow(f16, V v) {
  const U32 u;
  const auto bits = hn::BitCast(u, v);
  const auto a = hn::And(bits, hn::Set(u, 0x7fffffff));
  const auto sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(u, 0x8000));
  const auto odd = hn::And(hn::ShiftRight<13>(a), hn::Set(u, 1));
  const auto normal = hn::ShiftRight<13>(hn::Sub(hn::Add(a, hn::Add(odd, hn::Set(u, 0xfff))), hn::Set(u, 0x38000000)));
  // Below 2^-14 the last bit of 0.5f is that of a subnormal, so the sum rounds right.
  const auto sum = hn::BitCast(u, hn::Add(hn::BitCast(F32(), a), set(0.5f)));
  const auto subnormal = hn::Sub(sum, hn::Set(u, 0x3f000000));
  const auto finite = hn::IfThenElse(hn::Lt(a, hn::Set(u, 0x38800000)), subnormal, normal);
  const auto bounded = hn::IfThenElse(hn::Gt(a, hn::Set(u, 0x477fefff)), hn::Set(u, 0x7c00), finite);
  const auto quiet = hn::Or(hn::Set(u, 0x7e00), hn::And(hn::ShiftRight<13>(a), hn::Set(u, 0x1ff)));
  const auto value = hn::IfThenElse(hn::Gt(a, hn::Set(u, 0x7f800000)), quiet, bounded);
  return low_halves(hn::Or(sign, value));
}
#endif

#if HWY_TARGET != HWY_SCALAR  // whose vectors are one element
// Two vectors as one full vector of 16-bit elements. NaN is rare, so one test of both is cheaper than a selection.
HWY_INLINE hn::Vec<Wide16> high_halves(hn::Vec<U32> low, hn::Vec<U32> high) {
  return hn::ConcatOdd(Wide16(), hn::BitCast(Wide16(), high), hn::BitCast(Wide16(), low));
}
HWY_INLINE hn::Vec<Wide16> narrow(bf16, V low, V high) {
  if (HWY_LIKELY(hn::AllFalse(F32(), hn::IsNaN(hn::Add(low, high)))))
    return high_halves(round_number_to_bf16(low), round_number_to_bf16(high));
  return high_halves(round_to_bf16(low), round_to_bf16(high));
}
HWY_INLINE hn::Vec<Wide16> narrow(f16, V low, V high) {
  return hn::Combine(Wide16(), narrow(f16(), high), narrow(f16(), low));
}
#endif

// v as it would be read back from storage in T.
template <class T>
HWY_INLINE V rounded(V v) {
  if constexpr (std::is_same_v<T, float>)
    return v;
  else if constexpr (std::is_same_v<T, bf16>)
    return hn::BitCast(F32(), hn::And(round_to_bf16(v), hn::Set(U32(), 0xffff0000u)));
  else
    return widen(T(), narrow(T(), v));
}

// ---------------------------------------------------------------- one vector of a row

HWY_INLINE V load(const float* p) { return hn::LoadU(F32(), p); }
HWY_INLINE void store(float* p, V v) { hn::StoreU(v, F32(), p); }

template <class T>
HWY_INLINE V load(const T* p) {
  return widen(T(), hn::LoadU(U16(), &p->bits));
}
template <class T>
HWY_INLINE void store(T* p, V v) {
  hn::StoreU(narrow(T(), v), U16(), &p->bits);
}

// Whether a masked load or store of T leaves the lanes that are off untouched.
template <class T>
constexpr bool kMaskedAccess = HWY_TARGET <= HWY_AVX3 || (HWY_TARGET == HWY_AVX2 && sizeof(T) == 4);

// n < 2 kStep elements, in pieces of kStep, kStep / 2, ..., 1.
template <size_t kStep, class T>
HWY_INLINE void copy_pieces(const T* from, size_t n, T* to) {
  if constexpr (kStep > 0) {
    const size_t piece = n & kStep;
    if (piece) std::memcpy(to, from, kStep * sizeof(T));
    copy_pieces<kStep / 2>(from + piece, n, to + piece);
  }
}

// The first n elements, 1 <= n <= lanes(); the lanes beyond read as 0.
template <class T>
HWY_INLINE V load_n(const T* p, int64_t n) {
  if (n == lanes()) return load(p);
  if constexpr (!kMaskedAccess<T>) {
    constexpr size_t kLanes = hn::MaxLanes(F32());
    T buffer[kLanes] = {};
    copy_pieces<kLanes / 2>(p, n, buffer);
    return load(buffer);
  } else if constexpr (sizeof(T) == 4) {
    return hn::MaskedLoad(hn::FirstN(F32(), n), F32(), p);
  } else {
    return widen(T(), hn::MaskedLoad(hn::FirstN(U16(), n), U16(), &p->bits));
  }
}

// Writes the first n elements, 1 <= n <= lanes(), and nothing else.
template <class T>
HWY_INLINE void store_n(T* p, V v, int64_t n) {
  if (n == lanes()) return store(p, v);
  if constexpr (!kMaskedAccess<T>) {
    constexpr size_t kLanes = hn::MaxLanes(F32());
    T buffer[kLanes];
    store(buffer, v);
    copy_pieces<kLanes / 2>(buffer, n, p);
  } else if constexpr (sizeof(T) == 4) {
    hn::BlendedStore(v, hn::FirstN(F32(), n), F32(), p);
  } else {
    hn::BlendedStore(narrow(T(), v), hn::FirstN(U16(), n), U16(), &p->bits);
  }
}

// A place in a row: lanes() elements from i on.
struct Full {
  int64_t i;
  template <class T>
  HWY_INLINE V load(const T* row) const {
    return HWY_NAMESPACE::load(row + i);
  }
  template <class T>
  HWY_INLINE void store(T* row, V v) const {
    HWY_NAMESPACE::store(row + i, v);
  }
  // Asks for what a later traversal reads there; the row may end before it.
  template <class T>
  HWY_INLINE void prefetch(const T* row) const {
    hwy::Prefetch(row + i);
  }
  HWY_INLINE V select(V v, V) const { return v; }
  HWY_INLINE V keep(V v) const { return v; }
};

// The last place in a row: n <= lanes() elements from i on.
struct Partial {
  int64_t i, n;
  template <class T>
  HWY_INLINE V load(const T* row) const {
    return load_n(row + i, n);
  }
  template <class T>
  HWY_INLINE void store(T* row, V v) const {
    store_n(row + i, v, n);
  }
  template <class T>
  HWY_INLINE void prefetch(const T*) const {}
  // v where there are elements, `otherwise` in the lanes beyond the row.
  HWY_INLINE V select(V v, V otherwise) const { return hn::IfThenElse(hn::FirstN(F32(), n), v, otherwise); }
  // v where there are elements, 0 in the lanes beyond the row.
  HWY_INLINE V keep(V v) const { return hn::IfThenElseZero(hn::FirstN(F32(), n), v); }
};

// Over the lanes of one vector. max_of_lanes does not propagate NaN: max_row does.
HWY_INLINE float sum_of_lanes(V v) { return hn::GetLane(hn::SumOfLanes(F32(), v)); }
HWY_INLINE float max_of_lanes(V v) {
  if constexpr (HWY_TARGET == HWY_EMU128) {  // its MaxOfLanes starts from the lowest finite float and loses -inf
    float lane[hn::MaxLanes(F32())];
    store(lane, v);
    return *std::max_element(lane, lane + lanes());
  } else {
    return hn::GetLane(hn::MaxOfLanes(F32(), v));
  }
}

// ---------------------------------------------------------------- whole rows

// f(at) for every vector of the elements [begin, end) of a row, in order.
template <class F>
HWY_INLINE HWY_FLATTEN void for_row(int64_t begin, int64_t end, F&& f) {
  const int64_t step = lanes();
  int64_t i = begin;
  for (; i + step <= end; i += step) f(Full{i});
  if (i < end) f(Partial{i, end - i});
}
template <class F>
HWY_INLINE HWY_FLATTEN void for_row(int64_t n, F&& f) {
  for_row(0, n, f);
}

// The vectors that as many elements of T as fill one make in f32, to p; past the caches if `streamed`, and p is then
// aligned to a vector.
template <class T>
constexpr int kVectors = HWY_TARGET == HWY_SCALAR ? 1 : sizeof(float) / sizeof(T);
HWY_INLINE void store_vectors(float* p, const std::array<V, 1>& v, bool streamed) {
  streamed ? hn::Stream(v[0], F32(), p) : hn::StoreU(v[0], F32(), p);
}
template <class T, size_t N>
HWY_INLINE void store_vectors(T* p, const std::array<V, N>& v, bool streamed) {
#if HWY_TARGET == HWY_SCALAR
  (void)streamed;
  store(p, v[0]);
#else
  const auto bits = narrow(T(), v[0], v[1]);
  streamed ? hn::Stream(bits, Wide16(), &p->bits) : hn::StoreU(bits, Wide16(), &p->bits);
#endif
}
template <class T>
HWY_INLINE int64_t elements_to_boundary(const T* p) {
  const auto bytes = static_cast<uintptr_t>(lanes() * static_cast<int64_t>(sizeof(float)));
  return static_cast<int64_t>(-reinterpret_cast<uintptr_t>(p) % bytes / sizeof(T));
}

// out[k][i] = f(i)[k] for the elements [begin, end) of a row and K outputs: f(at) returns std::array<V, K>. If
// `streamed`, outputs go past the caches (cpu/streaming.h says when), those that are aligned as out[0] is.
template <size_t K, class T, class F>
HWY_INLINE HWY_FLATTEN void map_row(int64_t begin, int64_t end, std::array<T*, K> out, bool streamed, F f) {
  const int64_t step = kVectors<T> * lanes();
  const int64_t head = streamed ? std::min(end, begin + elements_to_boundary(out[0] + begin)) : begin;
  std::array<bool, K> past;
  for (size_t k = 0; k < K; ++k) past[k] = streamed && elements_to_boundary(out[k] + head) == 0;
  int64_t i = begin;
  for (int64_t stop = head;; stop = end) {  // the elements before the first full vector, then those after the last
    for (; i < stop; i += lanes()) {
      const Partial at{i, std::min(lanes(), stop - i)};
      const std::array<V, K> values = f(at);
      for (size_t k = 0; k < K; ++k) at.store(out[k], values[k]);
    }
    if (stop == end) return;
    for (i = stop; i + step <= end; i += step) {
      std::array<std::array<V, kVectors<T>>, K> values;
      for (int way = 0; way < kVectors<T>; ++way) {
        const std::array<V, K> one = f(Full{i + way * lanes()});
        for (size_t k = 0; k < K; ++k) values[k][way] = one[k];
      }
      for (size_t k = 0; k < K; ++k) store_vectors(out[k] + i, values[k], past[k]);
    }
  }
}

// out[i] = f(i); as map_row of several.
template <class T, class F>
HWY_INLINE HWY_FLATTEN void map_row(int64_t begin, int64_t end, T* out, bool streamed, F f) {
  map_row<1, T>(begin, end, {out}, streamed, [=](auto at) HWY_ATTR HWY_FLATTEN { return std::array<V, 1>{f(at)}; });
}

// K sums in one pass: f(at) returns std::array<V, K>, the terms of each. The lanes beyond the row do not count,
// whatever f makes of them. The order depends on n and on the vector width alone. Errors do not grow with n: a block of
// kSumBlock elements is summed in f32 lanes, the blocks in double.
constexpr int64_t kSumBlock = 8192;

template <size_t K, class F>
HWY_INLINE HWY_FLATTEN std::array<float, K> sums_row(int64_t n, F&& f) {
  constexpr int kWays = K <= 2 ? 4 : 2;  // independent chains hide the latency of the addition
  const int64_t step = lanes();
  std::array<double, K> total = {};
  for (int64_t begin = 0; begin < n; begin += kSumBlock) {
    const int64_t end = std::min(n, begin + kSumBlock);
    V sum[kWays][K];
    for (auto& way : sum) std::fill(way, way + K, hn::Zero(F32()));
    int64_t i = begin;
    for (; i + kWays * step <= end; i += kWays * step) {
      for (int way = 0; way < kWays; ++way) {
        const std::array<V, K> terms = f(Full{i + way * step});
        for (size_t k = 0; k < K; ++k) sum[way][k] = hn::Add(sum[way][k], terms[k]);
      }
    }
    for (; i < end; i += step) {
      const Partial at{i, std::min(step, end - i)};
      const std::array<V, K> terms = f(at);
      for (size_t k = 0; k < K; ++k) sum[0][k] = hn::Add(sum[0][k], at.keep(terms[k]));
    }
    for (size_t k = 0; k < K; ++k) {
      for (int way = 1; way < kWays; ++way) sum[0][k] = hn::Add(sum[0][k], sum[way][k]);
      total[k] += sum_of_lanes(sum[0][k]);
    }
  }
  std::array<float, K> result;
  for (size_t k = 0; k < K; ++k) result[k] = static_cast<float>(total[k]);
  return result;
}

// The sum of the terms f(at); as sums_row.
template <class F>
HWY_INLINE HWY_FLATTEN float sum_row(int64_t n, F&& f) {
  return sums_row<1>(n, [&](auto at) HWY_ATTR HWY_FLATTEN { return std::array<V, 1>{f(at)}; })[0];
}

// The largest f(at); NaN if any is NaN, -inf if n is 0.
template <class F>
HWY_INLINE HWY_FLATTEN float max_row(int64_t n, F&& f) {
  constexpr int kWays = 4;
  const int64_t step = lanes();
  const V lowest = set(-std::numeric_limits<float>::infinity());
  V max[kWays] = {lowest, lowest, lowest, lowest};
  auto nan = hn::IsNaN(lowest);
  int64_t i = 0;
  for (; i + kWays * step <= n; i += kWays * step) {
    for (int way = 0; way < kWays; ++way) {
      const V v = f(Full{i + way * step});
      max[way] = hn::Max(max[way], v);
      nan = hn::Or(nan, hn::IsNaN(v));
    }
  }
  for (; i < n; i += step) {
    const Partial at{i, std::min(step, n - i)};
    const V v = at.select(f(at), lowest);
    max[0] = hn::Max(max[0], v);
    nan = hn::Or(nan, hn::IsNaN(v));
  }
  if (!hn::AllFalse(F32(), nan)) return std::numeric_limits<float>::quiet_NaN();
  return max_of_lanes(hn::Max(hn::Max(max[0], max[1]), hn::Max(max[2], max[3])));
}

}  // namespace tc::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // TRAINCORE_CPU_ROWS_INL_H_
