#include "controller/policy/clock_skew.h"

#include <algorithm>

namespace tilewright::policy {

void correct_clock_skew(Observed& observed, WallTime now) {
  const auto clamp = [now](auto& time) {
    if (time) time = std::min<WallTime>(*time, now);
  };
  for (Worker& worker : observed.workers) {
    WallTime earliest = WallTime::min();
    for (auto* time : {&worker.created, &worker.scheduled, &worker.started, &worker.finished}) {
      if (!*time) continue;
      *time = std::min(std::max(**time, earliest), now);
      earliest = **time;
    }
  }
  api::TrainJobStatus& status = observed.job.status;
  clamp(status.start_time);
  clamp(status.training_complete_time);
  clamp(status.completion_time);
  if (status.progress) clamp(status.progress->updated);
  for (api::FailureRecord& failure : status.failures) clamp(failure.time);
  for (api::FailingWorker& failing : status.failing_workers) clamp(failing.last_failure);
}

}  // namespace tilewright::policy
