// The conditions of a job's status.
#pragma once

#include <optional>
#include <string>

#include "controller/api/status.h"
#include "controller/reconcile/blocked.h"
#include "controller/reconcile/situation.h"

namespace tilewright::reconcile {

// Keeps the time of the last transition while the value stays the same.
void set_condition(api::TrainJobStatus& status, const char* type, bool value, std::string reason,
                   std::string message, std::int64_t generation, WallTime now);

// By the phase that `status` has now; Succeeded, Failed, Suspended and Restarting appear with their
// first cause and stay.
void set_conditions(const Situation& situation, const std::optional<JobEnd>& end,
                    const std::optional<Obstacle>& obstacle, api::TrainJobStatus& status);

}  // namespace tilewright::reconcile
