// The restart policy: which failures restart the worker, how often and how soon; restart counts and
// failure history.
//
//   cause            counted as      restarted
//   program          program         as restartPolicy says, at most maxRestarts times per job
//   infrastructure   infrastructure  as restartPolicy says, without limit
//   out of memory    outOfMemory     once; then only after progress or a change of the job
//
// An init container that fails counts as the program.
//
// A worker that does not find the job's last checkpoint (exit code 20) restarts only after a change
// of the job, too; in a runtime where the job cannot change, the job fails. A TrainJob also fails
// if a worker exits with 2 (bad flags) or 14 (the output directory is refused), and an exact job if
// its training diverges (21).
//
// api::kRestartPolicyMeanings describes the values of restartPolicy. The exit code of signal n is
// 128 + n. A worker that exits with 0 is not restarted, not even under Always. The master of a
// PyTorchJob has a policy of its own.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "controller/policy/job_state.h"

namespace tilewright::policy {

struct Restarts {
  std::optional<JobEnd> end;  // a failure that ends the job
  std::vector<WorkerDeletion> deletions;
  std::map<int, WallTime> not_before;   // when a missing index may be created again
  std::set<int> waits_for_spec_change;  // a restart in this generation would fail again
};

// Records every new failure in `status` (restarts, failures, counted_pods).
Restarts plan_restarts(const JobState& state, api::TrainJobStatus& status);

// When a failed worker may be created again: at once after its first failure, then after 1 s, 2 s,
// 4 s, ... 5 min. The series restarts after ten minutes without a failure.
WallTime restart_time(const api::TrainJobStatus& status, int index);

}  // namespace tilewright::policy
