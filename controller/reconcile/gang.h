// schedulingPolicy: what a gang scheduler (Volcano, scheduler-plugins) is asked to place together.
#pragma once

#include <optional>

#include "controller/reconcile/situation.h"

namespace tilewright::reconcile {

// Nothing where the manifest has no schedulingPolicy or the runtime no gangs.
std::optional<Gang> gang_of(const Situation& situation);

}  // namespace tilewright::reconcile
