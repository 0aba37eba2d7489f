#include "controller/policy/pods.h"

#include <algorithm>

#include "controller/policy/placement.h"
#include "controller/policy/success.h"

namespace tilewright::policy {
namespace {

// An epoch waits for a worker that restarts within this time: forming an epoch without it and
// another one with it would cost about as much.
constexpr std::chrono::seconds kShortDelay{5};

// True if the worker waits on a node that lacks the job's instruction set and another node could
// run it.
bool should_move(const JobState& state, const api::TrainJobStatus& status, const Worker& worker) {
  const auto& observed = state.observed;
  if (!observed.rendezvous || !observed.nodes || worker.terminating || worker.node.empty()) {
    return false;
  }
  const auto member = observed.rendezvous->members.find(worker.index);
  if (member == observed.rendezvous->members.end() || !member->second.lacks_isa) return false;
  if (status.excluded_nodes.size() >= api::kMaxExcludedNodes) return false;
  const NodeConstraint constraint = node_constraint_of(observed.job, status, observed.nodes.get());
  return has_other_node(observed.job, constraint, worker.node, *observed.nodes);
}

}  // namespace

bool is_stuck(const Worker& worker) {
  return worker.phase == WorkerPhase::kPending && !worker.terminating && worker.start_problem;
}

bool is_outdated(const JobState& state, const Worker& worker) {
  return is_stuck(worker) && worker.generation &&
         *worker.generation != state.observed.job.metadata.generation;
}

std::set<int> plan_workers(const JobState& state, const Restarts& restarts,
                           api::TrainJobStatus& status, Timer& timer, Plan& plan) {
  std::set<int> absent;
  for (int index = 0; index < state.sizes.desired; ++index) {
    const auto found = state.workers.find(index);
    if (found != state.workers.end()) {
      if (is_lost(state, *found->second)) continue;  // plan_restarts() replaces it
      if (is_outdated(state, *found->second)) {
        mark_counted(status, found->second->uid);
        plan.deletions.push_back(deletion_of(state, *found->second, DeletionReason::kSpecChanged));
      } else if (should_move(state, status, *found->second)) {
        const std::string& node = found->second->node;
        if (std::ranges::find(status.excluded_nodes, node) == status.excluded_nodes.end()) {
          status.excluded_nodes.push_back(node);
        }
        mark_counted(status, found->second->uid);
        plan.deletions.push_back(
            deletion_of(state, *found->second, DeletionReason::kInstructionSetMissing));
      } else if (is_stuck(*found->second)) {
        absent.insert(index);
      }
      continue;
    }
    if (restarts.waits_for_spec_change.contains(index) || has_succeeded(state, status, index)) {
      absent.insert(index);
      continue;
    }
    const auto not_before = restarts.not_before.find(index);
    if (not_before != restarts.not_before.end() && !timer.due(not_before->second)) {
      if (not_before->second - state.now > kShortDelay) absent.insert(index);
      continue;
    }
    plan.creations.push_back(
        {worker_name(state.observed.job, state.observed.traits, index), index});
  }
  if (!plan.creations.empty()) {
    plan.node_constraint =
        node_constraint_of(state.observed.job, status, state.observed.nodes.get());
  }
  for (const Worker* worker : state.surplus) {
    mark_counted(status, worker->uid);
    if (worker->terminating && !is_lost(state, *worker)) continue;
    plan.deletions.push_back(deletion_of(state, *worker, DeletionReason::kScaledDown));
  }
  return absent;
}

}  // namespace tilewright::policy
