// How many workers a job is to have, and how many an epoch of the rendezvous should wait for.
#pragma once

#include <set>

#include "controller/api/trainjob.h"
#include "controller/reconcile/plan.h"

namespace tilewright::reconcile {

struct Situation;

// Workers (pods); between them and processes stands nprocPerNode.
struct Sizes {
  int min = 1;
  int max = 1;
  int desired = 1;  // spec.worker.replicas, held between min and max
  int processes_per_worker = 1;
};

Sizes sizes_of(const api::TrainJob& job);

// `absent`: the indices that will not be there soon (blocked, or waiting out a long back-off). An
// epoch does not wait for them, as long as min are there.
Membership membership_of(const Situation& situation, const std::set<int>& absent);

}  // namespace tilewright::reconcile
