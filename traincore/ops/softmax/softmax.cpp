// The front door of softmax and log-softmax: what the arguments are, what is checked, where it goes.
#include "traincore/ops/softmax/softmax.h"

#include "traincore/core/op.h"
#include "traincore/ops/softmax/cuda_plan.h"

namespace tc::ops::softmax {

using SoftmaxForward = tcx_softmax_forward_args;
using SoftmaxBackward = tcx_softmax_backward_args;
using LogSoftmaxForward = tcx_log_softmax_forward_args;
using LogSoftmaxBackward = tcx_log_softmax_backward_args;

void softmax_forward_cpu(const SoftmaxForward&, const tc_exec&);
void softmax_backward_cpu(const SoftmaxBackward&, const tc_exec&);
void log_softmax_forward_cpu(const LogSoftmaxForward&, const tc_exec&);
void log_softmax_backward_cpu(const LogSoftmaxBackward&, const tc_exec&);
void softmax_forward_cuda(const SoftmaxForward&, const tc_exec&);
void softmax_backward_cuda(const SoftmaxBackward&, const tc_exec&);
void log_softmax_forward_cuda(const LogSoftmaxForward&, const tc_exec&);
void log_softmax_backward_cuda(const LogSoftmaxBackward&, const tc_exec&);

namespace {

template <class A>
constexpr Field forward_fields[] = {
    in("x", offsetof(A, x), "rows... cols"),
    out("y", offsetof(A, y), "rows... cols").may_be("x"),
};
template <class A>
constexpr Field backward_fields[] = {
    in("y", offsetof(A, y), "rows... cols"),
    in("dy", offsetof(A, dy), "rows... cols"),
    out("dx", offsetof(A, dx), "rows... cols").may_be("dy"),
};

void refuse_no_cols(const char* pass, const char* tensor, const Dims& dims) {
  require(dims["cols"] > 0, "{}: {} has width 0, but a row needs at least one element", pass, tensor);
}
void check_softmax_forward(const SoftmaxForward&, const Dims& dims) { refuse_no_cols("softmax_forward", "x", dims); }
void check_softmax_backward(const SoftmaxBackward&, const Dims& dims) { refuse_no_cols("softmax_backward", "y", dims); }
void check_log_softmax_forward(const LogSoftmaxForward&, const Dims& dims) {
  refuse_no_cols("log_softmax_forward", "x", dims);
}
void check_log_softmax_backward(const LogSoftmaxBackward&, const Dims& dims) {
  refuse_no_cols("log_softmax_backward", "y", dims);
}

// An exponential counts as one operation.
template <class A, int kPerElement>
double flops(const A&, const Dims& dims) {
  return kPerElement * static_cast<double>(dims["rows"]) * static_cast<double>(dims["cols"]);
}

template <class A>
Evaluations exponentials(const A&, const Dims& dims) {
  return {.exp = static_cast<double>(dims["rows"]) * static_cast<double>(dims["cols"])};
}

template <class A>
std::string explain_forward(const A&, const Dims& dims) {
  return fmt::format("{} rows of {}, in blocks of 4096: the maximum and the sum of exponentials so far, then y",
                     dims["rows"], dims["cols"]);
}
template <class A>
std::string explain_backward(const A&, const Dims& dims) {
  return fmt::format("{} rows of {}, each read twice: for its sum, then for dx", dims["rows"], dims["cols"]);
}

template <class A>
std::string cuda_explain_forward(const A& a, const tc_exec& exec, const cuda::DeviceInfo& device) {
  const char* const pass = std::is_same_v<A, LogSoftmaxForward> ? "log_softmax_forward" : "softmax_forward";
  cuda::require_exact_exponentials(pass, a.x.dtype, exec);
  return describe(plan_forward(pass, a.x, a.y, device));
}
template <class A>
std::string cuda_explain_backward(const A& a, const tc_exec& exec, const cuda::DeviceInfo& device) {
  constexpr bool kIsLog = std::is_same_v<A, LogSoftmaxBackward>;
  const char* const pass = kIsLog ? "log_softmax_backward" : "softmax_backward";
  if (kIsLog) cuda::require_exact_exponentials(pass, a.dy.dtype, exec);
  return describe(plan_backward(pass, a, device));
}

constexpr Pass list[] = {
    {.name = "softmax_forward",
     .formula = "y = exp(x - m) / sum exp(x - m), m = max(x)",
     .fields = forward_fields<SoftmaxForward>,
     .args_size = sizeof(SoftmaxForward),
     .check = Erase<SoftmaxForward>::check<check_softmax_forward>,
     .cpu = Erase<SoftmaxForward>::run<softmax_forward_cpu>,
     .cuda = TC_IF_CUDA(Erase<SoftmaxForward>::run<softmax_forward_cuda>),
     .flops = Erase<SoftmaxForward>::flops<flops<SoftmaxForward, 7>>,
     .evaluations = Erase<SoftmaxForward>::evaluations<exponentials<SoftmaxForward>>,
     .explain = Erase<SoftmaxForward>::explain<explain_forward<SoftmaxForward>>,
     .cuda_explain = Erase<SoftmaxForward>::cuda_explain<cuda_explain_forward<SoftmaxForward>>},
    {.name = "softmax_backward",
     .formula = "dx = y (dy - sum(y dy))",
     .fields = backward_fields<SoftmaxBackward>,
     .args_size = sizeof(SoftmaxBackward),
     .check = Erase<SoftmaxBackward>::check<check_softmax_backward>,
     .cpu = Erase<SoftmaxBackward>::run<softmax_backward_cpu>,
     .cuda = TC_IF_CUDA(Erase<SoftmaxBackward>::run<softmax_backward_cuda>),
     .flops = Erase<SoftmaxBackward>::flops<flops<SoftmaxBackward, 4>>,
     .explain = Erase<SoftmaxBackward>::explain<explain_backward<SoftmaxBackward>>,
     .cuda_explain = Erase<SoftmaxBackward>::cuda_explain<cuda_explain_backward<SoftmaxBackward>>},
    {.name = "log_softmax_forward",
     .formula = "y = (x - m) - log sum exp(x - m), m = max(x)",
     .fields = forward_fields<LogSoftmaxForward>,
     .args_size = sizeof(LogSoftmaxForward),
     .check = Erase<LogSoftmaxForward>::check<check_log_softmax_forward>,
     .cpu = Erase<LogSoftmaxForward>::run<log_softmax_forward_cpu>,
     .cuda = TC_IF_CUDA(Erase<LogSoftmaxForward>::run<log_softmax_forward_cuda>),
     .flops = Erase<LogSoftmaxForward>::flops<flops<LogSoftmaxForward, 6>>,
     .evaluations = Erase<LogSoftmaxForward>::evaluations<exponentials<LogSoftmaxForward>>,
     .explain = Erase<LogSoftmaxForward>::explain<explain_forward<LogSoftmaxForward>>,
     .cuda_explain = Erase<LogSoftmaxForward>::cuda_explain<cuda_explain_forward<LogSoftmaxForward>>},
    {.name = "log_softmax_backward",
     .formula = "dx = dy - exp(y) sum(dy)",
     .fields = backward_fields<LogSoftmaxBackward>,
     .args_size = sizeof(LogSoftmaxBackward),
     .check = Erase<LogSoftmaxBackward>::check<check_log_softmax_backward>,
     .cpu = Erase<LogSoftmaxBackward>::run<log_softmax_backward_cpu>,
     .cuda = TC_IF_CUDA(Erase<LogSoftmaxBackward>::run<log_softmax_backward_cuda>),
     .flops = Erase<LogSoftmaxBackward>::flops<flops<LogSoftmaxBackward, 4>>,
     .evaluations = Erase<LogSoftmaxBackward>::evaluations<exponentials<LogSoftmaxBackward>>,
     .explain = Erase<LogSoftmaxBackward>::explain<explain_backward<LogSoftmaxBackward>>,
     .cuda_explain = Erase<LogSoftmaxBackward>::cuda_explain<cuda_explain_backward<LogSoftmaxBackward>>},
};

}  // namespace

extern const std::span<const Pass> passes;
const std::span<const Pass> passes = list;

}  // namespace tc::ops::softmax

TC_EXPORT_PASS(softmax_forward, tc::ops::softmax::list[0])
TC_EXPORT_PASS(softmax_backward, tc::ops::softmax::list[1])
TC_EXPORT_PASS(log_softmax_forward, tc::ops::softmax::list[2])
TC_EXPORT_PASS(log_softmax_backward, tc::ops::softmax::list[3])
