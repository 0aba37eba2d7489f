#include "controller/policy/blocked.h"

#include <algorithm>
#include <utility>

#include "controller/policy/messages.h"
#include "controller/policy/placement.h"
#include "controller/policy/pods.h"
#include "controller/policy/success.h"

namespace tilewright::policy {
namespace {

// Loading the model and joining takes seconds.
constexpr std::chrono::seconds kJoinGracePeriod{60};
// After the termination grace period a kubelet kills the container, unmounts and reports.
constexpr std::chrono::seconds kDeletionGracePeriod{30};

std::optional<api::FailureRecord> last_failure(const api::TrainJobStatus& status, int index) {
  const auto last =
      std::find_if(status.failures.rbegin(), status.failures.rend(),
                   [&](const api::FailureRecord& record) { return record.index == index; });
  if (last == status.failures.rend()) return std::nullopt;
  return *last;
}

// True if a desired worker that has not succeeded has no pod, or its pod has no node.
bool has_unscheduled_workers(const JobState& state, const api::TrainJobStatus& status) {
  for (int index = 0; index < state.sizes.desired; ++index) {
    if (has_succeeded(state, status, index)) continue;
    const auto found = state.workers.find(index);
    if (found == state.workers.end()) return true;
    if (found->second->phase == WorkerPhase::kPending && found->second->node.empty()) return true;
  }
  return false;
}

// True if all desired workers have been running for kJoinGracePeriod without an epoch.
bool has_not_joined(const JobState& state, const api::TrainJobStatus& status, Timer& timer) {
  if (!runs_tilewright(state.observed)) return false;
  if (state.observed.rendezvous && state.observed.rendezvous->epoch > 0) return false;
  WallTime latest{};
  for (int index = 0; index < state.sizes.desired; ++index) {
    const auto found = state.workers.find(index);
    if (found == state.workers.end() || found->second->phase != WorkerPhase::kRunning) {
      return false;
    }
    latest = std::max(latest, found->second->started.value_or(state.now));
  }
  // A report after the workers' start shows that they have joined. They are about to exit, or they
  // are reconnecting to a restarted coordinator.
  if (status.progress && status.progress->updated >= latest) return false;
  return timer.due(latest + kJoinGracePeriod);
}

// Returns null if every worker of the rendezvous can use the job's instruction set, or is being
// moved to a node that has it.
const Worker* find_worker_without_isa(const JobState& state, const api::TrainJobStatus& status) {
  if (!state.observed.rendezvous) return nullptr;
  for (const auto& [index, member] : state.observed.rendezvous->members) {
    const auto found = state.workers.find(index);
    if (!member.lacks_isa || found == state.workers.end()) continue;
    const auto& moved_from = status.excluded_nodes;
    if (std::ranges::find(moved_from, found->second->node) != moved_from.end()) continue;
    return found->second;
  }
  return nullptr;
}

// The worker's name is in use until its pod is gone. A lost worker is deleted by force and cannot
// be stuck.
std::optional<BlockedReason> find_stuck_deletion(const Worker& worker, Timer& timer) {
  if (!worker.terminating || !worker.deletion_deadline ||
      !timer.due(*worker.deletion_deadline + kDeletionGracePeriod)) {
    return std::nullopt;
  }
  if (worker.node_state != NodeState::kReady && !worker.node.empty()) {
    return blocked::NodeNotReady{&worker};
  }
  return blocked::DeletionStuck{&worker};
}

// Returns the worker of the job that uses the volume; null if another pod uses it too.
const Worker* find_holder(const JobState& state, const StartProblem& problem) {
  const Worker* first = nullptr;
  for (const std::string& pod : problem.pods) {
    const auto found = std::ranges::find_if(
        state.workers, [&](const auto& entry) { return entry.second->name == pod; });
    if (found == state.workers.end()) return nullptr;
    if (first == nullptr) first = found->second;
  }
  return first;
}

}  // namespace

std::optional<BlockedReason> find_blocked_reason(const JobState& state, const Restarts& restarts,
                                                 const api::TrainJobStatus& status, Timer& timer) {
  const api::TrainJob& job = state.observed.job;
  // Checked first: the worker is not restarted while the condition has this reason.
  if (!restarts.waits_for_spec_change.empty()) {
    const int index = *restarts.waits_for_spec_change.begin();
    auto failure = last_failure(status, index);
    if (failure && failure->reason == failure_reason::kCheckpointMissing) {
      return blocked::CheckpointMissing{index, std::move(failure)};
    }
    return blocked::OutOfMemory{index, std::move(failure)};
  }
  if (const auto& rejection = state.observed.rejection) return blocked::Rejected{*rejection};
  if (state.observed.nodes && has_unscheduled_workers(state, status)) {
    if (auto reason = find_unschedulable_reason(job, *state.observed.nodes)) return reason;
  }
  for (const auto& [index, worker] : state.workers) {
    // Ignore the problem of a worker that is being replaced.
    if (is_outdated(state, *worker) || is_lost(state, *worker)) continue;
    if (is_stuck(*worker)) {
      return blocked::NotStarting{worker, find_holder(state, *worker->start_problem)};
    }
    if (auto stuck_deletion = find_stuck_deletion(*worker, timer)) return stuck_deletion;
  }
  for (const auto& [index, time] : restarts.not_before) {
    if (state.workers.contains(index) || time <= state.now) continue;
    if (auto failure = last_failure(status, index)) {
      return blocked::BackOff{*std::move(failure), time};
    }
  }
  if (const Worker* worker = find_worker_without_isa(state, status)) {
    return blocked::LacksInstructionSet{worker, state.observed.rendezvous->isa};
  }
  if (has_not_joined(state, status, timer)) return blocked::NotJoined{};
  return std::nullopt;
}

}  // namespace tilewright::policy
