// What a run tells while it goes: metrics.jsonl and metrics.csv, a progress line, and at the end the curve of the loss.
#pragma once
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

namespace tc::train {

struct StepMetrics {
  int64_t step = 0;    // optimizer steps done, this one included
  int64_t tokens = 0;  // trained on since step 0
  double loss = 0;     // mean over the step's tokens, nats
  std::optional<double> validation_loss;
  double lr = 0;
  double gradient_norm = 0;  // before clipping
  double tokens_per_second = 0;
  double seconds = 0;  // since this process began to train
};

// Appends one line per step to <folder>/metrics.jsonl and <folder>/metrics.csv, made if they are not there. A resumed run goes on after the line of
// `resume_step`; lines of later steps, and a line that a kill cut short, are dropped first.
class MetricsWriter {
 public:
  MetricsWriter(const std::string& folder, int64_t resume_step);
  void write(const StepMetrics& metrics);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  using Stream = std::unique_ptr<std::FILE, Close>;
  static Stream open(const std::string& path, int64_t resume_step, const char* header);
  static void put(const Stream& stream, const std::string& path, const std::string& line);
  std::string jsonl_path_, csv_path_;
  Stream jsonl_, csv_;
};

// One line that is rewritten in place on a terminal; elsewhere a line every ten seconds, and always the first, the last
// and those with a validation loss.
class ProgressLine {
 public:
  ProgressLine(std::FILE* out, int64_t steps);
  void update(const StepMetrics& metrics, double seconds_left);
  void finish();  // the last line stands; other output may follow

 private:
  void show();
  std::FILE* out_;
  int64_t steps_;
  bool is_terminal_;
  double shown_at_ = -1e9;
  std::string validation_, pending_;  // the last validation loss; the line that was not shown yet
};

// "3.4k", "1.25M": three digits and a unit.
std::string short_number(double value);
// "42s", "3m07s", "2h05m".
std::string short_time(double seconds);

// Draws <folder>/metrics.csv: as text to the standard output, and to loss.svg and loss.png in the folder; loss.gnuplot
// stays there to be changed and drawn again. Returns one sentence for the user: where the files are, or why there are
// none.
std::string draw_loss(const std::string& folder);

}  // namespace tc::train
