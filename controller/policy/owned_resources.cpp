#include "controller/policy/owned_resources.h"

#include <algorithm>

namespace tilewright::policy {
namespace {

std::set<OwnedResource> wanted(const Observed& observed) {
  std::set<OwnedResource> owned_resources = observed.runtime.owned_resources;
  if (!observed.job.spec.run_policy.scheduling_policy)
    owned_resources.erase(OwnedResource::kPodGroup);
  return owned_resources;
}

void remove(const JobState& state, const std::set<OwnedResource>& unneeded, Plan& plan) {
  const Observed& observed = state.observed;
  for (const OwnedResource owned_resource : wanted(observed)) {
    if (!unneeded.contains(owned_resource) ||
        observed.removed_owned_resources.contains(owned_resource)) {
      continue;
    }
    if (std::ranges::find(plan.remove, owned_resource) == plan.remove.end()) {
      plan.remove.push_back(owned_resource);
    }
  }
}

}  // namespace

void plan_owned_resources(const JobState& state, Plan& plan) {
  const Observed& observed = state.observed;
  for (const OwnedResource owned_resource : wanted(observed)) {
    if (!observed.owned_resources.contains(owned_resource)) plan.ensure.push_back(owned_resource);
  }
}

void remove_owned_resources(const JobState& state, Plan& plan) {
  remove(state, wanted(state.observed), plan);
}

void remove_inactive_resources(const JobState& state, Plan& plan) {
  remove(state, state.observed.traits.removed_when_inactive, plan);
}

void remove_suspended_resources(const JobState& state, Plan& plan) {
  const JobTraits& traits = state.observed.traits;
  remove(state, traits.removed_when_inactive, plan);
  if (traits.service_per_worker) remove(state, {OwnedResource::kHeadlessService}, plan);
}

}  // namespace tilewright::policy
