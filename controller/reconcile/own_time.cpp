#include "controller/reconcile/own_time.h"

#include <algorithm>

namespace tilewright::reconcile {

void take_own_time(Observed& observed, WallTime now) {
  const auto not_after = [now](auto& time) {
    if (time) time = std::min<WallTime>(*time, now);
  };
  for (Worker& worker : observed.workers) {
    WallTime earliest = WallTime::min();
    for (auto* time : {&worker.created, &worker.started, &worker.finished}) {
      if (!*time) continue;
      *time = std::min(std::max(**time, earliest), now);
      earliest = **time;
    }
  }
  api::TrainJobStatus& status = observed.job.status;
  not_after(status.start_time);
  not_after(status.training_complete_time);
  not_after(status.completion_time);
  if (status.progress) not_after(status.progress->updated);
  for (api::FailureRecord& failure : status.failures) not_after(failure.time);
}

}  // namespace tilewright::reconcile
