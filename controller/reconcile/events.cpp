#include "controller/reconcile/events.h"

#include <algorithm>

#include "controller/reconcile/failure.h"

namespace tilewright::reconcile {
namespace {

bool is_true(const api::Condition* condition) {
  return condition != nullptr && condition->status == api::ConditionStatus::kTrue;
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
  const auto tell = [&](const char* type, bool warning, const char* reason) {
    const api::Condition* now = became_true(type);
    if (now != nullptr) {
      events.push_back({warning, *reason == '\0' ? now->reason : reason, now->message});
    }
  };

  tell(condition::kCreated, false, "Created");
  if (became_true(condition::kCreated) != nullptr) {
    for (const std::string& sentence : observed.advice) {
      events.push_back({true, "Advice", sentence});
    }
  }
  for (const api::FailureRecord& record : after.failures) {
    if (std::ranges::find(before.failures, record) != before.failures.end()) continue;
    events.push_back({true, "WorkerFailed", in_words(observed.job, record)});
  }
  tell(condition::kSuspended, false, "Suspended");
  if (is_true(before.find_condition(condition::kSuspended)) &&
      !is_true(after.find_condition(condition::kSuspended))) {
    events.push_back({false, "Resumed", "the job goes on from its last checkpoint"});
  }
  tell(condition::kRunning, false, "Running");
  const api::Condition* blocked = after.find_condition(condition::kBlocked);
  const api::Condition* blocked_before = before.find_condition(condition::kBlocked);
  if (is_true(blocked) && (!is_true(blocked_before) || blocked_before->reason != blocked->reason)) {
    events.push_back({true, blocked->reason, blocked->message});
  }
  tell(condition::kSucceeded, false, "Succeeded");
  tell(condition::kFailed, true, "");
  return events;
}

}  // namespace tilewright::reconcile
