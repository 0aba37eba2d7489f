// The owned resources of a job: the job key's Secret, the Service, the NetworkPolicy, the PodGroup.
#pragma once

#include "controller/policy/job_state.h"

namespace tilewright::policy {

// Plans the creation of the resources that the job needs and that are not known to exist.
void plan_owned_resources(const JobState& state, Plan& plan);

// Plans the removal of all owned resources, including those not known to exist, because a previous
// leader may have created them.
void remove_owned_resources(const JobState& state, Plan& plan);
// Those that only a job that runs needs: traits.removed_when_inactive.
void remove_inactive_resources(const JobState& state, Plan& plan);
// The same, and the Services of the workers if traits.service_per_worker.
void remove_suspended_resources(const JobState& state, Plan& plan);

}  // namespace tilewright::policy
