// The words of core/random.h in bulk, for the SIMD target this file is being compiled for: the same bits on every
// target, and the same as Philox::word one at a time.
#if defined(TRAINCORE_CPU_PHILOX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRAINCORE_CPU_PHILOX_INL_H_
#undef TRAINCORE_CPU_PHILOX_INL_H_
#else
#define TRAINCORE_CPU_PHILOX_INL_H_
#endif

#include "traincore/core/random.h"
#include "traincore/cpu/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tc::HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR  // one lane, and no wide products

HWY_INLINE void philox_block(const Philox& philox, uint64_t counter, uint32_t* words) {
  const Words4 made = philox(counter);
  words[0] = made.x, words[1] = made.y, words[2] = made.z, words[3] = made.w;
}

#else

struct Product64 {
  hn::Vec<U32> high, low;
};
// Both halves of every lane's 64-bit product with b.
HWY_INLINE Product64 multiply_wide(hn::Vec<U32> a, uint32_t b) {
  const U32 u;
  const hn::Repartition<uint64_t, U32> wide;
  const auto factor = hn::Set(u, b);
  const auto even = hn::MulEven(a, factor);
  const auto odd = hn::MulEven(hn::BitCast(u, hn::ShiftRight<32>(hn::BitCast(wide, a))), factor);
  return {hn::OddEven(hn::BitCast(u, odd), hn::BitCast(u, hn::ShiftRight<32>(even))),
          hn::OddEven(hn::BitCast(u, hn::ShiftLeft<32>(odd)), hn::BitCast(u, even))};
}

// philox(counter + lane) for every lane, four words each, in the order of counters.
HWY_INLINE void philox_block(const Philox& philox, uint64_t counter, uint32_t* words) {
  const U32 u;
  const auto first = hn::Set(u, static_cast<uint32_t>(counter));
  auto x = hn::Add(first, hn::Iota(u, 0));
  auto y = hn::Set(u, static_cast<uint32_t>(counter >> 32));
  y = hn::Sub(y, hn::VecFromMask(u, hn::Lt(x, first)));  // a carry: true is -1
  auto z = hn::Set(u, static_cast<uint32_t>(philox.stream));
  auto w = hn::Set(u, static_cast<uint32_t>(philox.stream >> 32));
  auto key_x = static_cast<uint32_t>(philox.seed), key_y = static_cast<uint32_t>(philox.seed >> 32);
  for (int round = 0; round < Philox::kRounds; ++round) {
    const Product64 a = multiply_wide(x, Philox::kMultiplyX);
    const Product64 b = multiply_wide(z, Philox::kMultiplyZ);
    x = hn::Xor(hn::Xor(b.high, y), hn::Set(u, key_x));
    y = b.low;
    z = hn::Xor(hn::Xor(a.high, w), hn::Set(u, key_y));
    w = a.low;
    key_x += Philox::kKeyX;
    key_y += Philox::kKeyY;
  }
  hn::StoreInterleaved4(x, y, z, w, u, words);
}

#endif

// How many words beyond n a buffer for n of them must hold: whole blocks are made.
constexpr int64_t kPhiloxSlack = 4 * hn::MaxLanes(F32()) + 3;

// philox.word(first), ... philox.word(first + n - 1); the buffer has room for n + kPhiloxSlack.
HWY_INLINE const uint32_t* philox_words(const Philox& philox, uint64_t first, int64_t n, uint32_t* buffer) {
  const auto skipped = static_cast<int64_t>(first % 4);
  for (int64_t made = 0; made < skipped + n; made += 4 * lanes())
    philox_block(philox, first / 4 + static_cast<uint64_t>(made / 4), buffer + made);
  return buffer + skipped;
}

}  // namespace tc::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // TRAINCORE_CPU_PHILOX_INL_H_
