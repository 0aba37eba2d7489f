#include "controller/policy/conditions.h"

#include <algorithm>
#include <utility>

#include "controller/policy/messages.h"

namespace tilewright::policy {
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

void set_conditions(const JobState& state, const std::optional<JobEnd>& end,
                    const std::optional<BlockedReason>& blocked_reason,
                    api::TrainJobStatus& status) {
  namespace condition = api::condition;
  const api::TrainJob& job = state.observed.job;
  const auto set = [&](const char* type, bool value, const Message& message) {
    set_condition(status, type, value, message.reason, message.text, job.metadata.generation,
                  state.now);
  };
  const auto set_fixed = [&](const char* type, bool value, const FixedMessage& message) {
    set(type, value, {message.reason, message.text});
  };
  const Phase phase = status.phase;
  set_fixed(condition::kCreated, true, messages::kAccepted);

  if (phase == Phase::kSuspended) {
    set_fixed(condition::kSuspended, true, messages::kSuspended);
  } else if (exists(status, condition::kSuspended)) {
    set_fixed(condition::kSuspended, false, messages::kResumed);
  }

  if (phase == Phase::kRunning) {
    set_fixed(condition::kRunning, true, messages::kRunning);
  } else if (end) {
    set(condition::kRunning, false, {message_of(state, *end).reason, messages::kFinished});
  } else if (phase == Phase::kSuspended) {
    set_fixed(condition::kRunning, false, messages::kNotRunningSuspended);
  } else {
    set_fixed(condition::kRunning, false, messages::kNotRunning);
  }

  if (phase == Phase::kRestarting && !status.failures.empty()) {
    set(condition::kRestarting, true,
        {event_reason::kWorkerFailed, describe_failure(job, status.failures.back())});
  } else if (exists(status, condition::kRestarting)) {
    set(condition::kRestarting, false,
        {std::string(api::to_string(phase)), messages::kNotRestarting});
  }

  if (blocked_reason) {
    set(condition::kBlocked, true, message_of(job, *blocked_reason, state.observed.traits));
  } else if (exists(status, condition::kBlocked)) {
    set(condition::kBlocked, false, {std::string(api::to_string(phase)), messages::kNotBlocked});
  }

  if (end) {
    const bool succeeded = phase_of(*end) == Phase::kSucceeded;
    set(succeeded ? condition::kSucceeded : condition::kFailed, true, message_of(state, *end));
  }
}

}  // namespace tilewright::policy
