/* What every op header includes: the vocabulary and, in C++, the face that throws instead of returning a status. */
#pragma once
#include "traincore/core/types.h"

#ifdef __cplusplus
#include "traincore/core/error.h"
/* tc::<pass>(args, exec): the C call, with a failure thrown as tc::Error. Scratch comes from exec, or is the library's.
 */
#define TC_CXX_FACE(pass)                                                                    \
  namespace tc {                                                                             \
  inline void pass(const tcx_##pass##_args& args, const tc_exec& exec = tc_exec_default()) { \
    const tc_status_t status = tcx_##pass(&args, &exec);                                     \
    if (status != TC_OK) throw Error(status, tc_last_error());                               \
  }                                                                                          \
  }
#else
#define TC_CXX_FACE(pass)
#endif
