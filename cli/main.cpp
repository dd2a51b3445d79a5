// traincore: the command line over the library.
#include <fmt/core.h>

#include <cerrno>
#include <cstring>

#include "cli/command.h"
#include "traincore/core/error.h"

namespace {

int run(int argc, char** argv) {
  CLI::App app{"TrainCore: transformer training kernels, checked and measured on your own machine"};
  app.require_subcommand(1);
  app.set_version_flag("--version", tc_version());
  tc::cli::add_env(app);
  tc::cli::add_ops(app);
  tc::cli::add_check(app);
  tc::cli::add_bench(app);
  tc::cli::add_explain(app);
#ifdef TC_WITH_TRAINER  // absent from a build of chosen ops
  tc::cli::add_train(app);
  tc::cli::add_sample(app);
  tc::cli::add_checkpoint(app);
#endif
  try {
    app.parse(argc, argv);
    return tc::cli::kOk;
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? tc::cli::kOk : tc::cli::kRefused;
  } catch (const tc::cli::Exit& e) {
    return e.status;
  } catch (const std::exception& e) {
    fmt::print(stderr, "traincore: {}\n", e.what());
    return tc::cli::kRefused;
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int status = run(argc, argv);
  if (std::fflush(stdout) == 0) return status;
  fmt::print(stderr, "traincore: cannot write the output: {}\n", std::strerror(errno));
  return tc::cli::kRefused;
}
