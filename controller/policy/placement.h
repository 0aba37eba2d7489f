// Checks whether any node could run a worker, before the scheduler has tried.
#pragma once

#include <optional>
#include <vector>

#include "controller/policy/blocked.h"
#include "controller/policy/observed.h"
#include "controller/policy/plan.h"

namespace tilewright::policy {

// Returns std::nullopt if some node could run a worker if it were empty: the node has the labels of
// the job's nodeSelector, is not cordoned and has at least the worker's resources allocatable. The
// scheduler checks affinities and taints.
std::optional<BlockedReason> find_unschedulable_reason(const api::TrainJob& job,
                                                       const std::vector<Node>& nodes);

// The constraint of an exact job whose instruction set is recorded; empty for any other job. The
// label is required only if some node has it: node feature discovery then labels all nodes.
NodeConstraint node_constraint_of(const api::TrainJob& job, const api::TrainJobStatus& status,
                                  const std::vector<Node>* nodes);

// True if a node other than `lacking` could run a worker if it were empty, under the constraint.
bool has_other_node(const api::TrainJob& job, const NodeConstraint& constraint,
                    const std::string& lacking, const std::vector<Node>& nodes);

}  // namespace tilewright::policy
