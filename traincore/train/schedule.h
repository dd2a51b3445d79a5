// The learning rate: a linear warm-up, then half a cosine down to the smallest rate.
#pragma once
#include <cmath>
#include <numbers>

#include "traincore/train/config.h"

namespace tc::train {

// Of step 0, 1, ..., steps - 1. It rises to lr at step warmup - 1, and for u = (step - warmup) / (steps - warmup) in
// [0, 1) is
//   min_lr + (lr - min_lr) (1 + cos(pi u)) / 2;   from `steps` on it stays min_lr.
inline double learning_rate(const OptimConfig& optim, int64_t steps, int64_t step) {
  if (step < optim.warmup) return optim.lr * static_cast<double>(step + 1) / static_cast<double>(optim.warmup);
  if (step >= steps) return optim.min_lr;
  const double u = static_cast<double>(step - optim.warmup) / static_cast<double>(steps - optim.warmup);
  return optim.min_lr + (optim.lr - optim.min_lr) * 0.5 * (1 + std::cos(std::numbers::pi * u));
}

}  // namespace tc::train
