#include "controller/reconcile/conditions.h"

#include <algorithm>
#include <utility>

#include "controller/reconcile/failure.h"

namespace tilewright::reconcile {
namespace {

using api::Phase;
using std::chrono::seconds;

bool exists(const api::TrainJobStatus& status, const char* type) {
  return status.find_condition(type) != nullptr;
}

}  // namespace

void set_condition(api::TrainJobStatus& status, const char* type, bool value, std::string reason,
                   std::string message, std::int64_t generation, WallTime now) {
  auto found = std::ranges::find(status.conditions, type, &api::Condition::type);
  if (found == status.conditions.end()) {
    found = status.conditions.insert(found, api::Condition{});
    found->type = type;
  }
  const auto wanted = value ? api::ConditionStatus::kTrue : api::ConditionStatus::kFalse;
  if (found->status != wanted) found->last_transition_time = std::chrono::floor<seconds>(now);
  found->status = wanted;
  found->reason = std::move(reason);
  found->message = std::move(message);
  found->observed_generation = generation;
}

void set_conditions(const Situation& situation, const std::optional<JobEnd>& end,
                    const std::optional<Obstacle>& obstacle, api::TrainJobStatus& status) {
  namespace condition = api::condition;
  const api::TrainJob& job = situation.observed.job;
  const auto set = [&](const char* type, bool value, std::string reason, std::string message) {
    set_condition(status, type, value, std::move(reason), std::move(message),
                  job.metadata.generation, situation.now);
  };
  const Phase phase = status.phase;
  set(condition::kCreated, true, "JobAccepted", "the job was taken up");

  if (phase == Phase::kSuspended) {
    set(condition::kSuspended, true, "Suspended", "spec.runPolicy.suspend is true");
  } else if (exists(status, condition::kSuspended)) {
    set(condition::kSuspended, false, "Resumed", "spec.runPolicy.suspend is false");
  }

  if (phase == Phase::kRunning) {
    set(condition::kRunning, true, "WorkersRunning", "the workers run");
  } else if (end) {
    set(condition::kRunning, false, end->reason, "the job has ended");
  } else if (phase == Phase::kSuspended) {
    set(condition::kRunning, false, "Suspended", "the job is suspended");
  } else {
    set(condition::kRunning, false, "WaitingForWorkers", "not all workers run");
  }

  if (phase == Phase::kRestarting && !status.failures.empty()) {
    set(condition::kRestarting, true, "WorkerFailed", in_words(job, status.failures.back()));
  } else if (exists(status, condition::kRestarting)) {
    set(condition::kRestarting, false, std::string(api::to_string(phase)),
        "no worker is being restarted");
  }

  if (obstacle) {
    set(condition::kBlocked, true, obstacle->reason, obstacle->message);
  } else if (exists(status, condition::kBlocked)) {
    set(condition::kBlocked, false, std::string(api::to_string(phase)), "nothing is in the way");
  }

  if (end) {
    const bool good = end->phase == Phase::kSucceeded;
    set(good ? condition::kSucceeded : condition::kFailed, true, end->reason, end->message);
  }
}

}  // namespace tilewright::reconcile
