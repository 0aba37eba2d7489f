#include "controller/policy/events.h"

#include <algorithm>

#include "controller/policy/messages.h"

namespace tilewright::policy {
namespace {

bool is_true(const api::Condition* condition) {
  return condition != nullptr && condition->status == api::ConditionStatus::kTrue;
}

const std::vector<api::SlowWorker>& slow_workers(const api::TrainJobStatus& status) {
  static const std::vector<api::SlowWorker> kNone;
  return status.progress ? status.progress->slow_workers : kNone;
}

// Whether the process of `worker` is in the list.
bool contains(const std::vector<api::SlowWorker>& list, const api::SlowWorker& worker) {
  return std::ranges::any_of(list, [&](const api::SlowWorker& one) {
    return one.index == worker.index && one.process == worker.process;
  });
}

}  // namespace

std::vector<Event> events_between(const Observed& observed, const api::TrainJobStatus& before,
                                  const api::TrainJobStatus& after) {
  namespace condition = api::condition;
  std::vector<Event> events;
  const auto became_true = [&](const char* type) -> const api::Condition* {
    const api::Condition* now = after.find_condition(type);
    return is_true(now) && !is_true(before.find_condition(type)) ? now : nullptr;
  };
  // If `reason` is null, the event has the reason of the condition.
  const auto emit = [&](const char* type, bool warning, const char* reason) {
    const api::Condition* now = became_true(type);
    if (now != nullptr) {
      events.push_back({warning, reason == nullptr ? now->reason : reason, now->message});
    }
  };

  emit(condition::kCreated, false, event_reason::kCreated);
  if (became_true(condition::kCreated) != nullptr) {
    for (const std::string& warning : observed.warnings) {
      events.push_back({true, event_reason::kValidationWarning, warning});
    }
  }
  for (const api::FailureRecord& record : after.failures) {
    if (std::ranges::find(before.failures, record) != before.failures.end()) continue;
    events.push_back({true, event_reason::kWorkerFailed, describe_failure(observed.job, record)});
  }
  emit(condition::kSuspended, false, event_reason::kSuspended);
  if (is_true(before.find_condition(condition::kSuspended)) &&
      !is_true(after.find_condition(condition::kSuspended))) {
    events.push_back({false, event_reason::kResumed, messages::kResumedEvent});
  }
  emit(condition::kRunning, false, event_reason::kRunning);
  for (const api::SlowWorker& worker : slow_workers(after)) {
    if (contains(slow_workers(before), worker)) continue;
    events.push_back({true, event_reason::kWorkerSlow, describe_slow_worker(worker)});
  }
  const api::Condition* blocked = after.find_condition(condition::kBlocked);
  const api::Condition* blocked_before = before.find_condition(condition::kBlocked);
  if (is_true(blocked) && (!is_true(blocked_before) || blocked_before->reason != blocked->reason)) {
    events.push_back({true, blocked->reason, blocked->message});
  }
  emit(condition::kSucceeded, false, event_reason::kSucceeded);
  emit(condition::kFailed, true, nullptr);
  return events;
}

}  // namespace tilewright::policy
