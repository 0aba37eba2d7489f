// The gang policy: schedulingPolicy as a request to a gang scheduler (Volcano, scheduler-plugins).
#pragma once

#include <optional>

#include "controller/policy/job_state.h"

namespace tilewright::policy {

// min_member is minAvailable, by default `min_workers`. At most `workers`, the number of pods,
// because the scheduler would wait forever for more.
Gang make_gang(const api::SchedulingPolicy& policy, std::int64_t min_workers, std::int64_t workers);

// Returns std::nullopt if the job has no schedulingPolicy or the runtime has no gang scheduler.
std::optional<Gang> gang_of(const JobState& state);

}  // namespace tilewright::policy
