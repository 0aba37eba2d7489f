// The success policy: a job has succeeded when its output is written and its workers have exited,
// or when the timeout for their exits has passed.
//
// Either of two observations shows that the output is written. Both come after rank 0 has synced
// the output to disk and renamed it into place:
//   - Any worker exited with 0. worker/train/run.cpp returns 0 in two cases: after the barrier that
//     follows rank 0's write, or because the coordinator reports that the job is finished, which
//     rank 0 has reported to it. A worker that is stopped, refused or loses its peers exits with
//     another code. The worker's index does not matter: ranks are assigned to the workers that have
//     joined, so worker 0 may never have run. The API server keeps the pod's phase, so a new leader
//     sees it.
//   - Rank 0 reported it to the rendezvous. The coordinator of a new leader does not have this
//     report, so it is stored in status.trainingCompleteTime. It is needed if no exit is ever
//     reported because the workers' node died.
#pragma once

#include <optional>

#include "controller/policy/job_state.h"

namespace tilewright::policy {

struct Success {
  // The output is written: no worker is started or counted any more.
  bool training_complete = false;
  std::optional<JobEnd> end;  // set once the workers have exited or their timeout has passed
};

// Copies into `status` what its later versions must still know: the report of the rendezvous and,
// of a PyTorchJob, which workers have succeeded. Do not call it for a suspended job.
void record_success(const JobState& state, api::TrainJobStatus& status);

// Whether the worker has exited with 0, and not because its pod was deleted. The pod may be gone.
bool has_succeeded(const JobState& state, const api::TrainJobStatus& status, int index);
// The number of workers that have succeeded and whose pods are gone.
int deleted_successes(const JobState& state, const api::TrainJobStatus& status);

// Workers of a PyTorchJob may run any program, whose exit code 0 says nothing about the others, as
// long as none has joined the rendezvous. Then the output is written when the master has exited
// with 0; without a master, when all workers have. An elastic job may also end with minReplicas
// or more, if the other workers never ran. An exit with 0 during the deletion of the pod does not
// count, because many programs exit so on SIGTERM.
Success check_success(const JobState& state, const api::TrainJobStatus& status, Timer& timer);

}  // namespace tilewright::policy
