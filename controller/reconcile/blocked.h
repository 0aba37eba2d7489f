// The one condition that says in plain words why a job does not run and what happens next.
#pragma once

#include <optional>
#include <string>

#include "controller/reconcile/restarts.h"
#include "controller/reconcile/situation.h"

namespace tilewright::reconcile {

struct Obstacle {
  std::string reason;   // CamelCase; stays the same while the cause does
  std::string message;  // likewise: no countdowns, nothing that changes from look to look
};

// Nothing: the job runs, or its workers are being started.
std::optional<Obstacle> find_obstacle(const Situation& situation, const Restarts& restarts,
                                      const api::TrainJobStatus& status, Timer& timer);

}  // namespace tilewright::reconcile
