#include "controller/policy/gang.h"

#include <algorithm>

namespace tilewright::policy {

Gang make_gang(const api::SchedulingPolicy& policy, std::int64_t min_workers,
               std::int64_t workers) {
  Gang gang;
  gang.min_member = std::min<std::int64_t>(policy.min_available.value_or(min_workers), workers);
  gang.queue = policy.queue.value_or("");
  gang.priority_class = policy.priority_class.value_or("");
  gang.schedule_timeout_seconds = policy.schedule_timeout_seconds;
  return gang;
}

std::optional<Gang> gang_of(const JobState& state) {
  const auto& policy = state.observed.job.spec.run_policy.scheduling_policy;
  if (!policy || !state.observed.runtime.owned_resources.contains(OwnedResource::kPodGroup)) {
    return std::nullopt;
  }
  return make_gang(*policy, state.sizes.min, state.sizes.desired);
}

}  // namespace tilewright::policy
