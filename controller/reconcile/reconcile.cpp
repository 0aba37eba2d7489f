#include "controller/reconcile/reconcile.h"

#include <utility>

#include "controller/reconcile/blocked.h"
#include "controller/reconcile/cleanup.h"
#include "controller/reconcile/conditions.h"
#include "controller/reconcile/elasticity.h"
#include "controller/reconcile/events.h"
#include "controller/reconcile/gang.h"
#include "controller/reconcile/pods.h"
#include "controller/reconcile/restarts.h"
#include "controller/reconcile/services.h"
#include "controller/reconcile/situation.h"
#include "controller/reconcile/status.h"
#include "controller/reconcile/success.h"

namespace tilewright::reconcile {
namespace {

void finish(const Situation& situation, const api::TrainJobStatus& wanted, Timer& timer,
            Plan& plan) {
  const api::TrainJob& job = situation.observed.job;
  if (worth_writing(situation, job.status, wanted, timer)) {
    plan.events = events_between(situation.observed, job.status, wanted);
    plan.status = wanted;
  }
  plan.requeue_after = timer.requeue_after();
}

Plan plan_ended(const Situation& situation, api::TrainJobStatus status,
                const std::optional<JobEnd>& end) {
  Plan plan;
  Timer timer(situation.now);
  plan.finished = true;
  if (end) {
    status.phase = end->phase;
    status.completion_time = std::chrono::floor<std::chrono::seconds>(situation.now);
    set_conditions(situation, end, std::nullopt, status);
  }
  clean_up(situation, status, timer, plan);
  fill_in(situation, status);
  finish(situation, status, timer, plan);
  return plan;
}

Plan plan_suspended(const Situation& situation, api::TrainJobStatus status,
                    const std::optional<Obstacle>& obstacle) {
  Plan plan;
  Timer timer(situation.now);
  suspend(situation, status, plan);
  status.training_complete_time.reset();
  status.phase = api::Phase::kSuspended;
  set_conditions(situation, std::nullopt, obstacle, status);
  fill_in(situation, status);
  finish(situation, status, timer, plan);
  return plan;
}

// A job that rests: it has ended, or is suspended.
std::optional<Plan> plan_rest(const Situation& situation, const api::TrainJobStatus& status,
                              const std::optional<Obstacle>& obstacle) {
  if (is_final(status.phase)) return plan_ended(situation, status, std::nullopt);
  if (!situation.observed.job.spec.run_policy.suspend.value_or(false)) return std::nullopt;
  return plan_suspended(situation, status, obstacle);
}

// Of a job that is not valid: a limit that itself is out of range is none.
api::RunPolicy without_wrong_limits(api::RunPolicy policy) {
  const auto keep = [](std::optional<std::int64_t>& limit, std::int64_t least) {
    if (limit && (*limit < least || *limit > api::kMaxSeconds)) limit.reset();
  };
  keep(policy.ttl_seconds_after_finished, 0);
  keep(policy.active_deadline_seconds, 1);
  return policy;
}

}  // namespace

Plan reconcile(const Observed& observed, WallTime now) {
  const api::TrainJob& job = observed.job;
  // The garbage collector takes the workers along.
  if (job.metadata.deletion_timestamp) return {};
  const Situation situation = sort(observed, now);
  api::TrainJobStatus status = job.status;
  if (auto plan = plan_rest(situation, status, std::nullopt)) return *std::move(plan);

  Plan plan;
  Timer timer(now);
  freeze_sizes(job, status);
  if (!status.start_time) status.start_time = std::chrono::floor<std::chrono::seconds>(now);

  note_completion(situation, status);
  const Success success = judge_success(situation, status, timer);
  if (success.end) return plan_ended(situation, std::move(status), success.end);
  std::set<int> absent;
  Restarts restarts;
  std::optional<Obstacle> obstacle;
  if (!success.decided) {
    if (const auto end = judge_deadline(situation, status, timer)) {
      return plan_ended(situation, std::move(status), end);
    }
    restarts = carry_out_restarts(situation, status);
    if (restarts.end) return plan_ended(situation, std::move(status), restarts.end);
    plan.deletions = restarts.deletions;
    watch_for_silence(situation, timer);
    absent = plan_workers(situation, restarts, status, timer, plan);
    obstacle = find_obstacle(situation, restarts, status, timer);
    plan_companions(situation, plan);
    plan.gang = gang_of(situation);
    status.phase = phase_of(situation, status);
  }
  set_conditions(situation, std::nullopt, obstacle, status);
  plan.membership = membership_of(situation, absent);
  fill_in(situation, status);
  finish(situation, status, timer, plan);
  return plan;
}

Plan refuse(const Observed& found, const std::string& why, WallTime now) {
  if (found.job.metadata.deletion_timestamp) return {};
  Observed observed = found;
  observed.job.spec.run_policy = without_wrong_limits(std::move(observed.job.spec.run_policy));
  const Situation situation = sort(observed, now);
  api::TrainJobStatus status = observed.job.status;
  const Obstacle obstacle{"InvalidSpec", why + "; it goes on when that is put right"};
  if (auto plan = plan_rest(situation, status, obstacle)) return *std::move(plan);

  Plan plan;
  Timer timer(now);
  note_completion(situation, status);
  const Success success = judge_success(situation, status, timer);
  if (success.end) return plan_ended(situation, std::move(status), success.end);
  if (!success.decided) {
    if (const auto end = judge_deadline(situation, status, timer)) {
      return plan_ended(situation, std::move(status), end);
    }
  }
  set_conditions(situation, std::nullopt, obstacle, status);
  fill_in(situation, status);
  if (status.nominal_workers > 0) plan.membership = membership_of(situation, {});
  finish(situation, status, timer, plan);
  return plan;
}

}  // namespace tilewright::reconcile
