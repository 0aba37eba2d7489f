// Corrects times that other machines wrote. The clock of a node or of a previous leader may be
// minutes ahead of this machine's, which would delay back-offs and deadlines.
#pragma once

#include "controller/policy/observed.h"

namespace tilewright::policy {

// Clamps all times so that none is later than `now`, no container starts before its pod is created,
// and no container finishes before it starts.
void correct_clock_skew(Observed& observed, WallTime now);

}  // namespace tilewright::policy
