// The summary lines that rank 0 logs at the start and the end of a training; see
// common/contract/log_lines.h.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "worker/runtime/cpu.h"
#include "worker/train/evaluator.h"
#include "worker/train/job.h"

namespace tilewright::train {

// Longer lines are cut, so that with its timestamp a log line stays under 120 columns.
inline constexpr std::size_t kMaxSummaryColumns = 90;

struct MachineSummary {
  std::string cpu_model;
  int workers = 1;
  int threads = 1;  // per worker
  runtime::Isa isa = runtime::Isa::kRef;
  bool bf16 = true;
  double peak_gflops = 0;  // per worker
};

// "accuracy 0.8056, f1 0.8168"
std::string format_metrics(const tasks::Metrics& metrics);

std::string machine_line(const MachineSummary& machine);
std::string data_line(const Job& job);
std::string model_line(const Job& job);
std::string training_line(const Job& job);
std::string results_line(const EvaluationResult& evaluation);
// Of an evaluation during the training: no summary line.
std::string evaluation_line(const EvaluationResult& evaluation, std::int64_t step);
// Without the combined score, which is the mean of the other metrics.
std::string baselines_line(const std::vector<tasks::Baseline>& baselines);

}  // namespace tilewright::train
