// Times that other machines wrote, brought in line with this one's clock: a node's or a former
// leader's may be minutes ahead or behind, and then a back-off or a deadline would wait for them.
#pragma once

#include "controller/reconcile/observed.h"

namespace tilewright::reconcile {

// Nothing lies in the future after it, no container began before its pod was created, and none
// ended before it began.
void take_own_time(Observed& observed, WallTime now);

}  // namespace tilewright::reconcile
