// The modes of `traincore check`: any op against its oracle, from its schema and its case list alone.
#pragma once
#include "traincore/testing/cases.h"
#include "traincore/testing/problem.h"

namespace tc::testing {

// One verdict. `error` and `budget` are absolute, for numbers; `message` says what failed, empty if nothing did.
struct Outcome {
  std::string op, pass, mode, dtype, device, case_text, field;
  double error = 0, budget = 0;
  std::string message;
  std::string refusal;  // not empty: the device serves no such case, and says so in this sentence
  bool ok() const { return message.empty(); }
};
using Report = std::function<void(const Outcome&)>;

struct CheckOptions {
  Effort effort = Effort::normal;
  std::vector<int32_t> dtypes = {TC_DTYPE_F32, TC_DTYPE_BF16, TC_DTYPE_F16};
  int32_t device = TC_CPU;
  std::string only;       // cases whose shape, as printed, contains this; empty: all
  bool captured = false;  // on a GPU: the call is captured into a graph, which is replayed with the case's inputs
  std::function<void(int64_t done, int64_t total)> progress;
};

// Every case and dtype against the f64 oracle: the error budget of design.md section 7, guards, untouched inputs.
TC_TOOL_API void check_numbers(const OpCases& op, const CheckOptions& options, const Report& report);
// The backward oracle against central differences of the forward oracle, in f64; looks at no kernel.
TC_TOOL_API void check_gradients(const OpCases& op, const CheckOptions& options, const Report& report);
// Same bits with 1, 2 and 3 threads, with and without a caller's workspace, whatever stood in outputs and scratch.
TC_TOOL_API void check_determinism(const OpCases& op, const CheckOptions& options, const Report& report);
// A row's bits do not depend on the rows around it, for the passes that offer it.
TC_TOOL_API void check_batch_invariance(const OpCases& op, const CheckOptions& options, const Report& report);
// Every deliberately wrong variant is caught by check_numbers.
TC_TOOL_API void check_mutants(const OpCases& op, const CheckOptions& options, const Report& report);
// On a GPU: each pass on more than 2^31 elements and 65535 rows, held against the oracle on a thousand of its rows, or
// on fewer where they are wide.
TC_TOOL_API void check_large(const OpCases& op, const CheckOptions& options, const Report& report);
// Bad arguments, made from the schema, are refused with the right status and a sentence that names the argument;
// nothing is written.
TC_TOOL_API void check_refusals(const OpCases& op, const CheckOptions& options, const Report& report);

TC_TOOL_API const OpCases* find_op(std::string_view name);  // NULL if there is none
const Pass& find_pass(std::string_view op, std::string_view pass);

// Shared by the modes. The op's cases that the options ask for.
std::vector<Case> cases_of(const OpCases& op, const CheckOptions& options);
// A runner makes the outputs of a problem; on failure tc_last_error() says why.
using Runner = std::function<tc_status_t(Problem& problem, const tc_exec& exec)>;
Runner kernel_runner(const OpCases& op, const Pass& pass, const CheckOptions& options);
// Why the device serves no such case, one sentence; empty if it does.
std::string refusal_of(const Pass& pass, const Case& c, int32_t dtype, const CheckOptions& options);
// The variadic dimension that full-size tensors lead with: the rows. Empty if there is none.
std::string_view row_dimension(const Pass& pass);
bool leads_with(const Field& f, std::string_view rows);
const char* device_name(int32_t device);  // "cpu", "cuda"
// The <name>_forward that belongs to a <name>_backward; NULL for any other pass.
const PassCases* forward_of(const OpCases& op, const PassCases& pass);
// The inputs of `pass` for a case: random ones, and for a backward what the forward oracle saved.
Values inputs_of(const OpCases& op, const PassCases& pass, const Case& c, int32_t storage_dtype);
void run_numbers(const OpCases& op, const PassCases& pass, const Case& c, int32_t dtype, const Runner& run,
                 Outcome outcome, const Report& report);

}  // namespace tc::testing
