// The front door of rope_tables: what its arguments are, what is checked, where it goes.
#include "traincore/ops/rope_tables/rope_tables.h"

#include "traincore/core/op.h"
#include "traincore/ops/rope_tables/plan.h"

namespace tc::ops::rope_tables {

void run_cpu(const Args&, const tc_exec&);
void run_cuda(const Args&, const tc_exec&);

namespace {

constexpr Field fields[] = {
    choice("scaling", offsetof(Args, scaling), "none|linear|ntk|yarn|llama3"),
    flag("truncate", offsetof(Args, truncate)).defaults(1),
    in("positions", offsetof(Args, positions), "rows...", indices).optional().strided(),
    out("cos", offsetof(Args, cos), "rows... half", any_float).optional(),
    out("sin", offsetof(Args, sin), "rows... half", any_float).optional(),
    out("inv_freq", offsetof(Args, inv_freq), "half", f32).optional(),
    number("base", offsetof(Args, base)),
    number("factor", offsetof(Args, factor), 1),
    number("low_freq_factor", offsetof(Args, low_freq_factor)),
    number("high_freq_factor", offsetof(Args, high_freq_factor)),
    number("beta_fast", offsetof(Args, beta_fast), 32),
    number("beta_slow", offsetof(Args, beta_slow), 1),
    number("attention_scaling", offsetof(Args, attention_scaling)),
    integer("original_max_position", offsetof(Args, original_max_position)),
};

void check_scaling(const Args& a) {
  const bool yarn = a.scaling == TC_ROPE_SCALING_YARN, llama3 = a.scaling == TC_ROPE_SCALING_LLAMA3;
  require(a.base > 1, "rope_tables: base is {}, but must be > 1", a.base);
  require(a.factor > 0, "rope_tables: factor is {}, but must be > 0", a.factor);
  require(a.attention_scaling >= 0, "rope_tables: attention_scaling is {}, but must be >= 0", a.attention_scaling);
  require(a.factor == 1 || a.scaling != TC_ROPE_SCALING_NONE,
          "rope_tables: factor is {}, but scaling is none, which has no factor", a.factor);
  if (yarn || llama3)
    require(a.original_max_position > 0,
            "rope_tables: original_max_position is {}, but must be > 0 for yarn and llama3", a.original_max_position);
  else
    require(a.original_max_position == 0, "rope_tables: original_max_position is {}, but only yarn and llama3 use it",
            a.original_max_position);
  if (llama3)
    require(a.low_freq_factor > 0 && a.high_freq_factor > a.low_freq_factor,
            "rope_tables: low_freq_factor is {} and high_freq_factor {}, but llama3 needs 0 < low < high",
            a.low_freq_factor, a.high_freq_factor);
  else
    require(a.low_freq_factor == 0 && a.high_freq_factor == 0,
            "rope_tables: low_freq_factor is {} and high_freq_factor {}, but only llama3 uses them", a.low_freq_factor,
            a.high_freq_factor);
  require(a.beta_slow > 0 && a.beta_fast > a.beta_slow,
          "rope_tables: beta_slow is {} and beta_fast {}, but must be 0 < beta_slow < beta_fast", a.beta_slow,
          a.beta_fast);
  require(yarn || (a.beta_slow == 1 && a.beta_fast == 32 && a.truncate == 1),
          "rope_tables: beta_fast, beta_slow or truncate is set, but only yarn uses them");
}

void check(const Args& a, const Dims& dims) {
  require(given(a.cos) || given(a.sin) || given(a.inv_freq),
          "rope_tables: none of cos, sin and inv_freq is given, so there is nothing to compute");
  require(dims["half"] > 0, "rope_tables: cos has width 0, but at least one pair must turn");
  const tc_tensor& table = given(a.cos) ? a.cos : a.sin;
  if (given(table) && !given(a.positions) && table.rank != 2)
    fail(TC_ERR_INVALID_SHAPE,
         "rope_tables: cos has rank {}, but without positions it must be [rows half], for positions 0 to rows - 1",
         table.rank);
  require(given(table) || !given(a.positions),
          "rope_tables: positions is given, but neither cos nor sin, which use it");
  check_scaling(a);
}

std::string cuda_explain(const Args&, const tc_exec&, const cuda::DeviceInfo&) {
  return "a full grid, an angle a thread, in f64";
}

constexpr Pass list[] = {
    {.name = "rope_tables",
     .formula = "cos = attention_scaling cos(position f_i), sin alike; f_i = base^(-i / half), scaled",
     .fields = fields,
     .args_size = sizeof(Args),
     .check = Erase<Args>::check<check>,
     .workspace = Erase<Args>::workspace<carve>,
     .cpu = Erase<Args>::run<run_cpu>,
     .cuda = TC_IF_CUDA(Erase<Args>::run<run_cuda>),
     .cuda_explain = Erase<Args>::cuda_explain<cuda_explain>},
};

}  // namespace

extern const std::span<const Pass> passes;
const std::span<const Pass> passes = list;

}  // namespace tc::ops::rope_tables

TC_EXPORT_PASS(rope_tables, tc::ops::rope_tables::list[0])
