#include "controller/policy/gang.h"

#include <algorithm>

namespace tilewright::policy {

std::optional<Gang> gang_of(const JobState& state) {
  const auto& policy = state.observed.job.spec.run_policy.scheduling_policy;
  if (!policy || !state.observed.runtime.owned_resources.contains(OwnedResource::kPodGroup)) {
    return std::nullopt;
  }
  Gang gang;
  // Defaults to minReplicas. At most the number of pods, because the scheduler would wait forever
  // for more.
  gang.min_member =
      std::min<std::int64_t>(policy->min_available.value_or(state.sizes.min), state.sizes.desired);
  gang.queue = policy->queue.value_or("");
  gang.priority_class = policy->priority_class.value_or("");
  gang.schedule_timeout_seconds = policy->schedule_timeout_seconds;
  return gang;
}

}  // namespace tilewright::policy
