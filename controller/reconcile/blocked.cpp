#include "controller/reconcile/blocked.h"

#include <fmt/format.h>

#include <algorithm>

#include "controller/reconcile/failure.h"
#include "controller/reconcile/placement.h"
#include "controller/reconcile/pods.h"
#include "controller/reconcile/stuck.h"

namespace tilewright::reconcile {
namespace {

// Reading a model and joining takes seconds.
constexpr std::chrono::seconds kTimeToJoin{60};
// After the time that a worker is given to end a kubelet kills it, unmounts and tells.
constexpr std::chrono::seconds kTimeToClearAway{30};

const api::FailureRecord* last_failure(const api::TrainJobStatus& status, int index) {
  const auto last =
      std::find_if(status.failures.rbegin(), status.failures.rend(),
                   [&](const api::FailureRecord& record) { return record.index == index; });
  return last == status.failures.rend() ? nullptr : &*last;
}

// Some worker is wanted and has no node yet, or no pod at all.
bool waits_for_a_node(const Situation& situation) {
  for (int index = 0; index < situation.sizes.desired; ++index) {
    const auto found = situation.workers.find(index);
    if (found == situation.workers.end()) return true;
    if (found->second->phase == WorkerPhase::kPending && found->second->node.empty()) return true;
  }
  return false;
}

// All that are wanted run, and have for a while, but no epoch of the rendezvous has them.
std::optional<Obstacle> not_joined(const Situation& situation, const api::TrainJobStatus& status,
                                   Timer& timer) {
  if (situation.observed.progress && situation.observed.progress->rendezvous_epoch > 0) {
    return std::nullopt;
  }
  WallTime latest{};
  for (int index = 0; index < situation.sizes.desired; ++index) {
    const auto found = situation.workers.find(index);
    if (found == situation.workers.end() || found->second->phase != WorkerPhase::kRunning) {
      return std::nullopt;
    }
    latest = std::max(latest, found->second->started.value_or(situation.now));
  }
  // They have reported since, so they did join: they are at their end, or the coordinator is new
  // and they come back to it in a moment.
  if (status.progress && status.progress->updated >= latest) return std::nullopt;
  if (!timer.due(latest + kTimeToJoin)) return std::nullopt;
  return Obstacle{"NotJoined",
                  "the workers run but have not joined the rendezvous; their logs may say why"};
}

// Its name stays taken for as long as it is there. One that is lost goes by force, and is no case
// for this.
std::optional<Obstacle> deletion_hangs(const Worker& worker, Timer& timer) {
  if (!worker.terminating || !worker.gone_by || !timer.due(*worker.gone_by + kTimeToClearAway)) {
    return std::nullopt;
  }
  if (!worker.node_ready && !worker.node.empty()) {
    return Obstacle{
        "NodeNotReady",
        fmt::format("{} is being deleted, but {} does not report and cannot confirm its "
                    "end; it is made again as soon as {} does, or as soon as the "
                    "worker is silent at the rendezvous, too",
                    worker.name, worker.node, worker.node)};
  }
  const std::string holder =
      worker.node.empty() ? "a finalizer holds it"
                          : worker.node + " has not confirmed its end, or a finalizer holds it";
  return Obstacle{"DeletionHangs",
                  fmt::format("{} is being deleted and has had its time to end, but is still "
                              "there: {}; it is made again as soon as it has gone",
                              worker.name, holder)};
}

}  // namespace

std::optional<Obstacle> find_obstacle(const Situation& situation, const Restarts& restarts,
                                      const api::TrainJobStatus& status, Timer& timer) {
  const api::TrainJob& job = situation.observed.job;
  // First, because its being there is what keeps the worker from being started again.
  for (const int index : restarts.waits_for_change) {
    const api::FailureRecord* record = last_failure(status, index);
    const std::string who =
        record == nullptr ? api::worker_name(job, index) : in_words(job, *record);
    return Obstacle{"OutOfMemory",
                    who +
                        " again without progress; raise spec.worker.resources.memory: it is "
                        "started again as soon as the job changes"};
  }
  if (const auto& refusal = situation.observed.refusal) {
    return Obstacle{refusal->reason, refusal->message + "; it is tried again until it is allowed"};
  }
  if (situation.observed.nodes && waits_for_a_node(situation)) {
    if (auto no_node = find_no_node(job, *situation.observed.nodes)) return no_node;
  }
  for (const auto& [index, worker] : situation.workers) {
    // One that is being replaced says what was in the way, not what is.
    if (is_outdated(situation, *worker) || is_lost(situation, *worker)) continue;
    if (is_stuck(*worker)) return explain_stuck(situation, *worker);
    if (auto hangs = deletion_hangs(*worker, timer)) return hangs;
  }
  for (const auto& [index, time] : restarts.not_before) {
    if (situation.workers.contains(index) || time <= situation.now) continue;
    const api::FailureRecord* record = last_failure(status, index);
    if (record == nullptr) continue;
    return Obstacle{"BackOff", fmt::format("{}; it is started again at {}", in_words(job, *record),
                                           to_rfc3339(time))};
  }
  return not_joined(situation, status, timer);
}

}  // namespace tilewright::reconcile
