// The gang policy: schedulingPolicy as a request to a gang scheduler (Volcano, scheduler-plugins).
#pragma once

#include <optional>

#include "controller/policy/job_state.h"

namespace tilewright::policy {

// Returns std::nullopt if the job has no schedulingPolicy or the runtime has no gang scheduler.
std::optional<Gang> gang_of(const JobState& state);

}  // namespace tilewright::policy
