#include "controller/api/summary.h"

#include <fmt/format.h>

#include <array>

#include "common/base/clock.h"
#include "common/contract/training_report.h"

namespace tilewright::api {
namespace {

// The first metric found is shown. The order puts the metric that GLUE reports for a task before
// the others.
constexpr std::array<const char*, 7> kMainMetrics{
    "matthews_correlation", "pearson", "accuracy", "f1", "exact_match", "exact", "mse"};

std::string quality(const Progress& progress) {
  for (const char* name : kMainMetrics) {
    const auto found =
        progress.metrics.find(fmt::format("{}{}", training_report::kEvaluationPrefix, name));
    if (found != progress.metrics.end()) return fmt::format("{} {:.4f}", name, found->second);
  }
  return progress.loss ? fmt::format("loss {:.4f}", *progress.loss) : "";
}

std::string message(const TrainJobStatus& status) {
  for (const char* type :
       {condition::kBlocked, condition::kFailed, condition::kSucceeded, condition::kRestarting}) {
    const Condition* found = status.find_condition(type);
    if (found != nullptr && found->status == ConditionStatus::kTrue) return found->message;
  }
  return "";
}

}  // namespace

Summary summarize(const TrainJobStatus& status) {
  Summary summary;
  if (status.replicas.desired > 0) {
    summary.ready = fmt::format("{}/{}", status.replicas.ready, status.replicas.desired);
  }
  summary.message = message(status);
  if (!status.progress) return summary;
  const Progress& progress = *status.progress;
  summary.progress = fmt::format("{}/{}", progress.step, progress.total_steps);
  summary.epoch = fmt::format("{:.2f}", progress.epoch);
  summary.quality = quality(progress);
  if (status.phase != Phase::kRunning) return summary;
  summary.speed = fmt::format("{:.1f}", progress.examples_per_second);
  if (progress.eta_seconds) {
    summary.eta = format_duration(std::chrono::seconds(*progress.eta_seconds));
  }
  return summary;
}

}  // namespace tilewright::api
