// Which workers to create, and which surplus or outdated ones to delete.
#pragma once

#include <set>

#include "controller/policy/job_state.h"
#include "controller/policy/restarts.h"

namespace tilewright::policy {

// Creates every missing index whose back-off is over; an index that still has a worker, even a dead
// one, is never created. Deletes surplus workers after a scale-down, outdated ones, and workers
// that another node with the job's instruction set could run. Returns the indices that will not
// join soon.
std::set<int> plan_workers(const JobState& state, const Restarts& restarts,
                           api::TrainJobStatus& status, Timer& timer, Plan& plan);

// True if a Pending worker has a problem that may never resolve by itself.
bool is_stuck(const Worker& worker);

// True if the worker is stuck and was created from an earlier generation of the job: its image,
// resources or nodeSelector may have been fixed since. Such a worker is recreated; a running worker
// never is.
bool is_outdated(const JobState& state, const Worker& worker);

}  // namespace tilewright::policy
