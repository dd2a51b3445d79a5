// Counter-based random numbers, the same bits on CPU and GPU: Philox4x32-10.
// Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#pragma once
#include "traincore/core/numeric.h"

namespace tc {

struct Words4 {
  uint32_t x, y, z, w;
};

// 128 random bits as a pure function of (seed, stream, counter): no state, so any element can be made by any thread.
struct Philox {
  static constexpr int kRounds = 10;
  static constexpr uint32_t kMultiplyX = 0xD2511F53u, kMultiplyZ = 0xCD9E8D57u, kKeyX = 0x9E3779B9u,
                            kKeyY = 0xBB67AE85u;

  uint64_t seed;
  uint64_t stream = 0;

  TC_HD constexpr Words4 operator()(uint64_t counter) const {
    Words4 c{uint32_t(counter), uint32_t(counter >> 32), uint32_t(stream), uint32_t(stream >> 32)};
    uint32_t k0 = uint32_t(seed), k1 = uint32_t(seed >> 32);
    for (int round = 0; round < kRounds; ++round) {
      const uint64_t a = uint64_t(kMultiplyX) * c.x, b = uint64_t(kMultiplyZ) * c.z;
      c = {uint32_t(b >> 32) ^ c.y ^ k0, uint32_t(b), uint32_t(a >> 32) ^ c.w ^ k1, uint32_t(a)};
      k0 += kKeyX;
      k1 += kKeyY;
    }
    return c;
  }

  // 32 random bits for element `index` of a tensor: word index % 4 of counter index / 4.
  TC_HD constexpr uint32_t word(uint64_t index) const {
    const Words4 w = (*this)(index / 4);
    const uint32_t words[4] = {w.x, w.y, w.z, w.w};
    return words[index % 4];
  }
};

// In (0, 1): the 23 high bits, centred in their cell, so 0 and 1 never occur (with 24 bits the last cell rounds to 1).
TC_HD constexpr float uniform01(uint32_t word) { return (float(word >> 9) + 0.5f) * 0x1p-23f; }

}  // namespace tc
