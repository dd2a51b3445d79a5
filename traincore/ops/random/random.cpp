// The front door of random: what its arguments are, what is checked, where it goes.
#include "traincore/ops/random/random.h"

#include "traincore/core/op.h"

namespace tc::ops::random {

using Args = tcx_random_args;

void random_cpu(const Args&, const tc_exec&);
void random_cuda(const Args&, const tc_exec&);

namespace {

constexpr Field fields[] = {
    out("y", offsetof(Args, y), "dims...", any_float),
    choice("distribution", offsetof(Args, distribution), "?|uniform|normal|bernoulli"),
    integer("seed", offsetof(Args, seed)),
    integer("stream", offsetof(Args, stream)),
    integer("first_index", offsetof(Args, first_index)),
    number("low", offsetof(Args, low)),
    number("high", offsetof(Args, high), 1),
    number("mean", offsetof(Args, mean)),
    number("std", offsetof(Args, std), 1),
    number("truncate", offsetof(Args, truncate)),
    number("probability", offsetof(Args, probability)),
};

void check(const Args& a, const Dims&) {
  const bool uniform = a.distribution == TC_RANDOM_UNIFORM, normal = a.distribution == TC_RANDOM_NORMAL,
             bernoulli = a.distribution == TC_RANDOM_BERNOULLI;
  require(uniform || (a.low == 0 && a.high == 1), "random: low and high are set, but belong to uniform");
  require(normal || (a.mean == 0 && a.std == 1 && a.truncate == 0),
          "random: mean, std or truncate are set, but belong to normal");
  require(bernoulli || a.probability == 0, "random: probability is set, but belongs to bernoulli");
  require(a.low <= a.high, "random: low is {}, but must not be above high, {}", a.low, a.high);
  require(a.std >= 0, "random: std is {}, but must be >= 0", a.std);
  require(a.truncate >= 0, "random: truncate is {}, but must be >= 0 (0: not truncated)", a.truncate);
  require(a.probability >= 0 && a.probability <= 1, "random: probability is {}, but must be in [0, 1]", a.probability);
  require(a.first_index >= 0, "random: first_index is {}, but must be >= 0", a.first_index);
}

std::string cuda_explain(const Args&, const tc_exec&, const cuda::DeviceInfo&) {
  return "a full grid, a thread for every counter, whose four words make four elements";
}

constexpr Pass list[] = {
    {.name = "random",
     .formula = "y[i] = uniform, normal or bernoulli from word (first_index + i) of Philox(seed, stream)",
     .fields = fields,
     .args_size = sizeof(Args),
     .check = Erase<Args>::check<check>,
     .cpu = Erase<Args>::run<random_cpu>,
     .cuda = TC_IF_CUDA(Erase<Args>::run<random_cuda>),
     .cuda_explain = Erase<Args>::cuda_explain<cuda_explain>},
};

}  // namespace

extern const std::span<const Pass> passes;
const std::span<const Pass> passes = list;

}  // namespace tc::ops::random

TC_EXPORT_PASS(random, tc::ops::random::list[0])
