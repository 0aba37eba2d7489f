// What a person sees of a running training: a bar on a terminal, a plain line now and then
// elsewhere.
#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "common/base/clock.h"
#include "common/base/log.h"

namespace tilewright::train {

// One optimizer step of the whole job, all workers together.
struct StepReport {
  std::int64_t step = 0;  // done, counted from 1
  std::int64_t total_steps = 0;
  double epoch = 0;
  double loss = 0;
  double learning_rate = 0;
  double grad_norm = 0;  // before clipping
  std::int64_t examples = 0;
  std::int64_t tokens = 0;
  double flops = 0;
  bool leave = false;  // some worker is to stop: all do, after this step
};

// Rates over the last kWindow steps.
struct Rates {
  double examples_per_second = 0;
  double tokens_per_second = 0;
  double gflops = 0;
  double eta_seconds = 0;
};

class RateMeter {
 public:
  static constexpr std::size_t kWindow = 20;
  // `now`: the end of the step that `report` tells of.
  Rates add(const StepReport& report, MonotonicTime now);
  // Begins anew: what follows is no continuation of the steps before (a restart, an evaluation).
  void restart(MonotonicTime now);

 private:
  struct Mark {
    MonotonicTime at;
    double examples = 0, tokens = 0, flops = 0;  // since the beginning
  };
  std::deque<Mark> marks_;
};

// "step 120/690 | epoch 1.04 | loss 0.5321 | ..."; peak_gflops is the ceiling of all workers' CPUs
// (0: not known).
std::string describe(const StepReport& report, const Rates& rates, double peak_gflops);

class ProgressPrinter {
 public:
  // On a terminal the bar is redrawn in place on standard error; else lines go to `logger`.
  ProgressPrinter(Logger& logger, bool terminal, double peak_gflops);
  void show(const StepReport& report, const Rates& rates, MonotonicTime now);
  // Leaves the bar where it is, so that what is logged next begins on a line of its own.
  void release();

 private:
  // Lines: the first step, then one every so often, and the last.
  static constexpr std::chrono::seconds kLineInterval{5};
  static constexpr std::chrono::milliseconds kBarInterval{100};
  Logger& logger_;
  bool terminal_;
  double peak_gflops_;
  bool drawn_ = false;
  MonotonicTime next_{};
};

}  // namespace tilewright::train
