#include "controller/reconcile/blocked.h"

#include <fmt/format.h>

#include <algorithm>

#include "controller/reconcile/failure.h"
#include "controller/reconcile/placement.h"
#include "controller/reconcile/pods.h"

namespace tilewright::reconcile {
namespace {

// Reading a model and joining takes seconds.
constexpr std::chrono::seconds kTimeToJoin{60};

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

// The name in the scheduler's `persistentvolumeclaim "NAME" not found`; empty: it says no such
// thing.
std::string missing_claim(const std::string& message) {
  constexpr std::string_view kBefore = "persistentvolumeclaim \"";
  constexpr std::string_view kAfter = "\" not found";
  const std::size_t start = message.find(kBefore);
  if (start == std::string::npos) return "";
  const std::size_t name = start + kBefore.size();
  const std::size_t end = message.find(kAfter, name);
  return end == std::string::npos ? "" : message.substr(name, end - name);
}

Obstacle explain_stuck(const api::TrainJob& job, const Worker& worker) {
  const std::string& reason = worker.reason;
  const std::string detail = worker.message.empty() ? "" : ": " + worker.message;
  if (const std::string claim = missing_claim(worker.message); !claim.empty()) {
    return {"ClaimNotFound",
            fmt::format("there is no PersistentVolumeClaim {} in this namespace; workers start as "
                        "soon as there is",
                        claim)};
  }
  if (worker.message.find("ReadWriteOncePod access mode") != std::string::npos) {
    return {"ClaimInUse",
            fmt::format("a PersistentVolumeClaim of {} may be used by one pod alone "
                        "(ReadWriteOncePod), and another pod uses it; it is placed as soon as "
                        "that pod has gone",
                        worker.name)};
  }
  if (reason == "FailedAttachVolume") {
    return {reason, fmt::format("a volume of {} cannot be attached to its node{}; it starts as "
                                "soon as the volume is free",
                                worker.name, detail)};
  }
  if (reason == "Unschedulable") {
    return {reason, fmt::format("no node can take {}{}; it is placed as soon as one can",
                                worker.name, detail)};
  }
  if (reason == "SchedulingGated") {
    return {reason, fmt::format("{} waits for its scheduling gates to be removed", worker.name)};
  }
  // A kubelet tells these two in turn, with different details: one reason and one sentence for
  // both.
  if (reason == "ErrImagePull" || reason == "ImagePullBackOff" || reason == "InvalidImageName" ||
      reason == "ErrImageNeverPull" || reason == "RegistryUnavailable") {
    return {"ImageNotAvailable",
            fmt::format("the image {} of {} cannot be had; the kubelet tries again until it can",
                        job.spec.worker.image, worker.name)};
  }
  return {reason, fmt::format("{} cannot be started{}; it is tried again until the cause goes",
                              worker.name, detail)};
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
    if (is_outdated(situation, *worker)) continue;
    if (is_stuck(*worker)) return explain_stuck(job, *worker);
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
