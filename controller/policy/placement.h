// Checks whether any node could run a worker, before the scheduler has tried.
#pragma once

#include <optional>
#include <vector>

#include "controller/policy/blocked.h"
#include "controller/policy/observed.h"

namespace tilewright::policy {

// Returns std::nullopt if some node could run a worker if it were empty: the node has the labels of
// the job's nodeSelector, is not cordoned and has at least the worker's resources allocatable. The
// scheduler checks affinities and taints.
std::optional<BlockedReason> find_unschedulable_reason(const api::TrainJob& job,
                                                       const std::vector<Node>& nodes);

}  // namespace tilewright::policy
