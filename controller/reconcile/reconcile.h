// reconcile(): what to do next for a job. Pure: depends on its arguments alone; no client, clock,
// thread or log.
#pragma once

#include <string>

#include "controller/reconcile/observed.h"
#include "controller/reconcile/plan.h"

namespace tilewright::reconcile {

// Level-triggered: looks at what is, never at what happened; its only memory is the job's status.
// Once its plan has been carried out and nothing else changes, the next plan is empty.
// The job has defaults applied and is valid.
Plan reconcile(const Observed& observed, WallTime now);

// For a job that does not decode or is not valid, though the API server took it: what runs goes on,
// nothing is made or tried again, and the Blocked condition says why. What hangs on the run policy
// alone is carried out as ever: success, deadline, suspension, and the clearing away after the end.
// `why` is a sentence without a full stop.
Plan refuse(const Observed& observed, const std::string& why, WallTime now);

}  // namespace tilewright::reconcile
