// Which variant of add serves a call.
#pragma once
#include "traincore/core/view.h"
#include "traincore/ops/add/add.h"

namespace tc::ops::add {

// One loop on one storage type needs a, b and y dense and of one dtype; the rest passes through f32 chunks.
inline bool is_uniform(const tcx_add_args& args) {
  const auto fits = [&](const tc_tensor& t) { return t.dtype == args.y.dtype && is_dense(t); };
  return fits(args.a) && fits(args.b) && fits(args.y);
}

}  // namespace tc::ops::add
