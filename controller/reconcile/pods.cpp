#include "controller/reconcile/pods.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace tilewright::reconcile {
namespace {

// An epoch waits for a restart that comes within this time; forming one without the worker and
// another one with it would cost about as much.
constexpr std::chrono::seconds kShortDelay{5};

// Why a pod waits, where it is no plain "being started".
constexpr std::array<std::string_view, 14> kStuck = {
    "Unschedulable",        "SchedulingGated",
    "ErrImagePull",         "ImagePullBackOff",
    "ErrImageNeverPull",    "InvalidImageName",
    "RegistryUnavailable",  "CreateContainerConfigError",
    "CreateContainerError", "RunContainerError",
    "FailedMount",          "FailedAttachVolume",
    "StartError",           "FailedCreatePodSandBox",
};

}  // namespace

bool is_stuck(const Worker& worker) {
  return worker.phase == WorkerPhase::kPending && !worker.terminating &&
         std::ranges::find(kStuck, worker.reason) != kStuck.end();
}

bool is_outdated(const Situation& situation, const Worker& worker) {
  return is_stuck(worker) && worker.generation &&
         *worker.generation != situation.observed.job.metadata.generation;
}

std::set<int> plan_workers(const Situation& situation, const Restarts& restarts,
                           api::TrainJobStatus& status, Timer& timer, Plan& plan) {
  std::set<int> absent;
  for (int index = 0; index < situation.sizes.desired; ++index) {
    const auto found = situation.workers.find(index);
    if (found != situation.workers.end()) {
      if (is_lost(situation, *found->second)) continue;  // is being replaced already
      if (is_outdated(situation, *found->second)) {
        mark_counted(status, found->second->uid);
        plan.deletions.push_back(
            deletion_of(situation, *found->second,
                        "it cannot start, and the job has changed since it was made"));
      } else if (is_stuck(*found->second)) {
        absent.insert(index);
      }
      continue;
    }
    if (restarts.waits_for_change.contains(index)) {
      absent.insert(index);
      continue;
    }
    const auto not_before = restarts.not_before.find(index);
    if (not_before != restarts.not_before.end() && !timer.due(not_before->second)) {
      if (not_before->second - situation.now > kShortDelay) absent.insert(index);
      continue;
    }
    plan.creations.push_back({api::worker_name(situation.observed.job, index), index});
  }
  for (const Worker* worker : situation.surplus) {
    mark_counted(status, worker->uid);
    if (worker->terminating && !is_lost(situation, *worker)) continue;
    plan.deletions.push_back(
        deletion_of(situation, *worker, "the job has fewer replicas than that"));
  }
  return absent;
}

}  // namespace tilewright::reconcile
