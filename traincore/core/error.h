// Errors: thrown inside the library, turned into tc_status_t plus one sentence at the C boundary by guard().
#pragma once
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include "traincore/core/types.h"

// C++ symbols that the tool takes from libtraincore_check; libtraincore itself exports only tc_* and tcx_*.
#define TC_TOOL_API TC_API

namespace tc {

// What the C++ face throws and what the inside of the library throws: a status and one sentence.
struct TC_TOOL_API Error : std::runtime_error {
  tc_status_t code;
  Error(tc_status_t status, const std::string& sentence) : std::runtime_error(sentence), code(status) {}
};

// Keeps the sentence for tc_last_error(); never throws.
void set_last_error(const char* sentence) noexcept;

template <class F>
tc_status_t guard(F&& body) noexcept {
  try {
    body();
    return TC_OK;
  } catch (const Error& e) {
    set_last_error(e.what());
    return e.code;
  } catch (const std::bad_alloc&) {
    set_last_error("out of memory");
    return TC_ERR_ALLOC;
  } catch (const std::exception& e) {
    set_last_error(e.what());
    return TC_ERR_INTERNAL;
  } catch (...) {
    set_last_error("an unknown exception was thrown");
    return TC_ERR_INTERNAL;
  }
}

}  // namespace tc
