// The definitions for other languages: traincore.reference in Python.
#include "traincore/core/fail.h"
#include "traincore/testing/cases.h"

namespace tc::testing {
namespace {

const PassCases& find_cases(std::string_view pass) {
  for (const OpCases* op : all_cases())
    for (const PassCases& p : op->passes)
      if (p.pass == pass && p.exact) return p;
  fail(TC_ERR_INVALID_ARG, "there is no definition of a pass named {}", pass);
}

}  // namespace
}  // namespace tc::testing

TC_C_BEGIN
// Runs a pass's float64 definition on its args struct, in which every float tensor is f64. Nothing is checked: let the
// pass itself accept the same arguments first, in a dtype of its own. INVALID_ARG: no such pass.
TC_API tc_status_t tc_reference(const char* pass, const void* args);
TC_C_END

tc_status_t tc_reference(const char* pass, const void* args) {
  return tc::guard([&] {
    tc::require(pass && args, "tc_reference: {} is NULL", pass ? "args" : "pass");
    tc::testing::find_cases(pass).exact(args, args);
  });
}
