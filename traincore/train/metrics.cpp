#include "traincore/train/metrics.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "traincore/core/fail.h"
#include "traincore/train/atomic_file.h"

namespace tc::train {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kCsvHeader = "step,tokens,loss,validation_loss,lr,gradient_norm,tokens_per_second,seconds\n";

constexpr const char* kPlot = R"(# Draws metrics.csv of this folder: gnuplot loss.gnuplot
set datafile separator ','
set title 'loss, nats per token'
set xlabel 'step'
set key top right
curves = "'metrics.csv' using 1:3 every ::1 with lines title 'training', '' using 1:4 every ::1 with linespoints title 'validation'"
set terminal dumb size 80, 24
eval 'plot ' . curves
set terminal svg size 900, 540 background rgb 'white'
set output 'loss.svg'
eval 'plot ' . curves
set terminal png size 900, 540
set output 'loss.png'
eval 'plot ' . curves
)";

// The step of a line of either file: the first number in it; -1 if there is none.
int64_t step_of(std::string_view line) {
  const size_t digit = line.find_first_of("0123456789");
  int64_t step = -1;
  if (digit != std::string_view::npos) std::from_chars(line.data() + digit, line.data() + line.size(), step);
  return step;
}

// The complete lines of a file up to a step.
std::string lines_up_to(const std::string& path, int64_t step) {
  const std::string text = fs::exists(path) ? read_text(path) : "";
  std::string kept;
  for (size_t at = 0, end; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
    const std::string_view line(text.data() + at, end + 1 - at);
    if (step_of(line) >= 0 && step_of(line) <= step) kept += line;
  }
  return kept;
}

std::string csv_line(const StepMetrics& m) {
  const std::string validation = m.validation_loss ? fmt::format("{}", *m.validation_loss) : "";
  return fmt::format("{},{},{},{},{},{},{:.1f},{:.3f}\n", m.step, m.tokens, m.loss, validation, m.lr, m.gradient_norm,
                     m.tokens_per_second, m.seconds);
}

std::string json_line(const StepMetrics& m) {
  nlohmann::ordered_json line = {{"step", m.step}, {"tokens", m.tokens}, {"loss", m.loss}};
  if (m.validation_loss) line["validation_loss"] = *m.validation_loss;
  line["lr"] = m.lr;
  line["gradient_norm"] = m.gradient_norm;
  line["tokens_per_second"] = m.tokens_per_second;
  line["seconds"] = m.seconds;
  return line.dump() + "\n";
}

// Runs gnuplot inside `folder`; its exit status, or -1 if it is not installed.
int run_gnuplot(const std::string& folder, const char* script) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addchdir_np(&actions, folder.c_str());
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::string program = "gnuplot", argument = script;
  char* arguments[] = {program.data(), argument.data(), nullptr};
  pid_t child = 0;
  const int error = posix_spawnp(&child, program.c_str(), &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return -1;
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace

MetricsWriter::MetricsWriter(const std::string& folder, int64_t resume_step)
    : jsonl_path_((fs::path(folder) / "metrics.jsonl").string()),
      csv_path_((fs::path(folder) / "metrics.csv").string()),
      jsonl_(open(jsonl_path_, resume_step, "")),
      csv_(open(csv_path_, resume_step, kCsvHeader)) {}

MetricsWriter::Stream MetricsWriter::open(const std::string& path, int64_t resume_step, const char* header) {
  create_folders(fs::path(path).parent_path().string());
  write_file_atomically(path, header + lines_up_to(path, resume_step));
  Stream stream(std::fopen(path.c_str(), "a"));
  if (!stream) fail_errno("append to", path);
  return stream;
}

void MetricsWriter::put(const Stream& stream, const std::string& path, const std::string& line) {
  if (std::fputs(line.c_str(), stream.get()) < 0 || std::fflush(stream.get()) != 0) fail_errno("append to", path);
}

void MetricsWriter::write(const StepMetrics& metrics) {
  put(jsonl_, jsonl_path_, json_line(metrics));
  put(csv_, csv_path_, csv_line(metrics));
}

ProgressLine::ProgressLine(std::FILE* out, int64_t steps)
    : out_(out), steps_(steps), is_terminal_(isatty(fileno(out)) == 1) {}

void ProgressLine::update(const StepMetrics& m, double seconds_left) {
  const double interval = is_terminal_ ? 0.1 : 10;
  if (m.validation_loss) validation_ = fmt::format("  validation {:.4f}", *m.validation_loss);
  pending_ = fmt::format("step {}/{}  loss {:.4f}{}  {} tokens/s  {} left", m.step, steps_, m.loss, validation_,
                         short_number(m.tokens_per_second), short_time(seconds_left));
  if (m.seconds - shown_at_ < interval && !m.validation_loss) return;
  shown_at_ = m.seconds;
  show();
}

void ProgressLine::show() {
  if (pending_.empty()) return;
  if (is_terminal_)
    fmt::print(out_, "\r{}\x1b[K", pending_);
  else
    fmt::print(out_, "{}\n", pending_);
  std::fflush(out_);
  pending_.clear();
}

void ProgressLine::finish() {
  show();
  if (is_terminal_) fmt::print(out_, "\n");
}

std::string short_number(double value) {
  constexpr const char* kUnits[] = {"", "k", "M", "G", "T"};
  int unit = 0;
  for (; value >= 999.5 && unit < 4; value /= 1000) ++unit;
  return fmt::format("{:.{}f}{}", value, value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2, kUnits[unit]);
}

std::string short_time(double seconds) {
  const auto whole = std::llround(std::clamp(seconds, 0.0, 1e9));
  if (whole < 60) return fmt::format("{}s", whole);
  if (whole < 3600) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  return fmt::format("{}h{:02}m", whole / 3600, whole / 60 % 60);
}

std::string draw_loss(const std::string& folder) {
  constexpr const char* kScript = "loss.gnuplot";
  const std::string csv = (fs::path(folder) / "metrics.csv").string(), text = read_text(csv);
  if (std::count(text.begin(), text.end(), '\n') < 3) return "There is no loss curve: it takes two steps to draw one.";
  write_file_atomically((fs::path(folder) / kScript).string(), kPlot);
  std::fflush(stdout);
  const int status = run_gnuplot(folder, kScript);
  if (status < 0)
    return fmt::format("There is no loss curve, as gnuplot is not installed; the figures are in {}.", csv);
  if (status > 0)
    return fmt::format("There is no loss curve, as gnuplot failed on {}/{}; the figures are in {}.", folder, kScript,
                       csv);
  return fmt::format("The loss curve is in {0}/loss.svg and {0}/loss.png.", folder);
}

}  // namespace tc::train
