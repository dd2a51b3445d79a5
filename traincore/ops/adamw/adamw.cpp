// The front door of AdamW: what its arguments are, what is checked, where it goes.
#include "traincore/ops/adamw/adamw.h"

#include "traincore/core/op.h"
#include "traincore/ops/adamw/plan.h"

namespace tc::ops::adamw {

using Args = tcx_adamw_args;

void adamw_cpu(const Args&, const tc_exec&);
void adamw_cuda(const Args&, const tc_exec&);
size_t adamw_cuda_workspace(const Args&, const tc_exec&);

namespace {

constexpr Field fields[] = {
    list(state("params", offsetof(Args, params), "dims...", dtypes({TC_DTYPE_F32, TC_DTYPE_BF16})),
         offsetof(Args, params_count)),
    list(in("grads", offsetof(Args, grads), "dims...", any_float), offsetof(Args, grads_count)),
    list(state("m", offsetof(Args, m), "dims...", f32), offsetof(Args, m_count)),
    list(state("v", offsetof(Args, v), "dims...", f32), offsetof(Args, v_count)),
    list(state("params_low", offsetof(Args, params_low), "dims...", dtypes({TC_DTYPE_I16})).optional(),
         offsetof(Args, params_low_count)),
    list(out("copy_out", offsetof(Args, copy_out), "dims...", any_float).optional(), offsetof(Args, copy_out_count)),
    in("lr_tensor", offsetof(Args, lr_tensor), "scalar", f32).optional(),
    in("step_tensor", offsetof(Args, step_tensor), "scalar", i64).optional(),
    in("clip_tensor", offsetof(Args, clip_tensor), "scalar", f32).optional(),
    in("found_inf_tensor", offsetof(Args, found_inf_tensor), "scalar", dtypes({TC_DTYPE_F32, TC_DTYPE_I64})).optional(),
    number("lr", offsetof(Args, lr)),
    number("beta1", offsetof(Args, beta1), 0.9),
    number("beta2", offsetof(Args, beta2), 0.999),
    number("eps", offsetof(Args, eps), 1e-8),
    number("weight_decay", offsetof(Args, weight_decay)),
    number("clip", offsetof(Args, clip), 1),
    integer("step", offsetof(Args, step)),
    integer("seed", offsetof(Args, seed)),
    integer("first_index", offsetof(Args, first_index)),
    choice("rounding", offsetof(Args, rounding), "nearest|stochastic"),
    choice("decay", offsetof(Args, decay), "decoupled|l2"),
    flag("maximize", offsetof(Args, maximize)),
    flag("amsgrad", offsetof(Args, amsgrad)),
    flag("found_inf", offsetof(Args, found_inf)),
};

void check_numbers(const Args& a) {
  require(given(a.lr_tensor) ? a.lr == 0 : a.lr >= 0, "adamw: lr is {}, but must be {}", a.lr,
          given(a.lr_tensor) ? "0 where lr_tensor is given" : ">= 0");
  require(given(a.step_tensor) ? a.step == 0 : a.step >= 1, "adamw: step is {}, but must be {}", a.step,
          given(a.step_tensor) ? "0 where step_tensor is given" : ">= 1: the first step is 1");
  require(given(a.clip_tensor) ? a.clip == 1 : a.clip >= 0, "adamw: clip is {}, but must be {}", a.clip,
          given(a.clip_tensor) ? "1 where clip_tensor is given" : ">= 0");
  require(!given(a.found_inf_tensor) || a.found_inf == 0, "adamw: found_inf and found_inf_tensor are both given");
  require(a.beta1 >= 0 && a.beta1 < 1, "adamw: beta1 is {}, but must be in [0, 1)", a.beta1);
  require(a.beta2 >= 0 && a.beta2 < 1, "adamw: beta2 is {}, but must be in [0, 1)", a.beta2);
  require(static_cast<float>(a.eps) > 0, "adamw: eps is {}, but must be > 0 in f32", a.eps);
  require(a.weight_decay >= 0, "adamw: weight_decay is {}, but must be >= 0", a.weight_decay);
}

// What an option needs of the parameters' dtype.
void require_params(const Args& a, bool wanted, int32_t dtype, const char* option) {
  for (int64_t i = 0; wanted && i < a.params_count; ++i)
    if (a.params[i].dtype != dtype)
      fail(TC_ERR_UNSUPPORTED_DTYPE, "adamw: params[{}] has dtype {}, but {} is for {} parameters", i,
           tc_dtype_name(a.params[i].dtype), option, tc_dtype_name(dtype));
}

void check(const Args& a, const Dims&) {
  if (a.decay == TC_DECAY_L2)
    fail(TC_ERR_KERNEL_NOT_FOUND, "adamw: no variant serves decay = l2 (added to the gradient); decoupled is served");
  if (a.maximize) fail(TC_ERR_KERNEL_NOT_FOUND, "adamw: no variant serves maximize; negate the loss");
  if (a.amsgrad) fail(TC_ERR_KERNEL_NOT_FOUND, "adamw: no variant serves amsgrad; without it is served");
  check_numbers(a);
  const bool stochastic = a.rounding == TC_ROUND_STOCHASTIC;
  require(!stochastic || !a.params_low, "adamw: params_low makes the parameters exact, so rounding must be nearest");
  require(stochastic || (a.seed == 0 && a.first_index == 0),
          "adamw: seed or first_index is set, but belongs to rounding = stochastic");
  require(a.first_index >= 0, "adamw: first_index is {}, but must be >= 0", a.first_index);
  require_params(a, stochastic, TC_DTYPE_BF16, "rounding = stochastic");
  require_params(a, a.params_low, TC_DTYPE_BF16, "params_low");
  require_params(a, a.copy_out, TC_DTYPE_F32, "copy_out");
}

std::string cuda_explain(const Args&, const tc_exec&, const cuda::DeviceInfo&) {
  return "a full grid over many tensors a launch, four elements a thread where every address of a tensor is a multiple "
         "of 16 bytes";
}

constexpr Pass list_of_passes[] = {
    {.name = "adamw",
     .formula = "params -= lr (mhat / (sqrt(vhat) + eps) + weight_decay params)",
     .fields = fields,
     .args_size = sizeof(Args),
     .check = Erase<Args>::check<check>,
     .workspace = Erase<Args>::workspace<carve>,
     .cuda_workspace = TC_IF_CUDA(Erase<Args>::cuda_workspace<adamw_cuda_workspace>),
     .cpu = Erase<Args>::run<adamw_cpu>,
     .cuda = TC_IF_CUDA(Erase<Args>::run<adamw_cuda>),
     .cuda_explain = Erase<Args>::cuda_explain<cuda_explain>},
};

}  // namespace

extern const std::span<const Pass> passes;
const std::span<const Pass> passes = list_of_passes;

}  // namespace tc::ops::adamw

TC_EXPORT_PASS(adamw, tc::ops::adamw::list_of_passes[0])
