// One seed serves a whole run: each use of random numbers has a stream of its own, so no two ever share numbers.
#pragma once
#include "traincore/core/random.h"

namespace tc::train {

enum class RandomUse : uint64_t { initial_weights = 1, shuffle = 2, sampling = 3 };

// `number` (below 2^56) tells the streams of one use apart: the tensor, the epoch, the text.
constexpr Philox random_for(uint64_t seed, RandomUse use, int64_t number) {
  return {seed, static_cast<uint64_t>(use) << 56 | static_cast<uint64_t>(number)};
}

}  // namespace tc::train
