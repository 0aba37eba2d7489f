// Kubernetes events for a change of the status. They are computed from the status before and after
// it, so each event is emitted once, even if the job is reconciled repeatedly.
#pragma once

#include <vector>

#include "controller/policy/observed.h"
#include "controller/policy/plan.h"

namespace tilewright::policy {

std::vector<Event> events_between(const Observed& observed, const api::TrainJobStatus& before,
                                  const api::TrainJobStatus& after);

}  // namespace tilewright::policy
