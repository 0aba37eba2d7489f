// The elasticity policy: how many workers a job has, and how many an epoch of the rendezvous waits
// for.
#pragma once

#include <set>

#include "controller/api/trainjob.h"
#include "controller/policy/plan.h"

namespace tilewright::policy {

struct JobState;

// Numbers of workers (pods). Each worker has nprocPerNode processes.
struct Sizes {
  int min = 1;
  int max = 1;
  int desired = 1;  // spec.worker.replicas, clamped to min and max
  int processes_per_worker = 1;
  // nprocPerNode is auto: a worker has processes_per_worker to api::kMaxAutomaticProcesses
  // processes, as its node decides.
  bool automatic_processes = false;
};

Sizes sizes_of(const api::TrainJob& job);

// `absent`: the indices that will not join soon (blocked, or in a long back-off). An epoch does not
// wait for them once the minimum has joined.
Membership membership_of(const JobState& state, const std::set<int>& absent);

}  // namespace tilewright::policy
