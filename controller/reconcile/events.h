// What a person wants to know of a change of the status: derived from the status before and after,
// so that each is told once however often reconcile looks.
#pragma once

#include <vector>

#include "controller/reconcile/observed.h"
#include "controller/reconcile/plan.h"

namespace tilewright::reconcile {

std::vector<Event> events_between(const Observed& observed, const api::TrainJobStatus& before,
                                  const api::TrainJobStatus& after);

}  // namespace tilewright::reconcile
