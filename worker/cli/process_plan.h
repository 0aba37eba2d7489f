// The part of the host's CPUs that this process of a training has.
#pragma once

#include <optional>

#include "common/host/cpu_plan.h"
#include "worker/cli/variables.h"
#include "worker/elastic/launcher.h"

namespace tilewright::cli {

// The processes of a launcher divide the CPUs of `host` by its plan, unless the launcher has bound
// each to its own; the quota is for all of them. Without a launcher LOCAL_WORLD_SIZE and LOCAL_RANK
// say the same, as the agent sets them. Throws Failure(kUsage) for variables that are no integers.
host::ProcessPlan process_plan(host::Host host,
                               const std::optional<elastic::LaunchedProcess>& launched,
                               bool bound_by_launcher, const GetVariable& variable);

}  // namespace tilewright::cli
