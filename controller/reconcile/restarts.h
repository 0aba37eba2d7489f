// The restart policy: which failures are tried again, how often, how soon; counts and ledger.
//
//   cause            counted as      tried again
//   program          program         as restartPolicy says, at most maxRestarts times a job
//   infrastructure   infrastructure  without limit, except under restartPolicy Never
//   out of memory    outOfMemory     once; then only after progress; then when the job has changed
//
// restartPolicy: Always and OnFailure try every failure again; ExitCode those of exit code 128 and
// above (a signal is 128 + its number); Never none. A worker that exits 0 has done its part and is
// not started again, under Always neither.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "controller/reconcile/situation.h"

namespace tilewright::reconcile {

struct Restarts {
  std::optional<JobEnd> end;  // a failure that ends the job
  std::vector<WorkerDeletion> deletions;
  std::map<int, WallTime> not_before;  // when a missing index may be created again
  std::set<int> waits_for_change;      // out of memory again and again, in this version of the job
  std::vector<const Worker*> failed;   // ended badly, deleted from outside or lost
};

// Enters every end that is new into `status` (restarts, failures, counted_pods).
Restarts carry_out_restarts(const Situation& situation, api::TrainJobStatus& status);

// When a worker that has failed may be created again: at once after its first failure, then after
// 1 s, 2 s, 4 s, ... 5 min. Ten minutes without a failure start the series anew.
WallTime restart_time(const api::TrainJobStatus& status, int index);

}  // namespace tilewright::reconcile
