// traincore: the command line over the library.
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "cli/command.h"

int main(int argc, char** argv) {
  using namespace tc::cli;  // NOLINT(google-build-using-namespace): this file is their list
  const int status = run_tool(argc, argv,
                              {add_env, add_ops, add_check, add_bench, add_explain,
#ifdef TC_WITH_TRAINER  // absent from a build of chosen ops
                               add_train, add_sample, add_checkpoint
#endif
                              });
  if (std::fflush(stdout) == 0) return status;
  fmt::print(stderr, "traincore: cannot write the output: {}\n", std::strerror(errno));
  return kRefused;
}
