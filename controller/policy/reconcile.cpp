#include "controller/policy/reconcile.h"

#include <algorithm>
#include <utility>

#include "controller/api/validate.h"
#include "controller/policy/blocked.h"
#include "controller/policy/cleanup.h"
#include "controller/policy/conditions.h"
#include "controller/policy/elasticity.h"
#include "controller/policy/events.h"
#include "controller/policy/gang.h"
#include "controller/policy/job_state.h"
#include "controller/policy/owned_resources.h"
#include "controller/policy/pods.h"
#include "controller/policy/restarts.h"
#include "controller/policy/status.h"
#include "controller/policy/success.h"

namespace tilewright::policy {
namespace {

void finish_plan(const JobState& state, const api::TrainJobStatus& wanted, Timer& timer,
                 Plan& plan) {
  const api::TrainJob& job = state.observed.job;
  if (needs_status_write(state, job.status, wanted, timer)) {
    plan.events = events_between(state.observed, job.status, wanted);
    plan.status = wanted;
  }
  plan.requeue_after = timer.requeue_after();
}

Plan plan_ended(const JobState& state, api::TrainJobStatus status,
                const std::optional<JobEnd>& end) {
  Plan plan;
  Timer timer(state.now);
  plan.finished = true;
  if (end) {
    status.phase = phase_of(*end);
    status.completion_time = std::chrono::floor<std::chrono::seconds>(state.now);
    set_conditions(state, end, std::nullopt, status);
  }
  clean_up(state, status, timer, plan);
  fill_status(state, status);
  finish_plan(state, status, timer, plan);
  return plan;
}

bool is_active(const Worker& worker) {
  return worker.phase == WorkerPhase::kPending || worker.phase == WorkerPhase::kRunning;
}

Plan plan_suspended(const JobState& state, api::TrainJobStatus status,
                    const std::optional<BlockedReason>& blocked_reason) {
  Plan plan;
  Timer timer(state.now);
  suspend(state, status, plan);
  // Workers that are being stopped write a checkpoint together; a refused one would exit without
  // it.
  if (status.nominal_workers > 0 && std::ranges::any_of(state.observed.workers, is_active)) {
    plan.membership = membership_of(state, {});
  }
  status.training_complete_time.reset();
  status.phase = api::Phase::kSuspended;
  set_conditions(state, std::nullopt, blocked_reason, status);
  fill_status(state, status);
  finish_plan(state, status, timer, plan);
  return plan;
}

// Returns the plan of a job that has finished or is suspended, and std::nullopt for any other job.
std::optional<Plan> plan_inactive(const JobState& state, const api::TrainJobStatus& status,
                                  const std::optional<BlockedReason>& blocked_reason) {
  if (is_final(status.phase)) return plan_ended(state, status, std::nullopt);
  if (!state.observed.job.spec.run_policy.suspend.value_or(false)) return std::nullopt;
  return plan_suspended(state, status, blocked_reason);
}

}  // namespace

Plan reconcile(const Observed& observed, WallTime now) {
  const api::TrainJob& job = observed.job;
  // The garbage collector deletes the workers with the job.
  if (job.metadata.deletion_timestamp) return {};
  const JobState state = classify(observed, now);
  api::TrainJobStatus status = job.status;
  if (auto plan = plan_inactive(state, status, std::nullopt)) return *std::move(plan);

  Plan plan;
  Timer timer(now);
  freeze_sizes(job, status);
  if (!status.start_time) status.start_time = std::chrono::floor<std::chrono::seconds>(now);

  record_success(state, status);
  const Success success = check_success(state, status, timer);
  if (success.end) return plan_ended(state, std::move(status), success.end);
  std::set<int> absent;
  Restarts restarts;
  std::optional<BlockedReason> blocked_reason;
  if (!success.training_complete) {
    if (const auto end = check_deadline(state, status, timer)) {
      return plan_ended(state, std::move(status), end);
    }
    restarts = plan_restarts(state, status);
    if (restarts.end) return plan_ended(state, std::move(status), restarts.end);
    plan.deletions = restarts.deletions;
    schedule_silence_check(state, timer);
    absent = plan_workers(state, restarts, status, timer, plan);
    blocked_reason = find_blocked_reason(state, restarts, status, timer);
    plan_owned_resources(state, plan);
    plan.gang = gang_of(state);
    status.phase = phase_of(state, status);
  }
  set_conditions(state, std::nullopt, blocked_reason, status);
  plan.membership = membership_of(state, absent);
  fill_status(state, status);
  finish_plan(state, status, timer, plan);
  return plan;
}

Plan reconcile_invalid(const Observed& found, const std::string& error, WallTime now) {
  if (found.job.metadata.deletion_timestamp) return {};
  Observed observed = found;
  api::drop_invalid_limits(observed.job.spec.run_policy);
  const JobState state = classify(observed, now);
  api::TrainJobStatus status = observed.job.status;
  const BlockedReason blocked_reason = blocked::InvalidSpec{error};
  if (auto plan = plan_inactive(state, status, blocked_reason)) return *std::move(plan);

  Plan plan;
  Timer timer(now);
  record_success(state, status);
  const Success success = check_success(state, status, timer);
  if (success.end) return plan_ended(state, std::move(status), success.end);
  if (!success.training_complete) {
    if (const auto end = check_deadline(state, status, timer)) {
      return plan_ended(state, std::move(status), end);
    }
  }
  set_conditions(state, std::nullopt, blocked_reason, status);
  fill_status(state, status);
  if (status.nominal_workers > 0) plan.membership = membership_of(state, {});
  finish_plan(state, status, timer, plan);
  return plan;
}

}  // namespace tilewright::policy
