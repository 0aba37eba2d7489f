// Why a worker that is there does not start, in a sentence that says what happens next.
#pragma once

#include "controller/reconcile/blocked.h"
#include "controller/reconcile/situation.h"

namespace tilewright::reconcile {

// Of a worker that is_stuck().
Obstacle explain_stuck(const Situation& situation, const Worker& worker);

}  // namespace tilewright::reconcile
