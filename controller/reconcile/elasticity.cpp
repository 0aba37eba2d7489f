#include "controller/reconcile/elasticity.h"

#include <algorithm>

#include "controller/reconcile/situation.h"

namespace tilewright::reconcile {
namespace {

// A pod takes a second or two from its creation to joining, and tens of seconds where its image has
// to be pulled first; longer than this the ones that are there should not be idle.
constexpr std::chrono::seconds kPatience{30};

}  // namespace

Sizes sizes_of(const api::TrainJob& job) {
  const auto& elastic = job.spec.elastic_policy;
  const auto replicas = static_cast<int>(job.spec.worker.replicas.value_or(1));
  Sizes sizes;
  sizes.min = std::max(1, static_cast<int>(elastic.min_replicas.value_or(replicas)));
  sizes.max = std::max(sizes.min, static_cast<int>(elastic.max_replicas.value_or(replicas)));
  sizes.desired = std::clamp(replicas, sizes.min, sizes.max);
  sizes.processes_per_worker = std::max(1, static_cast<int>(job.spec.nproc_per_node.value_or(1)));
  return sizes;
}

Membership membership_of(const Situation& situation, const std::set<int>& absent) {
  const Sizes& sizes = situation.sizes;
  int coming = sizes.desired;
  bool all_there = true;
  for (int index = 0; index < sizes.desired; ++index) {
    const auto found = situation.workers.find(index);
    const Worker* worker = found == situation.workers.end() ? nullptr : found->second;
    const bool done = worker != nullptr && worker->phase == WorkerPhase::kSucceeded;
    if (done || absent.contains(index)) --coming;
    all_there = all_there && worker != nullptr && worker->phase == WorkerPhase::kRunning;
  }
  Membership membership;
  membership.min_world = sizes.min * sizes.processes_per_worker;
  membership.max_world = sizes.max * sizes.processes_per_worker;
  membership.expected = std::max(coming, sizes.min) * sizes.processes_per_worker;
  membership.patience = all_there ? std::chrono::seconds(0) : kPatience;
  return membership;
}

}  // namespace tilewright::reconcile
