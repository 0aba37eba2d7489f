// Which workers to create and which surplus ones to delete.
#pragma once

#include <set>

#include "controller/reconcile/restarts.h"
#include "controller/reconcile/situation.h"

namespace tilewright::reconcile {

// Creates every missing index whose time has come, and never one that still has a worker, however
// dead: names exclude each other, and so do two lives of one index. Deletes those that a smaller
// number of replicas makes surplus, and the outdated ones. Returns the indices that will not be
// there soon.
std::set<int> plan_workers(const Situation& situation, const Restarts& restarts,
                           api::TrainJobStatus& status, Timer& timer, Plan& plan);

// Whether a Pending worker waits for something that may never come, rather than for its start.
bool is_stuck(const Worker& worker);

// Whether it is stuck as an earlier generation of the job asked for it: image, resources or
// nodeSelector may be others by now. It is made anew; one that runs is left alone.
bool is_outdated(const Situation& situation, const Worker& worker);

}  // namespace tilewright::reconcile
