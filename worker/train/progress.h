// The progress of a running training: a report per step, rates, and how both are shown: a bar on a
// terminal, otherwise a log line every logging_steps steps.
#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "worker/train/schedule.h"

namespace tilewright::train {

// What a worker asks for in a step.
enum class StopRequest {
  kNone,
  kStop,   // all workers stop after the step
  kLeave,  // and this one does not continue
};

// One optimizer step of the whole job, all workers together.
struct StepReport {
  std::int64_t step = 0;  // completed steps
  std::int64_t total_steps = 0;
  double epoch = 0;  // passes over the training data, with fraction
  double loss = 0;
  double learning_rate = 0;
  double grad_norm = 0;  // before clipping
  std::int64_t examples = 0;
  std::int64_t tokens = 0;
  double flops = 0;
  // The time in which this worker exchanged the gradient, and the part of it that backward
  // overlapped.
  double exchange_seconds = 0;
  double hidden_exchange_seconds = 0;
  bool stop_requested = false;  // by any worker: all stop after this step
  int leaving = 0;              // workers that then leave
  int state_senders_done = 0;   // that have sent all that new workers get from them
};

// Rates over the last kWindow steps.
struct Rates {
  double examples_per_second = 0;
  double tokens_per_second = 0;
  double gflops = 0;
  double eta_seconds = 0;
  double exchange_seconds = 0;  // a step, as in StepReport
  double hidden_exchange_seconds = 0;
};

class RateMeter {
 public:
  static constexpr std::size_t kWindow = 20;
  // `now`: the end of the reported step.
  Rates add(const StepReport& report, MonotonicTime now);
  // Drops all samples, after a restart or an evaluation. `now`: the start of the next step.
  void restart(MonotonicTime now);

 private:
  struct Sample {
    MonotonicTime at;
    // Sums since restart().
    double examples = 0, tokens = 0, flops = 0, exchange = 0, hidden_exchange = 0;
  };
  std::deque<Sample> samples_;
};

// "step 120/690  epoch 1.04  loss 0.5321  231 examples/s  46 % of peak  ETA 1:35"; see
// common/contract/log_lines.h. At most 90 columns below 100,000 steps, 100 epochs, 10,000
// examples/s and 100 hours: with its timestamp a log line stays under 120. Without `peak_gflops`
// (of all workers' CPUs together; 0: unknown) it has the GFLOP/s in place of the share.
std::string describe(const StepReport& report, const Rates& rates, double peak_gflops);

// "exchange 12 ms a step, 9 hidden by backward"
std::string describe_exchange(const Rates& rates);

struct ProgressOptions {
  bool terminal = false;               // draw a bar on standard error instead of logging lines
  const Schedule* schedule = nullptr;  // outlives the printer
  std::string_view logging_strategy = "steps";
  bool logging_first_step = false;
};

class ProgressPrinter {
 public:
  ProgressPrinter(Logger& logger, const ProgressOptions& options);
  // After each step. A line has the mean loss of the steps since the line before it, as with the
  // Trainer. `peak_gflops` as for describe().
  void show(const StepReport& report, const Rates& rates, double peak_gflops, MonotonicTime now);
  // Ends the bar's line, so that the next log line starts on a new one.
  void end_line();

 private:
  std::string next_line(StepReport report, const Rates& rates, double peak_gflops);

  static constexpr std::chrono::milliseconds kBarInterval{100};
  Logger& logger_;
  ProgressOptions options_;
  double loss_sum_ = 0;  // since the last line
  int losses_ = 0;
  bool drawn_ = false;
  MonotonicTime next_bar_{};
};

}  // namespace tilewright::train
