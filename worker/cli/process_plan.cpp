#include "worker/cli/process_plan.h"

#include <algorithm>

#include "common/contract/environment.h"

namespace tilewright::cli {

host::ProcessPlan process_plan(host::Host host,
                               const std::optional<elastic::LaunchedProcess>& launched,
                               bool bound_by_launcher, const GetVariable& variable) {
  const int processes = launched ? std::max(1, launched->local_world)
                                 : integer_variable(variable, env::kLocalWorldSize, 1, 1);
  if (bound_by_launcher) {
    if (host.quota) *host.quota /= processes;
    return host::plan_cpus(host, 1).of(0);
  }
  const int local_rank =
      launched ? launched->local_rank : integer_variable(variable, env::kLocalRank, 0, 0);
  return host::plan_cpus(host, processes).of(local_rank);
}

}  // namespace tilewright::cli
