#include "controller/reconcile/cleanup.h"

#include <fmt/format.h>

#include "controller/reconcile/services.h"

namespace tilewright::reconcile {
namespace {

using std::chrono::seconds;

void remove_workers(const Situation& situation, api::TrainJobStatus& status, Plan& plan,
                    bool ended_too, const char* why) {
  for (const Worker& worker : situation.observed.workers) {
    if (is_over(worker) && !ended_too) continue;
    mark_counted(status, worker.uid);
    if (!worker.terminating || is_lost(situation, worker)) {
      plan.deletions.push_back(deletion_of(situation, worker, why));
    }
  }
}

}  // namespace

void clean_up(const Situation& situation, api::TrainJobStatus& status, Timer& timer, Plan& plan) {
  const auto& policy = situation.observed.job.spec.run_policy;
  switch (policy.clean_pod_policy.value_or(api::CleanPodPolicy::kRunning)) {
    case api::CleanPodPolicy::kNone:
      break;
    case api::CleanPodPolicy::kRunning:
      remove_workers(situation, status, plan, false, "the job has ended");
      break;
    case api::CleanPodPolicy::kAll:
      remove_workers(situation, status, plan, true, "the job has ended");
      remove_companions(situation, plan);
      break;
  }
  if (policy.ttl_seconds_after_finished && status.completion_time) {
    plan.delete_job =
        timer.due(*status.completion_time + seconds(*policy.ttl_seconds_after_finished));
  }
}

void suspend(const Situation& situation, api::TrainJobStatus& status, Plan& plan) {
  remove_workers(situation, status, plan, true, "the job is suspended");
  status.start_time.reset();
}

std::optional<JobEnd> judge_deadline(const Situation& situation, const api::TrainJobStatus& status,
                                     Timer& timer) {
  const auto limit = situation.observed.job.spec.run_policy.active_deadline_seconds;
  if (!limit || !status.start_time) return std::nullopt;
  if (!timer.due(*status.start_time + seconds(*limit))) return std::nullopt;
  return JobEnd{api::Phase::kFailed, "DeadlineExceeded",
                fmt::format("the job ran longer than its activeDeadlineSeconds of {}", *limit)};
}

}  // namespace tilewright::reconcile
