#include "controller/reconcile/gang.h"

#include <algorithm>

namespace tilewright::reconcile {

std::optional<Gang> gang_of(const Situation& situation) {
  const auto& policy = situation.observed.job.spec.run_policy.scheduling_policy;
  if (!policy || !situation.observed.runtime.companions.contains(Companion::kPodGroup)) {
    return std::nullopt;
  }
  Gang gang;
  // More than there will be would never be placed; by default what the training needs at the least.
  gang.min_member = std::min<std::int64_t>(policy->min_available.value_or(situation.sizes.min),
                                           situation.sizes.desired);
  gang.queue = policy->queue.value_or("");
  gang.priority_class = policy->priority_class.value_or("");
  gang.schedule_timeout_seconds = policy->schedule_timeout_seconds;
  return gang;
}

}  // namespace tilewright::reconcile
