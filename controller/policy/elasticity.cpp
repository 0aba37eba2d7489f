#include "controller/policy/elasticity.h"

#include <algorithm>

#include "controller/policy/job_state.h"

namespace tilewright::policy {
namespace {

// A pod joins one or two seconds after its creation, and tens of seconds later if its image must be
// pulled first. The workers that have joined should not be idle for longer than this.
constexpr std::chrono::seconds kJoinTimeout{30};

}  // namespace

Sizes sizes_of(const api::TrainJob& job) {
  // An invalid spec can hold any numbers, and workers that already run are counted with it.
  const auto bounded = [](std::int64_t number, std::int64_t least, std::int64_t most) {
    return static_cast<int>(std::clamp(number, least, most));
  };
  const auto& elastic = job.spec.elastic_policy;
  const std::int64_t replicas = job.spec.worker.replicas.value_or(1);
  Sizes sizes;
  sizes.min = bounded(elastic.min_replicas.value_or(replicas), 1, api::kMaxPods);
  sizes.max = bounded(elastic.max_replicas.value_or(replicas), sizes.min, api::kMaxPods);
  sizes.desired = bounded(replicas, sizes.min, sizes.max);
  const api::ProcessCount processes = job.spec.nproc_per_node.value_or(1);
  sizes.processes_per_worker = bounded(processes.number, 1, api::kMaxProcessesPerNode);
  sizes.automatic_processes = processes.automatic;
  return sizes;
}

Membership membership_of(const JobState& state, const std::set<int>& absent) {
  const Sizes& sizes = state.sizes;
  int coming = sizes.desired;
  bool all_running = true;
  for (int index = 0; index < sizes.desired; ++index) {
    const auto found = state.workers.find(index);
    const Worker* worker = found == state.workers.end() ? nullptr : found->second;
    const bool done = worker != nullptr && worker->phase == WorkerPhase::kSucceeded;
    if (done || absent.contains(index)) --coming;
    all_running = all_running && worker != nullptr && worker->phase == WorkerPhase::kRunning;
  }
  Membership membership;
  // A PyTorchJob whose workers do not run Tilewright may be larger than the rendezvous allows.
  const auto processes = [](std::int64_t workers, std::int64_t each) {
    return static_cast<int>(std::min<std::int64_t>(workers * each, rendezvous::kMaxWorld));
  };
  const std::int64_t most = sizes.automatic_processes ? api::kMaxAutomaticProcesses : 1;
  membership.min_world = processes(sizes.min, sizes.processes_per_worker);
  membership.max_world = processes(sizes.max, sizes.processes_per_worker * most);
  // Only with an automatic number of processes can a valid job have more of them than shards.
  const api::TrainJob& job = state.observed.job;
  if (const std::int64_t shards = job.status.virtual_shards; shards > 0 && api::is_exact(job)) {
    membership.max_world = static_cast<int>(
        std::clamp<std::int64_t>(shards, membership.min_world, membership.max_world));
  }
  membership.expected = processes(std::max(coming, sizes.min), sizes.processes_per_worker);
  membership.timeout = all_running ? std::chrono::seconds(0) : kJoinTimeout;
  return membership;
}

}  // namespace tilewright::policy
