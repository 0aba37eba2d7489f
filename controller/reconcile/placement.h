// Whether any node could ever take a worker: said before the scheduler has tried in vain.
#pragma once

#include <optional>
#include <vector>

#include "controller/reconcile/blocked.h"
#include "controller/reconcile/observed.h"

namespace tilewright::reconcile {

// Nothing where some node could take a worker if it were empty: it has the labels that the job's
// nodeSelector wants, takes pods, and has at least the worker's resources to give. Affinities and
// taints are the scheduler's to judge.
std::optional<Obstacle> find_no_node(const api::TrainJob& job, const std::vector<Node>& nodes);

}  // namespace tilewright::reconcile
