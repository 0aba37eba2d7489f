// When a job has succeeded: its output stands, and the ends of its workers were awaited, for a
// while.
//
// That the output stands is told by either of two, for both come after rank 0 has renamed it into
// place (and synced the disk):
//   - a worker ended with 0, whichever it is. worker/train/run.cpp leaves with 0 in two ways: after
//     the barrier behind rank 0's writing, or because the coordinator says that the job is
//     finished, which it knows from rank 0. Who is stopped, sent away or left alone ends with
//     another code. Neither the index nor the rank matters: ranks follow the seats of those
//     present, so worker 0 may never have run. A pod's phase is kept by the API server: a new
//     leader sees the same.
//   - rank 0 reported it to the rendezvous. A new leader's coordinator knows nothing of that, so it
//     stands in status.trainingCompleteTime. It counts where no end is ever told: the node of the
//     workers died in between.
#pragma once

#include <optional>

#include "controller/reconcile/situation.h"

namespace tilewright::reconcile {

struct Success {
  bool decided = false;       // the output stands: nothing is started or counted any more
  std::optional<JobEnd> end;  // and the workers have ended, too, or had their time
};

// Enters into `status` what the rendezvous tells, for as long as the job is not suspended.
void note_completion(const Situation& situation, api::TrainJobStatus& status);

Success judge_success(const Situation& situation, const api::TrainJobStatus& status, Timer& timer);

}  // namespace tilewright::reconcile
