#include "controller/policy/cleanup.h"

#include "controller/policy/messages.h"
#include "controller/policy/owned_resources.h"

namespace tilewright::policy {
namespace {

using std::chrono::seconds;

void remove_workers(const JobState& state, api::TrainJobStatus& status, Plan& plan, bool ended_too,
                    DeletionReason reason, bool with_services = false) {
  for (const Worker& worker : state.observed.workers) {
    if (pod_has_ended(worker) && !ended_too) continue;
    mark_counted(status, worker.uid);
    if (!worker.terminating || is_lost(state, worker)) {
      plan.deletions.push_back(deletion_of(state, worker, reason));
      plan.deletions.back().with_service = with_services;
    }
  }
}

bool ended_at_a_limit(const api::TrainJobStatus& status) {
  const api::Condition* failed = status.find_condition(api::condition::kFailed);
  return failed != nullptr && (failed->reason == kDeadlineExceededReason ||
                               failed->reason == kBackoffLimitExceededReason);
}

api::CleanPodPolicy clean_pod_policy_of(const JobState& state, const api::TrainJobStatus& status) {
  using enum api::CleanPodPolicy;
  const auto policy = state.observed.job.spec.run_policy.clean_pod_policy.value_or(kRunning);
  const bool deletes_running =
      state.observed.traits.limits_delete_running && ended_at_a_limit(status);
  return policy == kNone && deletes_running ? kRunning : policy;
}

}  // namespace

void clean_up(const JobState& state, api::TrainJobStatus& status, Timer& timer, Plan& plan) {
  const auto& policy = state.observed.job.spec.run_policy;
  switch (clean_pod_policy_of(state, status)) {
    case api::CleanPodPolicy::kNone:
      break;
    case api::CleanPodPolicy::kRunning:
      remove_workers(state, status, plan, false, DeletionReason::kJobFinished,
                     state.observed.traits.service_per_worker);
      break;
    case api::CleanPodPolicy::kAll:
      remove_workers(state, status, plan, true, DeletionReason::kJobFinished);
      remove_owned_resources(state, plan);
      break;
  }
  remove_inactive_resources(state, plan);
  if (policy.ttl_seconds_after_finished && status.completion_time) {
    plan.delete_job =
        timer.due(*status.completion_time + seconds(*policy.ttl_seconds_after_finished));
  }
}

void suspend(const JobState& state, api::TrainJobStatus& status, Plan& plan) {
  remove_workers(state, status, plan, true, DeletionReason::kJobSuspended);
  // A job that has never started has no resources. Kueue creates its jobs suspended.
  if (status.nominal_workers > 0) remove_suspended_resources(state, plan);
  status.start_time.reset();
  status.succeeded_workers.clear();
}

std::optional<JobEnd> check_deadline(const JobState& state, const api::TrainJobStatus& status,
                                     Timer& timer) {
  const auto limit = state.observed.job.spec.run_policy.active_deadline_seconds;
  if (!limit || !status.start_time) return std::nullopt;
  if (!timer.due(*status.start_time + seconds(*limit))) return std::nullopt;
  return JobEnd{JobEndCause::kDeadlineExceeded, std::nullopt, 0};
}

}  // namespace tilewright::policy
