// CPU kernels of random: compiled once per SIMD target, the best one is chosen at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "traincore/ops/random/cpu.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include <cmath>
#include <numbers>

#include "traincore/cpu/elements.h"
#include "traincore/cpu/math-inl.h"
#include "traincore/cpu/philox-inl.h"
#include "traincore/ops/random/random.h"

HWY_BEFORE_NAMESPACE();
namespace tc::ops::random::HWY_NAMESPACE {
namespace {

using namespace tc::HWY_NAMESPACE;  // NOLINT(google-build-using-namespace): the SIMD vocabulary of this target

using Words = hn::Vec<U32>;

// uniform01 of core/random.h, with the same bits.
HWY_INLINE V uniform(Words words) {
  const V cell = hn::ConvertTo(F32(), hn::BitCast(I32(), hn::ShiftRight<9>(words)));
  return hn::Mul(hn::Add(cell, set(0.5f)), set(0x1p-23f));
}

// Q(tail) >= 0 for a tail in (0, 1/2]: PPND7 of AS 241, relative error 1e-7 before rounding.
HWY_INLINE V upper_quantile(V tail) {
  const V q = hn::Sub(set(0.5f), tail);
  const V r = hn::NegMulAdd(q, q, set(0.180625f));
  const V central = hn::Div(hn::Mul(q, polynomial(r, 3.3871327179f, 50.434271938f, 159.29113202f, 59.109374720f)),
                            polynomial(r, 1.0f, 17.895169469f, 78.757757664f, 67.187563600f));
  const V s = hn::Sub(hn::Sqrt(hn::Neg(log(tail))), set(1.6f));
  const V outer = hn::Div(polynomial(s, 1.4234372777f, 2.7568153900f, 1.3067284816f, 0.17023821103f),
                          polynomial(s, 1.0f, 0.73700164250f, 0.12021132975f));
  return hn::IfThenElse(hn::Le(q, set(0.425f)), central, outer);
}

// A standard normal number; `beyond` is the probability that truncation cuts off on each side.
HWY_INLINE V normal(Words words, float beyond) {
  const U32 u;
  const auto magnitude = hn::And(words, hn::Set(u, 0x7fffffff));
  const V half_law = hn::Mul(hn::Add(hn::ConvertTo(F32(), hn::BitCast(I32(), magnitude)), set(0.5f)), set(0x1p-32f));
  const V z = upper_quantile(hn::MulAdd(half_law, set(1 - 2 * beyond), set(beyond)));
  return hn::BitCast(F32(), hn::Or(hn::BitCast(u, z), hn::AndNot(hn::Set(u, 0x7fffffff), words)));
}

// y[i] = value(words of the elements around i), for every element of y.
template <class F>
void generate(const tcx_random_args& a, const tc_exec& exec, F&& value) {
  const Elements y(a.y);
  const Philox philox{static_cast<uint64_t>(a.seed), static_cast<uint64_t>(a.stream)};
  parallel_chunks(y.count(), exec.threads, [&](int64_t first, int64_t n) HWY_ATTR {
    alignas(64) float scratch[Elements::kChunk];
    alignas(64) uint32_t buffer[Elements::kChunk + kPhiloxSlack];
    const uint32_t* const words = philox_words(philox, static_cast<uint64_t>(a.first_index + first), n, buffer);
    float* const values = y.place(first, n, scratch);
    for_row(n, [&](auto at) HWY_ATTR { at.store(values, value(hn::LoadU(U32(), words + at.i))); });
    y.write(first, n, values);
  });
}

void random(const tcx_random_args& a, const tc_exec& exec) {
  if (a.distribution == TC_RANDOM_UNIFORM) {
    const V low = set(static_cast<float>(a.low)), width = set(static_cast<float>(a.high - a.low));
    generate(a, exec, [=](Words w) HWY_ATTR { return hn::Add(low, hn::Mul(width, uniform(w))); });
  } else if (a.distribution == TC_RANDOM_NORMAL) {
    const double beyond = a.truncate > 0 ? 0.5 * std::erfc(a.truncate / std::numbers::sqrt2) : 0;
    const V mean = set(static_cast<float>(a.mean)), deviation = set(static_cast<float>(a.std));
    const auto cut = static_cast<float>(beyond);
    generate(a, exec, [=](Words w) HWY_ATTR { return hn::Add(mean, hn::Mul(deviation, normal(w, cut))); });
  } else {
    const V probability = set(static_cast<float>(a.probability));
    generate(a, exec, [=](Words w) HWY_ATTR { return hn::IfThenElseZero(hn::Lt(uniform(w), probability), set(1)); });
  }
}

}  // namespace
}  // namespace tc::ops::random::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tc::ops::random {

HWY_EXPORT(random);
void random_cpu(const tcx_random_args& a, const tc_exec& exec) { HWY_DYNAMIC_DISPATCH(random)(a, exec); }

}  // namespace tc::ops::random
#endif
