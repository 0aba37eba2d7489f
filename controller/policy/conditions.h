// Sets the conditions of a job's status.
#pragma once

#include <optional>
#include <string>

#include "controller/api/status.h"
#include "controller/policy/blocked.h"
#include "controller/policy/job_state.h"

namespace tilewright::policy {

// lastTransitionTime changes only if the value does.
void set_condition(api::TrainJobStatus& status, const char* type, bool value, std::string reason,
                   std::string message, std::int64_t generation, WallTime now);

// Derives the conditions from the phase in `status`. Succeeded, Failed, Suspended, Restarting and
// Blocked are added when they first become true and are never removed.
void set_conditions(const JobState& state, const std::optional<JobEnd>& end,
                    const std::optional<BlockedReason>& blocked_reason,
                    api::TrainJobStatus& status);

}  // namespace tilewright::policy
