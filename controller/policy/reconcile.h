// reconcile(): what a runtime does next for a job. A pure function of its arguments: no client,
// clock, thread or log.
#pragma once

#include <string>

#include "controller/policy/observed.h"
#include "controller/policy/plan.h"

namespace tilewright::policy {

// Level-triggered: it depends on the observed state, not on events, and remembers only what the
// job's status holds. After a plan has been applied and nothing else has changed, the next plan is
// empty. The job must be valid and have defaults applied.
Plan reconcile(const Observed& observed, WallTime now);

// For a job that the API server accepted but that does not decode or validate. Running workers keep
// training, none is created or restarted, and the condition Blocked gives `error`, a sentence
// without a full stop. Success, deadline, suspension and clean-up work as for a valid job: they
// need only the run policy.
Plan reconcile_invalid(const Observed& observed, const std::string& error, WallTime now);

}  // namespace tilewright::policy
